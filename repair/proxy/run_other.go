//go:build !linux

package proxy

import (
	"context"
	"errors"
	"net/netip"
)

// errSystem is of systems whose kernel has no netfilter.
var errSystem = errors.New("the fallback proxy writes rules of netfilter, which only Linux has: run it on a Linux node")

// Run is for Linux.
func Run(context.Context, Config) (Ending, error) { return "", errSystem }

// RemoveLeft is for Linux.
func RemoveLeft(string) ([]string, error) { return nil, nil }

// NodeAddrs is for Linux.
func NodeAddrs() ([]netip.Addr, error) { return nil, errSystem }

// Instance is the one proxy of a node.
type Instance struct{}

// Release gives the node back.
func (*Instance) Release() {}

// Hold is for Linux.
func Hold(string, Running) (*Instance, error) { return nil, errSystem }

// IsRunning is for Linux.
func IsRunning(string) (*Running, error) { return nil, nil }
