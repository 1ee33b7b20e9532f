package main

import "time"

// cpu is wall time where the process's CPU time is not at hand.
func cpu(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
