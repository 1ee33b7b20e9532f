//go:build !linux

// Command lab brings up real Kubernetes nodes in network namespaces, which Linux alone has.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "lab: it runs on Linux only: nodes are network namespaces")
	os.Exit(1)
}
