package netfilter

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/ipset"
)

func sets(t *testing.T, text string) map[string]*Set {
	t.Helper()
	captured, problems, err := ipset.Parse(text, "ipset-save.txt")
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", err, problems)
	}
	return SetsOf(captured)
}

// TestSetMatch: rules ask captured sets. What sets answer is held against the kernel in explain/ipset.
func TestSetMatch(t *testing.T) {
	k := unaware()
	k.Sets = sets(t, `create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
create KUBE-LOOP-BACK hash:ip,port,ip family inet
add KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30443
create nets hash:net
add nets 10.0.0.0/8
add nets 10.1.0.0/16 nomatch
create from hash:ip,port
add from 10.0.0.9,tcp:1000
create in hash:net,iface
add in 10.0.0.0/8,eth0
create pings hash:ip,port
add pings 10.0.0.9,icmp:echo-request
create list list:set
add list nets
create six hash:ip family inet6
add six fd00::1
`)
	p := &Packet{Family: IPv4, Proto: ProtoTCP, Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.96.0.1"), DstPort: 443, In: Iface{Name: "eth0", Known: true}}
	port := *p
	port.DstPort = 30443
	known := *p
	known.SrcPort, known.HasSrcPort = 1000, true
	loop := *p
	loop.Src, loop.Dst, loop.DstPort = netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("10.244.1.5"), 8080
	except := *p
	except.Src = netip.MustParseAddr("10.1.0.9")
	away := *p
	away.Src = netip.MustParseAddr("192.0.2.9")
	ping := *p
	ping.Proto, ping.ICMPType = ProtoICMP, 8
	answer := *p
	answer.Answer, answer.SrcPort, answer.DstPort = true, 443, 0
	for _, c := range []struct {
		rule string
		p    *Packet
		want Truth
	}{
		{"--match-set KUBE-CLUSTER-IP dst,dst", p, True},
		{"! --match-set KUBE-CLUSTER-IP dst,dst", p, False},
		{"--match-set KUBE-CLUSTER-IP dst,dst", &port, False},
		{"--match-set KUBE-CLUSTER-IP dst", p, False},
		{"--match-set KUBE-CLUSTER-IP dst,src", p, Undecided},
		{"--match-set KUBE-CLUSTER-IP src,src", p, False},
		{"--match-set KUBE-NODE-PORT-TCP dst", &port, True},
		{"--match-set KUBE-NODE-PORT-TCP dst", p, False},
		{"--match-set KUBE-NODE-PORT-TCP dst", &answer, Undecided},
		{"--match-set KUBE-LOOP-BACK dst,dst,src", &loop, True},
		{"--match-set from src,src", p, Undecided},
		{"--match-set from src,src", &known, True},
		{"--match-set in src,src", p, True},
		{"--match-set in src,dst", p, Undecided},
		{"--match-set pings src,src", &ping, True},
		{"--match-set pings src,src", p, False},
		{"--match-set nets src", p, True},
		{"--match-set nets src", &except, False},
		{"--match-set nets src --return-nomatch", p, False},
		{"--match-set nets src --return-nomatch", &except, True},
		{"! --match-set nets src --return-nomatch", &except, False},
		{"--match-set nets src --return-nomatch", &away, False},
		{"--match-set KUBE-CLUSTER-IP dst,dst --return-nomatch", p, True},
		{"--match-set list src --return-nomatch", p, Undecided},
		{"--match-set list src", p, True},
		{"--match-set nets src ! --update-counters", p, True},
		{"--match-set nets src --packets-gt 5", p, Undecided},
		{"--match-set nets src --packets-gt 5", &away, False},
		{"--match-set six dst", p, False},
		{"--match-set gone dst", p, Undecided},
	} {
		a := parseMatch(t, "-m set "+c.rule).Test(k, Prerouting, c.p)
		if a.Truth != c.want {
			t.Errorf("%s: %+v: %d, want %d", c.rule, *c.p, a.Truth, c.want)
		}
		if a.Truth == Undecided && (a.Fact.Key == "" || a.Fact.Because == "") {
			t.Errorf("%s asks nothing: %+v", c.rule, a.Fact)
		}
	}
	if a := parseMatch(t, "-m set --match-set gone dst").Test(k, Prerouting, p); !strings.Contains(a.Fact.Because, "takes no rule whose set is not there") {
		t.Errorf("a set that is not there: %s", a.Fact.Because)
	}
	if a := parseMatch(t, "-m set --match-set gone dst").Test(unaware(), Prerouting, p); !strings.Contains(a.Fact.Because, "no ipset was captured") {
		t.Errorf("no sets: %s", a.Fact.Because)
	}
	// Checks see which entry decided, and where it was read.
	a := k.Sets["list"].Lookup([]Dir{DirSrc}, p)
	if a.Entry == nil || a.Set.At(a.Entry).Text != "add nets 10.0.0.0/8" || a.Set.At(a.Entry).Line != 8 || a.Set.At(a.Entry).File != "ipset-save.txt" {
		t.Errorf("%+v", a)
	}
}

// TestSetDivision: addresses with the same entries but for themselves are alike, others are not.
func TestSetDivision(t *testing.T) {
	all := sets(t, `create KUBE-CLUSTER-IP hash:ip,port
add KUBE-CLUSTER-IP 10.96.0.1,tcp:80
add KUBE-CLUSTER-IP 10.96.0.2,tcp:80
add KUBE-CLUSTER-IP 10.96.0.3,tcp:81
add KUBE-CLUSTER-IP 10.96.0.4,tcp:80
add KUBE-CLUSTER-IP 10.96.0.4,tcp:443
create KUBE-LOOP-BACK hash:ip,port,ip
add KUBE-LOOP-BACK 10.244.1.5,tcp:8080,10.244.1.5
add KUBE-LOOP-BACK 10.244.1.6,tcp:8080,10.244.1.6
add KUBE-LOOP-BACK 10.244.1.7,tcp:8080,10.244.1.9
create nets hash:net
add nets 10.0.0.0/8
add nets 10.244.1.8 nomatch
create ports bitmap:port range 0-65535
add ports 30000
create list list:set
add list nets
`)
	d := new(Division)
	for _, name := range []string{"KUBE-CLUSTER-IP", "KUBE-LOOP-BACK", "list", "ports"} {
		if !all[name].divide(d) {
			t.Errorf("set %s cannot be divided by", name)
		}
	}
	kinds := make(map[int]string)
	var got []string
	for _, a := range []string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4", "10.96.0.5", "10.244.1.5", "10.244.1.6", "10.244.1.7", "10.244.1.8", "10.244.1.9", "192.0.2.1"} {
		k := d.OfAddress(netip.MustParseAddr(a))
		if kinds[k] == "" {
			kinds[k] = a
		}
		got = append(got, kinds[k])
	}
	if diff := cmp.Diff([]string{"10.96.0.1", "10.96.0.1", "10.96.0.3", "10.96.0.4", "10.96.0.5", "10.244.1.5", "10.244.1.5", "10.244.1.7", "10.244.1.8", "10.244.1.9", "192.0.2.1"}, got); diff != "" {
		t.Error(diff)
	}
	if d.OfPort(30000) == d.OfPort(30001) || d.OfPort(80) == d.OfPort(81) || d.OfPort(5) != d.OfPort(6) {
		t.Error("ports")
	}
	cut := sets(t, "create A hash:ip\nadd A 10.0.0.1\n")
	cut["A"].Captured.Missing = "cut"
	if cut["A"].divide(d) {
		t.Error("a set with entries missing tells nothing apart that is known")
	}
}
