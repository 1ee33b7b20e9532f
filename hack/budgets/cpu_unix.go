//go:build unix

package main

import (
	"runtime"
	"syscall"
	"time"
)

// cpu is the CPU time that this process spends on f, its garbage collection included.
func cpu(f func()) time.Duration {
	runtime.GC()
	before := used()
	f()
	runtime.GC()
	return used() - before
}

func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
