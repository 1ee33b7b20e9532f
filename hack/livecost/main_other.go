//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "livecost measures reading a node, and a node runs Linux")
	os.Exit(1)
}
