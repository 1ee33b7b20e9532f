//go:build !linux

// Command load is the client and the server that proxies are measured with, on Linux.
package main

func main() { println("load: this runs on Linux only") }
