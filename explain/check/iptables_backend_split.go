package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// iptablesBackendSplit: kube-proxy writes to one backend of iptables and kubelet to the other. Up to 1.26 kube-proxy's
// rules need chains that kubelet makes, and cannot be loaded where these are not.
var iptablesBackendSplit = Check{
	ID: "iptables-backend-split", Rests: onRules, Severity: Critical,
	Title: "kube-proxy and kubelet that write to different backends of iptables",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
			legacy, nft := n.writersIn(family, netfilter.Legacy), n.writersIn(family, netfilter.NFT)
			for _, s := range []struct{ proxy, kubelet *writers }{{&legacy, &nft}, {&nft, &legacy}} {
				// Where both write to both, one copy is old, which is another finding.
				if s.proxy.proxy != nil && s.proxy.kubelet == nil && s.kubelet.kubelet != nil && s.kubelet.proxy == nil {
					out = append(out, n.split(s.proxy, s.kubelet))
				}
			}
		}
		return out
	},
	Explains: []string{"missing-service-rule", "proxy-sync-failed"},
}

// writers are the chains that only kube-proxy and only kubelet make, the first of each in one backend.
type writers struct {
	rules          *netfilter.Ruleset
	proxy, kubelet *netfilter.Chain
	// needed is the chain of kubelet that kube-proxy's rules jump to, up to 1.26.
	needed *netfilter.Chain
}

func (n *Node) writersIn(family netfilter.Family, backend netfilter.Backend) writers {
	var w writers
	for _, rs := range n.Rulesets {
		if rs.Family != family || rs.Backend != backend {
			continue
		}
		w.rules = rs
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				switch by := dataplane.WrittenBy(t.Name, c.Name); {
				case c.Name == "KUBE-MARK-DROP" && len(c.Rules) > 0:
					w.needed = c
				case by == dataplane.KubeProxy && w.proxy == nil:
					w.proxy = c
				case by == dataplane.Kubelet && w.kubelet == nil:
					w.kubelet = c
				}
			}
		}
	}
	return w
}

func (n *Node) split(proxy, kubelet *writers) report.Finding {
	p, k := tool(proxy.rules), tool(kubelet.rules)
	shown := kubelet.kubelet
	f := report.Finding{
		Subject: "kube-proxy in " + p + ", kubelet in " + k,
		Message: fmt.Sprintf("kube-proxy writes to %s (%s), kubelet to %s (%s)", p, proxy.proxy.Name, k, kubelet.kubelet.Name),
		Want:    "one backend for all that write iptables rules",
		Got:     "kube-proxy's chains in " + p + ", kubelet's in " + k,
		Causes: []string{
			"the image of kube-proxy chooses the backend that has more rules when it starts, and another program was there first (NodeLocal DNS, a network plugin)",
			"an image brings an iptables of its own that is not that of the host",
		},
		Remedy: fmt.Sprintf("make every program use %s (on the host: update-alternatives --config iptables), remove the rules of %s, then restart kube-proxy", k, p),
	}
	switch {
	case kubelet.needed != nil:
		shown = kubelet.needed
		f.Message += fmt.Sprintf(": rules that jump to %s, as those of kube-proxy up to 1.26 do, cannot be loaded into %s, which has no such chain", shown.Name, p)
	default:
		f.Severity = Warning
		f.Message += "; kube-proxy needs nothing of kubelet's in this version, but other programs look for its rules in the same place as kubelet"
	}
	f.Evidence = []report.Evidence{ChainEvidence(proxy.rules, proxy.proxy), ChainEvidence(kubelet.rules, shown)}
	return f
}
