//go:build !linux

package collectors

import (
	"errors"
	"runtime"
)

// EnterRoot makes dir the root of the calling thread, which only a Linux machine can.
func EnterRoot(string) error {
	return errors.New("enter a node's root: a node runs Linux, and this is " + runtime.GOOS + " (leave out --root)")
}
