package dataplane

import (
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

func TestStock(t *testing.T) {
	for _, tt := range []struct {
		table, chain   string
		stock          bool
		leftInIPVS     string
		leftInNFTables string
		by             Writer
	}{
		{"nat", "KUBE-SERVICES", true, "", "iptables or ipvs", KubeProxy},
		{"filter", "KUBE-SERVICES", true, "iptables", "iptables", KubeProxy},
		{"nat", "KUBE-SEP-34ZZ2QFGO32YYXXO", true, "iptables", "iptables", KubeProxy},
		{"filter", "KUBE-SEP-34ZZ2QFGO32YYXXO", false, "", "", ""},
		{"nat", "KUBE-MARK-MASQ", true, "", "", ""},
		{"filter", "KUBE-FIREWALL", true, "", "", ""},
		{"nat", "KUBE-FIREWALL", true, "", "ipvs", KubeProxy},
		{"mangle", "KUBE-KUBELET-CANARY", true, "", "", Kubelet},
		{"filter", "KUBE-ROUTER-FORWARD", false, "", "", ""},
		{"filter", "KUBE-POD-FW-ABCDEFGHIJKLMNOP", false, "", "", ""},
		{"filter", "FORWARD", false, "", "", ""},
	} {
		if got := Stock(tt.table, tt.chain); got != tt.stock {
			t.Errorf("%s %s is stock: %t", tt.table, tt.chain, got)
		}
		if got := OtherMode(tt.table, tt.chain, "ipvs"); got != tt.leftInIPVS {
			t.Errorf("%s %s in IPVS mode: %q, want %q", tt.table, tt.chain, got, tt.leftInIPVS)
		}
		if got := OtherMode(tt.table, tt.chain, "nftables"); got != tt.leftInNFTables {
			t.Errorf("%s %s in nftables mode: %q, want %q", tt.table, tt.chain, got, tt.leftInNFTables)
		}
		if got := WrittenBy(tt.table, tt.chain); got != tt.by {
			t.Errorf("%s %s is written by %q, want %q", tt.table, tt.chain, got, tt.by)
		}
	}
}

// Every jump leads to a chain that is known, and of its modes.
func TestJumps(t *testing.T) {
	for _, j := range jumps {
		s, ok := stockOf(j.Table, j.To)
		if !ok {
			t.Errorf("%s %s to %s: no such chain", j.Table, j.From, j.To)
		}
		for _, mode := range []string{"iptables", "ipvs"} {
			if j.modes != "" && hasWord(j.modes, mode) && !hasWord(s.modes, mode) && s.modes != "" {
				t.Errorf("%s %s to %s in %s mode, which has no such chain", j.Table, j.From, j.To, mode)
			}
		}
	}
	release := func(minor int) func(int, int) bool {
		return func(oldest, newest int) bool { return oldest <= minor && (newest == 0 || minor <= newest) }
	}
	count := func(mode string, minor int, from netfilter.Hook) (n int) {
		for _, j := range Jumps(mode, release(minor)) {
			if j.Table == "filter" && j.From == from {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		mode  string
		minor int
		hook  netfilter.Hook
		want  int
	}{
		{"iptables", 36, netfilter.Forward, 4}, {"iptables", 36, netfilter.Input, 4}, {"iptables", 36, netfilter.Output, 3},
		{"iptables", 19, netfilter.Forward, 2}, {"iptables", 19, netfilter.Input, 3},
		{"ipvs", 30, netfilter.Input, 4}, {"ipvs", 30, netfilter.Output, 2}, {"nftables", 36, netfilter.Forward, 0},
	} {
		if got := count(tt.mode, tt.minor, tt.hook); got != tt.want {
			t.Errorf("1.%d in %s mode makes %d jumps from filter %s, want %d", tt.minor, tt.mode, got, tt.hook, tt.want)
		}
	}
	unknown := func(oldest, newest int) bool { return oldest == 0 && newest == 0 }
	for _, j := range Jumps("iptables", unknown) {
		if j.oldest != 0 || j.newest != 0 {
			t.Errorf("a version that is not known makes the jump from %s to %s", j.From, j.To)
		}
	}
}
