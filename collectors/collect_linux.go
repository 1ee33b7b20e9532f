package collectors

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// Collect reads this machine: the network namespace of the process. What could not be read is evidence with a
// status; the error is that of ctx, or of a root that cannot be entered.
func Collect(ctx context.Context, o Options) (*snapshot.Snapshot, error) {
	if o.Root == "" {
		// Sources look through the eyes of one thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return collect(ctx, o)
	}
	var s *snapshot.Snapshot
	err := onThread(func() error {
		err := EnterRoot(o.Root)
		switch {
		case err == nil:
			s, err = collect(ctx, o)
		case errors.Is(err, fs.ErrPermission):
			s, err = rootDenied(o.Node, err), nil
		}
		return err
	})
	return s, err
}

// collect reads what the thread sees.
func collect(ctx context.Context, o Options) (*snapshot.Snapshot, error) {
	p := &place{root: o.Root, timeout: o.CommandTimeout, kernel: &kernelParts{}, kept: o.Kept, without: o.WithoutTables}
	if p.timeout == 0 {
		p.timeout = DefaultCommandTimeout
	}
	s := &snapshot.Snapshot{}
	running, unseen := findProxy()

	// Objects first: rules follow objects, so that rules read afterwards have had time to.
	node := o.Node
	if o.API != nil {
		s.Evidence = append(s.Evidence, readAPI(ctx, o.API, func(nodes []byte) string {
			if node == "" {
				node = nodeNameAmong(nodes, running)
			}
			return node
		})...)
	}
	if node == "" {
		// Without the API kube-proxy may still say it.
		node = nodeNameAmong(dataOf(s, "nodes.json"), running)
	}
	s.Node = node
	if o.Silent {
		s.Evidence = append(s.Evidence, silentProxyHTTP()...)
	} else {
		s.Evidence = append(s.Evidence, readProxyHTTP(ctx, p, running)...)
	}
	s.Evidence = append(s.Evidence, running.evidence(unseen)...)
	s.Evidence = append(s.Evidence, p.readAll(ctx, nodeSources)...)
	s.Evidence = append(s.Evidence, p.readPods(ctx, o, dataOf(s, "pods.json"))...)
	s.Arrange()
	return s, ctx.Err()
}

// dataOf is what was read into a file, nil when it was not.
func dataOf(s *snapshot.Snapshot, file string) []byte {
	for i := range s.Evidence {
		if s.Evidence[i].File == file {
			return s.Evidence[i].Data
		}
	}
	return nil
}

// readAll reads sources one after the other.
func (p *place) readAll(ctx context.Context, sources []source) []snapshot.Evidence {
	var out []snapshot.Evidence
	for _, src := range sources {
		if ctx.Err() != nil {
			break
		}
		out = append(out, p.readOrKeep(ctx, src)...)
	}
	return out
}

// nodeNameAmong finds which Node this machine is: the one that kube-proxy is told to be, the one with the host's
// name, or the one with an address of this machine. Empty: none of them, or several.
func nodeNameAmong(list []byte, running *proxy) string {
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Addresses []struct{ Address string } }
		}
	}
	if json.Unmarshal(list, &nodes) != nil {
		return running.nodeName()
	}
	is := func(name string) bool {
		for _, n := range nodes.Items {
			if n.Metadata.Name == name && name != "" {
				return true
			}
		}
		return false
	}
	if name := running.nodeName(); is(name) {
		return name
	}
	if host, err := os.Hostname(); err == nil && is(strings.ToLower(host)) {
		return strings.ToLower(host)
	}
	own := ownAddrs()
	var match []string
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(own, addr) {
				match = append(match, n.Metadata.Name)
				break
			}
		}
	}
	if len(match) == 1 {
		return match[0]
	}
	return ""
}

// ownAddrs are the addresses of the thread's network namespace, loopback and link-local ones left out: every
// machine has those.
func ownAddrs() []netip.Addr {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() {
			out = append(out, addr.Unmap())
		}
	}
	return out
}
