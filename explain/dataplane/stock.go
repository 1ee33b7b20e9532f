package dataplane

import (
	"cmp"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// stock is a chain that kube-proxy or kubelet makes.
type stock struct {
	table string
	// name ends in "-" where it is the beginning of the names of many.
	name string
	// modes of kube-proxy that have the chain, of those that write iptables rules; empty: any, or kubelet has it too.
	modes string
}

// stocks are all of them, of every version. An empty table stands for any.
var stocks = []stock{
	{"nat", "KUBE-SERVICES", "iptables ipvs"},
	{"filter", "KUBE-SERVICES", "iptables"},
	{"filter", "KUBE-EXTERNAL-SERVICES", "iptables"},
	{"nat", "KUBE-NODEPORTS", "iptables"},
	{"filter", "KUBE-NODEPORTS", "iptables"},
	{"filter", "KUBE-FORWARD", "iptables ipvs"},
	{"filter", "KUBE-PROXY-FIREWALL", "iptables ipvs"},
	{"nat", SVCPrefix, "iptables"},
	{"nat", SVLPrefix, "iptables"},
	{"nat", EXTPrefix, "iptables"},
	{"nat", FWPrefix, "iptables"},
	{"nat", XLBPrefix, "iptables"},
	{"nat", SEPPrefix, "iptables"},
	{"nat", "KUBE-NODE-PORT", "ipvs"},
	{"filter", "KUBE-NODE-PORT", "ipvs"},
	{"nat", "KUBE-LOAD-BALANCER", "ipvs"},
	{"filter", "KUBE-IPVS-FILTER", "ipvs"},
	{"filter", "KUBE-IPVS-OUT-FILTER", "ipvs"},
	{"filter", "KUBE-SOURCE-RANGES-FIREWALL", "ipvs"},
	{"nat", "KUBE-FIREWALL", "ipvs"}, // up to 1.24; the chain of this name in filter is kubelet's
	{"nat", "KUBE-PORTALS-CONTAINER", "userspace"},
	{"nat", "KUBE-PORTALS-HOST", "userspace"},
	{"nat", "KUBE-NODEPORT-CONTAINER", "userspace"},
	{"nat", "KUBE-NODEPORT-HOST", "userspace"},
	{"filter", "KUBE-NODEPORT-NON-LOCAL", "userspace"},
	{"nat", "KUBE-POSTROUTING", ""},
	{"nat", "KUBE-MARK-MASQ", ""},
	{"nat", "KUBE-MARK-DROP", ""},
	{"filter", "KUBE-FIREWALL", ""},
	{"", "KUBE-PROXY-CANARY", ""},
	{"", "KUBE-KUBELET-CANARY", ""},
	{"", "KUBE-IPTABLES-HINT", ""},
}

func stockOf(table, chain string) (stock, bool) {
	if !strings.HasPrefix(chain, "KUBE-") {
		return stock{}, false
	}
	for _, s := range stocks {
		if s.table != "" && s.table != table {
			continue
		}
		if chain == s.name || strings.HasSuffix(s.name, "-") && strings.HasPrefix(chain, s.name) {
			return s, true
		}
	}
	return stock{}, false
}

// Stock tells whether a chain is one that kube-proxy or kubelet makes. Other programs use names that begin with KUBE-
// as well (kube-router does).
func Stock(table, chain string) bool {
	_, ok := stockOf(table, chain)
	return ok
}

// OtherMode names the modes of kube-proxy that a chain is of, where mode is none of them; empty for a chain that mode
// has too, and for one that is not kube-proxy's or may be kubelet's.
func OtherMode(table, chain, mode string) string {
	s, ok := stockOf(table, chain)
	if !ok || s.modes == "" {
		return ""
	}
	if hasWord(s.modes, mode) {
		return ""
	}
	return strings.ReplaceAll(s.modes, " ", " or ")
}

// PerService tells whether a chain belongs to one service port or to one of its endpoints.
func PerService(chain string) bool {
	return perServiceID(chain) != "" || strings.HasPrefix(chain, SEPPrefix)
}

// refusing are the chains of the filter table in which kube-proxy refuses connections to Services (iptables mode).
var refusing = []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}

// Refusing are the rules of a rule set by which kube-proxy refuses connections to Services, of chains that packets get
// to.
func Refusing(rs *netfilter.Ruleset) []*netfilter.Rule {
	t := rs.Table("filter")
	if t == nil {
		return nil
	}
	var out []*netfilter.Rule
	var reached map[string]bool
	for _, name := range refusing {
		c := t.Chain(name)
		if c == nil || len(c.Rules) == 0 {
			continue
		}
		if reached == nil {
			reached = t.Reached()
		}
		for i := range c.Rules {
			if reached[name] {
				out = append(out, &c.Rules[i])
			}
		}
	}
	return out
}

// Serving is the first rule by which a rule set serves Services the way kube-proxy does, and whether packets get to it;
// nil where it has none: canaries, hints and the chains that kubelet keeps serve nothing.
func Serving(rs *netfilter.Ruleset) (first *netfilter.Rule, active bool) {
	for _, place := range []struct {
		table string
		lists func(chain string) bool
	}{
		{"nat", func(c string) bool { return c == "KUBE-SERVICES" || strings.HasPrefix(c, "KUBE-PORTALS-") }},
		{"nat", PerService},
		{"filter", func(c string) bool { return c == "KUBE-SERVICES" || c == "KUBE-EXTERNAL-SERVICES" }},
	} {
		t := rs.Table(place.table)
		if t == nil {
			continue
		}
		var reached map[string]bool
		for _, c := range t.Chains {
			if !place.lists(c.Name) {
				continue
			}
			r := servingRule(c)
			if r == nil {
				continue
			}
			if reached == nil {
				reached = t.Reached()
			}
			first = cmp.Or(first, r)
			if reached[c.Name] {
				return r, true
			}
		}
	}
	return first, false
}

// servingRule is the first rule of a chain that is about a Service. The rule for all node ports, which stands at the
// end of KUBE-SERVICES, is there without any Service.
func servingRule(c *netfilter.Chain) *netfilter.Rule {
	for i := range c.Rules {
		if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && j.Chain == "KUBE-NODEPORTS" {
			continue
		}
		return &c.Rules[i]
	}
	return nil
}

// Writer is a component of Kubernetes that writes iptables rules.
type Writer string

// The writers.
const (
	KubeProxy Writer = "kube-proxy"
	Kubelet   Writer = "kubelet"
)

// WrittenBy tells who alone makes a chain of this name; empty where more than one may have.
func WrittenBy(table, chain string) Writer {
	switch chain {
	case "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT":
		return Kubelet
	case "KUBE-MARK-DROP": // kube-proxy up to 1.24 made sure of an empty one
		return ""
	case "KUBE-PROXY-CANARY":
		return KubeProxy
	}
	if s, ok := stockOf(table, chain); ok && s.modes != "" {
		return KubeProxy
	}
	return ""
}
