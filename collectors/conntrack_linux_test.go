package collectors

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

const labFlows = `
	conntrack -I -p udp -s 10.0.0.1 -d 10.96.0.10 --sport 1000 --dport 53 -r 10.244.0.5 -q 10.0.0.1 --reply-port-src 53 --reply-port-dst 1000 -t 600 -u SEEN_REPLY
	conntrack -I -p udp -s 10.0.0.1 -d 10.96.0.11 --sport 1001 --dport 53 -r 10.96.0.11 -q 10.0.0.1 --reply-port-src 53 --reply-port-dst 1001 -t 600
	conntrack -I -p udp -s 10.0.0.1 -d 10.96.0.12 --sport 1002 --dport 53 -r 10.96.0.12 -q 10.0.0.1 --reply-port-src 53 --reply-port-dst 1002 -t 600 -u SEEN_REPLY,ASSURED
	conntrack -I -p tcp -s 10.0.0.1 -d 10.96.0.1 --sport 2000 --dport 443 -r 10.0.0.9 -q 10.0.0.1 --reply-port-src 6443 --reply-port-dst 2000 -t 600 --state ESTABLISHED -u SEEN_REPLY,ASSURED -m 0x4000
	conntrack -I -p tcp -s 10.0.0.1 -d 10.0.0.9 --sport 2001 --dport 80 -r 10.0.0.9 -q 10.0.0.1 --reply-port-src 80 --reply-port-dst 2001 -t 600 --state SYN_SENT
	conntrack -I -p tcp -s 10.0.0.1 -d 10.0.0.9 --sport 2002 --dport 80 -r 10.0.0.9 -q 10.0.0.1 --reply-port-src 80 --reply-port-dst 61000 -t 600 --state TIME_WAIT -u SEEN_REPLY
	conntrack -I -p tcp -s fd00::1 -d fd00:96::1 --sport 2003 --dport 80 -r fd00::9 -q fd00::1 --reply-port-src 8080 --reply-port-dst 2003 -t 600 --state CLOSE -u SEEN_REPLY
	conntrack -I -p icmp -s 10.0.0.1 -d 10.96.0.1 --icmp-type 8 --icmp-code 0 --icmp-id 7 -t 600 -u SEEN_REPLY
	conntrack -I -p icmp -s 10.0.0.1 -d 10.96.0.2 --icmp-type 8 --icmp-code 0 --icmp-id 7 -t 600 -u SEEN_REPLY --dst-nat 10.0.0.9
`

// flowLab makes connections, of which six matter.
func flowLab(t *testing.T) {
	t.Helper()
	needs(t, "conntrack", "ip")
	build(t, "ip link set lo up")
	if out, err := exec.Command("conntrack", "-L").CombinedOutput(); err != nil {
		t.Skipf("this kernel does not let connections be made: %v: %s", err, out)
	}
	for line := range strings.Lines(labFlows) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

// ignoreTime leaves out what runs.
func ignoreTime() cmp.Options {
	return cmp.Options{cmpopts.IgnoreFields(host.Flow{}, "Timeout"), cmpopts.SortSlices(func(a, b host.Flow) bool {
		return fmt.Sprint(a.Family, a.Proto, a.SrcPort, a.Dst) < fmt.Sprint(b.Family, b.Proto, b.SrcPort, b.Dst)
	})}
}

func TestReadConntrack(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		flowLab(t)
		got := readOne(t, p, readConntrack, "conntrack.txt")
		if got.Status != snapshot.OK {
			t.Fatalf("%+v", got)
		}
		roundTrips(t, got)
		ours := parsed(t, anyFamily(host.ParseConntrack), 0, string(got.Data), got.File)
		native := parsed(t, anyFamily(host.ParseConntrack), 0, shell(t, "conntrack -L -f ipv4 2>/dev/null; conntrack -L -f ipv6 2>/dev/null"), got.File)
		if len(native.Flows) != 9 {
			t.Fatalf("%d connections were made", len(native.Flows))
		}
		native.Flows = slices.DeleteFunc(native.Flows, func(f host.Flow) bool {
			mirror := f.Src == f.ReplyDst && f.Dst == f.ReplySrc && f.SrcPort == f.ReplyDstPort && f.DstPort == f.ReplySrcPort
			return mirror && !(f.Proto == 17 && f.Unreplied)
		})
		if len(native.Flows) != 6 {
			t.Errorf("%d connections matter", len(native.Flows))
		}
		sameHost(t, "connections", native, ours, ignoreTime()...)

		// The kernel's other answer is the same.
		if !p.kernel.has("nf_conntrack_netlink") {
			t.Skip("this kernel has no ctnetlink")
		}
		asked := &flowText{limit: maxFlows}
		if err := asked.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		sameHost(t, "connections of ctnetlink", native, parsed(t, anyFamily(host.ParseConntrack), 0, asked.text.String(), "conntrack.txt"), ignoreTime()...)
		roundTrips(t, asked.evidence("conntrack.txt", nil))
		if asked.total != 9 {
			t.Errorf("%d connections were looked at", asked.total)
		}
	})
}

func TestReadConntrackOfNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		got := readOne(t, p, readConntrack, "conntrack.txt")
		if _, err := os.Stat("/proc/thread-self/net/nf_conntrack"); err != nil {
			t.Skip("this kernel does not show connections in /proc")
		}
		if got.Status != snapshot.Empty || got.Error != "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestFlowsThatMatter(t *testing.T) {
	const tail = " mark=0 zone=0 use=2\n"
	for _, c := range []struct {
		name, line string
		want       bool
	}{
		{"a mirror", "ipv4     2 tcp      6 9 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 [ASSURED]" + tail, false},
		{"with counters", "ipv4     2 tcp      6 9 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 packets=1 bytes=52 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 packets=9 bytes=1 [ASSURED]" + tail, false},
		{"another destination", "ipv4     2 tcp      6 9 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.3 dst=10.0.0.1 sport=2 dport=1 [ASSURED]" + tail, true},
		{"another source port", "ipv4     2 tcp      6 9 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=3 [ASSURED]" + tail, true},
		{"UDP without a reply", "ipv4     2 udp      17 9 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1" + tail, true},
		{"TCP without a reply", "ipv4     2 tcp      6 9 SYN_SENT src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1" + tail, false},
		{"ICMP", "ipv4     2 icmp     1 9 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=7 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=7" + tail, false},
		{"no connection", "udp", false},
		{"half of one", "ipv4     2 udp      17 9 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 [UNREPLIED]", false},
	} {
		if got := flowMatters(c.line); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestFlowLimit(t *testing.T) {
	var text strings.Builder
	for i := range 5 {
		fmt.Fprintf(&text, "ipv4     2 udp      17 9 src=10.0.0.1 dst=10.0.0.2 sport=%d dport=2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=2 dport=%d mark=0 use=2\n", i, i)
	}
	for limit, want := range map[int]snapshot.Status{3: snapshot.Truncated, 5: snapshot.OK} {
		flows := &flowText{limit: limit}
		if err := flows.scan(t.Context(), strings.NewReader(text.String())); err != nil {
			t.Fatal(err)
		}
		e := flows.evidence("conntrack.txt", nil)
		h := parsed(t, anyFamily(host.ParseConntrack), 0, string(e.Data), e.File)
		if e.Status != want || len(h.Flows) != limit || (e.Error != "") != (want == snapshot.Truncated) {
			t.Errorf("limit %d: %s, %q, %d flows", limit, e.Status, e.Error, len(h.Flows))
		}
		bundled(t, e)
	}
}

func FuzzFlowMatters(f *testing.F) {
	f.Add("ipv4     2 udp      17 9 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 mark=0 use=2")
	f.Add("src= src= src=")
	f.Fuzz(func(t *testing.T, line string) {
		if flowMatters(line) && !strings.Contains(line, "src=") {
			t.Errorf("%q", line)
		}
	})
}
