//go:build !linux

package userspace

import (
	"context"
	"errors"
	"runtime"

	"github.com/svcnet/svcnet/repair/proxy"
)

// Run fails: a node runs Linux.
func Run(context.Context, Config) (proxy.Ending, error) {
	return "", errors.New("serve Services: a node runs Linux, and this is " + runtime.GOOS)
}
