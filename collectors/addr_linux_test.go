package collectors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

func TestReadAddrs(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		nodeLab(t)
		rnd := rand.New(rand.NewPCG(1, 2))
		var b strings.Builder
		for i := range 30 {
			dev := []string{"eth0", "cni0", "eth0.100", "kube-ipvs0", "flannel.1", "veth4"}[rnd.IntN(6)]
			fmt.Fprintf(&b, "ip addr add 10.200.%d.%d/%d dev %s\n", i, 1+rnd.IntN(200), 16+rnd.IntN(17), dev)
			fmt.Fprintf(&b, "ip -6 addr add fd00:200:%d::%d/%d dev %s nodad\n", i, 1+rnd.IntN(200), 64+rnd.IntN(65), dev)
		}
		build(t, b.String())
		settled(t)
		got := readTwice(t, p, readAddrs)
		roundTrips(t, got...)
		if len(got) != 1 || got[0].Status != snapshot.OK || got[0].File != "ip-addr.txt" {
			t.Fatalf("%+v", got)
		}
		native := parsed(t, anyFamily(host.ParseAddrs), 0, shell(t, "ip -d addr show"), "ip-addr.txt")
		ours := parsed(t, anyFamily(host.ParseAddrs), 0, string(got[0].Data), "ip-addr.txt")
		sameHost(t, "addresses", native, ours)
		if len(ours.Addrs) < 70 || ours.Link("veth1").Hairpin != host.Yes || ours.Link("veth2").Hairpin != host.No ||
			ours.Link("veth1").Master != "cni0" || ours.Link("cni0").Kind != "bridge" {
			t.Errorf("something is missing:\n%s", got[0].Data)
		}
	})
}

func TestReadAddrsOfNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		got := readOne(t, p, readAddrs, "ip-addr.txt")
		ours := parsed(t, anyFamily(host.ParseAddrs), 0, string(got.Data), got.File)
		if len(ours.Links) == 0 || ours.Link("lo").Up || len(ours.Addrs) != 0 {
			t.Errorf("%s", got.Data)
		}
	})
}

func TestReadBridge(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		if got := readOne(t, p, readBridge, "bridge-link.txt"); got.Status != snapshot.Empty {
			t.Errorf("without a bridge: %+v", got)
		}
		nodeLab(t)
		got := readTwice(t, p, readBridge)
		roundTrips(t, got...)
		native := parsed(t, anyFamily(host.ParseBridgeLinks), 0, shell(t, "bridge -d link show"), "bridge-link.txt")
		ours := parsed(t, anyFamily(host.ParseBridgeLinks), 0, string(got[0].Data), "bridge-link.txt")
		// bridge does not see that the other end of a veth is elsewhere, and names the interface of that number here.
		sameHost(t, "ports", native, ours, cmpopts.IgnoreFields(host.Link{}, "Peer", "Flags"))
		if len(ours.Links) != 3 || ours.Link("veth1").Hairpin != host.Yes || ours.Link("veth3").Hairpin != host.No {
			t.Errorf("%s", got[0].Data)
		}
	})
}

// FuzzMessages gives the decoders what the kernel would never send.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Add([]byte("\x02\x18\x00\x00\xfe\x02\x00\x01\x00\x00\x00\x00\x08\x00\x01\x00\x0a\x00\x00\x00\x05\x00\x09\x00\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, m []byte) {
		var b strings.Builder
		ls := links{1: &link{index: 1, name: "lo"}}
		if l, ok := linkOf(m); ok {
			b.WriteString(string(writeAddrs([]link{l}, ls, nil)))
		}
		if a, ok := ifAddrOf(m); ok {
			b.WriteString(a.line("lo"))
		}
		for _, family := range []int{2, 10} {
			b.WriteString(messageText(ls, family, m))
		}
		if line, ok := flowLine(2, m); ok && !strings.Contains(line, "src=") {
			t.Errorf("%q", line)
		}
		if strings.ContainsRune(b.String(), 0) {
			t.Errorf("a zero byte in %q", b.String())
		}
	})
}
