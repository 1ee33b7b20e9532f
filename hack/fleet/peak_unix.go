//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peak is the largest memory that a process had, in bytes.
func peak(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss // in bytes there, in KiB elsewhere
	}
	return u.Maxrss << 10
}
