package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NodeAddrs are the addresses of the thread's network namespace, sorted: without those on devices that only carry the
// addresses of Services.
func NodeAddrs() ([]netip.Addr, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	carriers := map[int]bool{}
	for _, l := range links {
		name := l.Attrs().Name
		carriers[l.Attrs().Index] = name == "kube-ipvs0" || name == "nodelocaldns" || strings.HasPrefix(name, "cilium_")
	}
	list, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && !carriers[a.LinkIndex] {
			out = append(out, ip.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// addrsSettle is how long further changes of addresses are waited for: they come in heaps when a network comes up.
// addrsAgain is how often they are looked at without being told: the kernel tells nobody who does not keep up.
const (
	addrsSettle = 300 * time.Millisecond
	addrsAgain  = 20 * time.Second
)

// FollowAddrs tells of the node's addresses after each change, until ctx ends.
func FollowAddrs(ctx context.Context) (<-chan []netip.Addr, error) {
	updates := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	if err := netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		return nil, fmt.Errorf("follow the node's addresses: %w", err)
	}
	out := make(chan []netip.Addr)
	go func() {
		defer close(out)
		defer close(done)
		again := time.NewTicker(addrsAgain)
		defer again.Stop()
		told := updates
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			case _, ok := <-told:
				if !ok {
					told = nil
					continue
				}
				settle(ctx, told)
			}
			addrs, err := NodeAddrs()
			if err != nil {
				continue
			}
			select {
			case out <- addrs:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// settle waits until no more changes are told.
func settle(ctx context.Context, told <-chan netlink.AddrUpdate) {
	after := time.After(addrsSettle)
	for {
		select {
		case <-ctx.Done():
			return
		case <-after:
			return
		case _, ok := <-told:
			if !ok {
				return
			}
		}
	}
}
