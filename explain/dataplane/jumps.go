package dataplane

import (
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// Jump is a jump by which packets get from a built-in chain to one of kube-proxy's (or kubelet's).
type Jump struct {
	Table string
	From  netfilter.Hook
	To    string
	// Loses says what does not happen to packets without the jump.
	Loses string

	// modes as in stock; empty: whatever kube-proxy does.
	modes string
	// oldest and newest are the minor releases of Kubernetes 1.x that make the jump; 0 is no bound.
	oldest, newest int
}

// What is lost without a jump.
const (
	translation = "packets to Services are not translated"
	masquerade  = "sources are not rewritten where answers need it"
	refusal     = "Services without endpoints are not refused"
	acceptance  = "masqueraded packets are not accepted"
	// portAcceptance is that of what node ports lead to.
	portAcceptance = "packets to node ports are not let in to kube-proxy's sockets"
	healthCheck    = "health checks of load balancers are not let in"
	ranges         = "loadBalancerSourceRanges do not hold"
	reserved       = "unused ports of Service addresses reach the node's own processes"
	loopback       = "the node's loopback addresses are not protected from its neighbours"
)

// jumps are those of all versions and modes, by table and hook.
var jumps = []Jump{
	{"nat", netfilter.Prerouting, "KUBE-SERVICES", translation, "iptables ipvs", 0, 0},
	{"nat", netfilter.Prerouting, PortalsContainer, translation, "userspace", 0, 0},
	{"nat", netfilter.Prerouting, NodePortContainer, translation, "userspace", 0, 0},
	{"nat", netfilter.Output, "KUBE-SERVICES", translation, "iptables ipvs", 0, 0},
	{"nat", netfilter.Output, PortalsHost, translation, "userspace", 0, 0},
	{"nat", netfilter.Output, NodePortHost, translation, "userspace", 0, 0},
	{"nat", netfilter.Postrouting, "KUBE-POSTROUTING", masquerade, "iptables ipvs", 0, 0},

	{"filter", netfilter.Input, "KUBE-EXTERNAL-SERVICES", refusal, "iptables", 0, 0},
	{"filter", netfilter.Input, "KUBE-FIREWALL", loopback, "", 0, 0},
	{"filter", netfilter.Input, "KUBE-IPVS-FILTER", reserved, "ipvs", 26, 0},
	{"filter", netfilter.Input, "KUBE-NODE-PORT", healthCheck, "ipvs", 21, 0},
	{"filter", netfilter.Input, "KUBE-NODEPORT-NON-LOCAL", portAcceptance, "userspace", 0, 0},
	{"filter", netfilter.Input, "KUBE-NODEPORTS", healthCheck, "iptables", 21, 0},
	{"filter", netfilter.Input, "KUBE-PROXY-FIREWALL", ranges, "iptables ipvs", 25, 0},
	{"filter", netfilter.Input, "KUBE-SERVICES", refusal, "iptables", 13, 19},

	{"filter", netfilter.Forward, "KUBE-EXTERNAL-SERVICES", refusal, "iptables", 20, 0},
	{"filter", netfilter.Forward, "KUBE-FORWARD", acceptance, "iptables ipvs", 0, 0},
	{"filter", netfilter.Forward, "KUBE-PROXY-FIREWALL", ranges, "iptables ipvs", 25, 0},
	{"filter", netfilter.Forward, "KUBE-SERVICES", refusal, "iptables", 14, 0},

	{"filter", netfilter.Output, "KUBE-FIREWALL", loopback, "", 0, 0},
	{"filter", netfilter.Output, "KUBE-IPVS-OUT-FILTER", ranges, "ipvs", 29, 0},
	{"filter", netfilter.Output, "KUBE-PROXY-FIREWALL", ranges, "iptables", 25, 0},
	{"filter", netfilter.Output, "KUBE-SERVICES", refusal, "iptables", 0, 0},
}

// Jumps are those that a proxy of this mode surely makes. within tells whether it surely is of a release between two.
func Jumps(mode string, within func(oldest, newest int) bool) []Jump {
	var out []Jump
	for _, j := range jumps {
		if (j.modes == "" || hasWord(j.modes, mode)) && within(j.oldest, j.newest) {
			out = append(out, j)
		}
	}
	return out
}

func hasWord(words, word string) bool {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return true
		}
	}
	return false
}
