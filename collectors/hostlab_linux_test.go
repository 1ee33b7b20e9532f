package collectors

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

// The tests of what a host looks like build it in a namespace, read it, and compare what explain makes of the
// text with what it makes of the text that the native tool prints.

// far makes a second namespace, for interfaces whose other end is not here.
func far(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("svcnet-collect-far-%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("cannot make a second network namespace: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return name
}

// readOne reads a source and picks the evidence of one file.
func readOne(t *testing.T, p *place, read func(context.Context, *place) []snapshot.Evidence, file string) snapshot.Evidence {
	t.Helper()
	var files []string
	for _, e := range read(t.Context(), p) {
		if e.File == file {
			return e
		}
		files = append(files, e.File)
	}
	t.Fatalf("no evidence %q among %q", file, files)
	return snapshot.Evidence{}
}

type hostParser func(h *host.Host, family int, text, file string) ([]host.Problem, error)

func anyFamily(parse func(h *host.Host, text, file string) ([]host.Problem, error)) hostParser {
	return func(h *host.Host, _ int, text, file string) ([]host.Problem, error) { return parse(h, text, file) }
}

// parsed is what explain makes of a text, which it must read without a problem.
func parsed(t *testing.T, parse hostParser, family int, text, file string) *host.Host {
	t.Helper()
	h := &host.Host{}
	problems, err := parse(h, family, text, file)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%s: %v, problems %v\n%s", file, err, problems, text)
	}
	return h
}

// sameHost compares models, without where they were read.
func sameHost(t *testing.T, what string, native, ours *host.Host, more ...cmp.Option) {
	t.Helper()
	opts := append(cmp.Options{
		cmpopts.IgnoreUnexported(host.Host{}), cmpopts.IgnoreTypes(host.Evidence{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(host.Host{}, "SysctlEvidence"),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	}, more...)
	if diff := cmp.Diff(native, ours, opts); diff != "" {
		t.Errorf("%s (-native +ours):\n%s", what, diff)
	}
}

// roundTrips checks that a loose file with this text is what the evidence says that it is, and that a bundle
// gives the evidence back.
func roundTrips(t *testing.T, list ...snapshot.Evidence) {
	t.Helper()
	for _, e := range list {
		if e.Status != snapshot.OK {
			continue
		}
		f, family, _, note := snapshot.Recognise(e.File, e.Data)
		if f != e.Format || family != e.Family {
			t.Errorf("%s is recognised as %q of family %d (%s), and is %q of %d:\n%s", e.File, f, family, note, e.Format, e.Family, e.Data)
		}
	}
	bundled(t, list...)
}

func bundled(t *testing.T, list ...snapshot.Evidence) {
	t.Helper()
	s := &snapshot.Snapshot{Evidence: slices.Clone(list)}
	s.Arrange()
	var b bytes.Buffer
	if err := s.WriteBundle(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle.tgz")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := snapshot.Load([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Evidence, back.Evidence, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("through a bundle (-before +after):\n%s", diff)
	}
}

// readTwice checks that nothing changes when nothing changed.
func readTwice(t *testing.T, p *place, read func(context.Context, *place) []snapshot.Evidence) []snapshot.Evidence {
	t.Helper()
	first := read(t.Context(), p)
	if diff := cmp.Diff(first, read(t.Context(), p)); diff != "" {
		t.Errorf("read twice (-first +second):\n%s", diff)
	}
	return first
}

// eventually waits for what the kernel does on its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 100 {
		if done() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// build runs commands, a line each. A line after "?" may fail: not every kernel has every kind of interface.
func build(t *testing.T, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		line, optional := strings.CutPrefix(strings.TrimSpace(line), "? ")
		if line == "" {
			continue
		}
		out, err := exec.Command("sh", "-c", line).CombinedOutput()
		switch {
		case err != nil && optional:
			t.Logf("%s: %s", line, bytes.TrimSpace(out))
		case err != nil:
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

// nodeLab is a node as rich as it gets: bridge ports with and without hairpin, ends of veths here and elsewhere,
// addresses of every kind.
func nodeLab(t *testing.T) {
	t.Helper()
	needs(t, "ip", "bridge")
	elsewhere := far(t)
	build(t, strings.ReplaceAll(`
		sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0
		ip link add cni0 type bridge
		ip link add br.two type bridge
		? ip link set br.two type bridge vlan_filtering 1
		ip link add eth0 type veth peer name eth0 netns FAR
		ip link add veth1 type veth peer name p1 netns FAR
		ip link add veth2 type veth peer name p2 netns FAR
		ip link add veth3 type veth peer name veth4
		ip link add eth0.100 type veth peer name far100 netns FAR
		ip link add kube-ipvs0 type bridge
		ip link add flannel.1 type vxlan id 1 local 10.0.0.1 dev eth0 dstport 8472 nolearning
		? ip link add link veth4 name v4.7 type vlan id 7
		? ip link add dummy0 type dummy
		? ip link add vrf1 type vrf table 1001
		? ip link set dummy0 master vrf1
		ip link set veth1 master cni0
		ip link set veth2 master cni0
		ip link set veth3 master br.two
		bridge link set dev veth1 hairpin on
		bridge link set dev veth2 isolated on
		ip link set veth4 mtu 1400 txqueuelen 7 group 9
		ip link set lo up
		ip link set eth0 up
		ip link set eth0.100 up
		ip link set cni0 up promisc on
		ip link set veth1 up
		ip link set veth2 up
		ip link set veth3 up
		ip link set flannel.1 up
		ip link set kube-ipvs0 up arp off
		ip -n FAR link set eth0 up
		ip -n FAR link set far100 up
		ip -n FAR link set p1 up
		ip addr add 10.0.0.1/24 brd + dev eth0
		ip addr add 10.0.0.7/24 dev eth0
		ip addr add 10.0.0.8/24 dev eth0 label eth0:sub
		ip addr add 10.0.64.1/18 brd 10.0.127.255 dev eth0 metric 77
		ip addr add 10.1.0.1/16 dev cni0
		ip addr add 10.2.0.1 peer 10.2.0.2/32 dev eth0.100
		ip addr add 10.2.1.1 peer 10.2.1.0/24 dev eth0.100
		ip addr add 10.3.0.1/24 dev eth0 noprefixroute
		ip addr add 169.254.1.1/16 dev eth0 scope link
		ip addr add 10.96.0.10/32 dev kube-ipvs0
		ip addr add 10.5.0.1/24 dev eth0 valid_lft 3600 preferred_lft 0
		ip -6 addr add fd00:1::1/64 dev eth0 nodad
		ip -6 addr add fd00:1::7/64 dev eth0 nodad valid_lft 3600 preferred_lft 0
		ip -6 addr add fd00:2::1/64 dev cni0 nodad noprefixroute
		ip -6 addr add fd00:3::1 peer fd00:3::2 dev eth0.100 nodad
		ip -6 addr add fd00:96::10/128 dev kube-ipvs0 nodad
	`, "FAR", elsewhere))
	settled(t)
}

// settled waits until no address is on trial any more.
func settled(t *testing.T) {
	t.Helper()
	eventually(t, "addresses to settle", func() bool { return !strings.Contains(shell(t, "ip addr show"), "tentative") })
}
