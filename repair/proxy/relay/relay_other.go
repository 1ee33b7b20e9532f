//go:build !linux

package relay

import (
	"context"
	"errors"
	"net/netip"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// sockaddr is an address in the kernel's form, which only Linux needs here.
type sockaddr struct{}

func sockaddrOf(netip.AddrPort) sockaddr { return sockaddr{} }

// Relay is never made here.
type Relay struct{}

// Limits are how much a relay takes on.
type Limits struct {
	// Files is how many files the process may have open.
	Files int
	// Connections and Sessions are the most TCP connections and UDP sessions at one time.
	Connections, Sessions int
}

// New fails: a node runs Linux.
func New(Options) (*Relay, error) {
	return nil, errors.New("start the userspace proxy: a node runs Linux, and this is " + runtime.GOOS)
}

// Update serves nothing.
func (*Relay) Update(Want) ([]Unserved, error) { return nil, errors.New("this is no node") }

// Limits are none.
func (*Relay) Limits() Limits { return Limits{} }

// Active is none.
func (*Relay) Active() (connections, sessions int) { return 0, 0 }

// Lingering is none.
func (*Relay) Lingering() int { return 0 }

// Drain has nothing to wait for.
func (*Relay) Drain(context.Context) {}

// Close has nothing to end.
func (*Relay) Close() {}

// Collector has no metrics.
func (*Relay) Collector(bool) prometheus.Collector { return prometheus.NewRegistry() }

// RemoveRoutes finds none.
func RemoveRoutes() ([]netip.Addr, error) { return nil, nil }
