//go:build !linux

// Command record records nodes for the tests of package recorded, which Linux alone has.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "record: it runs on Linux only: nodes are network namespaces")
	os.Exit(1)
}
