//go:build !linux

package collectors

import (
	"context"
	"errors"
	"runtime"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// Collect reads this machine, which only a Linux machine can.
func Collect(context.Context, Options) (*snapshot.Snapshot, error) {
	return nil, errors.New("read this machine: a node runs Linux, and this is " + runtime.GOOS + " (give a bundle or files with -f)")
}

// ProxyAPI is nil: there is no kube-proxy here whose credentials could be used.
func ProxyAPI() *API { return nil }
