//go:build !linux

// Command bench measures the userspace proxy beside HAProxy and nginx, on Linux.
package main

func main() { println("bench: this runs on Linux only") }
