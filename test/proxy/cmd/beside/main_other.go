//go:build !linux

// Command beside compares svcnet's fallback proxy with kube-proxy. It needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "beside: network namespaces need Linux")
	os.Exit(1)
}
