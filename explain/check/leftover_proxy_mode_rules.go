package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// leftoverProxyModeRules: iptables chains of a mode of kube-proxy that does not run any more. Where packets get to them
// they still decide, with what was true when the mode was changed.
var leftoverProxyModeRules = Check{
	ID: "leftover-proxy-mode-rules", Rests: onRules, Severity: Critical,
	Title: "rules of a former proxy mode",
	Node: func(n *Node) []report.Finding {
		switch n.Proxy.Mode {
		case "iptables", "ipvs", "nftables", "userspace":
		default:
			return nil
		}
		var out []report.Finding
		for _, rs := range n.Rulesets {
			if l := n.leftOf(rs); len(l.chains) > 0 {
				out = append(out, l.finding(rs, n.Proxy.Mode))
			}
		}
		out = append(out, n.leftNFT()...)
		if f, ok := n.leftDevice(); ok {
			out = append(out, f)
		}
		return out
	},
	Explains: []string{"reject-rule-with-ready-endpoints", "stale-endpoint-rule"},
}

// left is what a rule set holds of another mode.
type left struct {
	// mode names the modes that have such chains.
	mode   string
	chains []string
	// deciding are rules that packets get to and that end them, or their first ones where there are none.
	deciding, inert []report.Evidence
	// services are named by the deciding rules.
	services []string
	places   []string
}

func (n *Node) leftOf(rs *netfilter.Ruleset) left {
	var l left
	for _, t := range rs.Tables {
		var reached map[string]bool
		for _, c := range t.Chains {
			mode := dataplane.OtherMode(t.Name, c.Name, n.Proxy.Mode)
			if mode == "" || len(c.Rules) == 0 {
				continue
			}
			if reached == nil {
				reached = t.Reached()
			}
			l.mode = mode
			l.chains = append(l.chains, t.Name+"/"+c.Name)
			l.add(rs, t, c, reached[c.Name])
		}
	}
	return l
}

// add takes in the rules of one chain.
func (l *left) add(rs *netfilter.Ruleset, t *netfilter.Table, c *netfilter.Chain, reached bool) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if !reached || !stops(r) {
			if len(l.inert) < 3 {
				l.inert = append(l.inert, RuleEvidence(rs, r))
			}
			continue
		}
		l.places = once(l.places, t.Name+"/"+c.Name)
		if len(l.deciding) < 3 {
			l.deciding = append(l.deciding, RuleEvidence(rs, r))
		}
		if key, _, ok := dataplane.ServicePortOf(r.Comment); ok {
			l.services = once(l.services, key)
		}
	}
}

// leftDevice is about the addresses of Services on kube-ipvs0 where kube-proxy does not run in IPVS mode: packets to them
// that no rule translates end on the node.
func (n *Node) leftDevice() (report.Finding, bool) {
	if n.Proxy.Mode == ipvsMode || !n.Has(Addrs) {
		return report.Finding{}, false
	}
	var at []report.Evidence
	addrs, servers := 0, 0
	on := make(map[netip.Addr]bool)
	for i := range n.Host.Addrs {
		a := &n.Host.Addrs[i]
		if a.Link != KubeIPVS0 || a.Prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		addrs++
		on[a.Prefix.Addr()] = true
		if len(at) < 3 {
			at = append(at, HostEvidence("ip addr", a.Evidence))
		}
	}
	if addrs == 0 {
		return report.Finding{}, false
	}
	if n.IPVS != nil {
		for i := range n.IPVS.Services {
			if on[n.IPVS.Services[i].Addr] {
				servers++
			}
		}
	}
	f := report.Finding{
		Severity: Warning, Subject: "addresses of ipvs mode (" + KubeIPVS0 + ")",
		Message: fmt.Sprintf("kube-proxy runs in %s mode, and %s still has %d addresses of IPVS mode: packets to them that no rule translates end on this node", n.Proxy.Mode, KubeIPVS0, addrs),
		Want:    "no " + KubeIPVS0, Got: fmt.Sprintf("%d addresses on %s", addrs, KubeIPVS0), Evidence: at,
		Causes: []string{"the proxy mode was changed: between iptables and IPVS kube-proxy removes nothing of the other mode when it starts"},
		Remedy: "run kube-proxy --cleanup once on this node while kube-proxy is stopped, then start it; or by hand: ip link del " + KubeIPVS0,
	}
	if servers > 0 {
		f.Message += fmt.Sprintf("; it has %s for them", plural(servers, "virtual server"))
		f.Got += fmt.Sprintf(", %s", plural(servers, "virtual server"))
	}
	return f, true
}

// stops tells whether a rule ends or translates packets.
func stops(r *netfilter.Rule) bool {
	switch r.Target.(type) {
	case netfilter.Drop, netfilter.Reject, *netfilter.Translate:
		return true
	}
	return false
}

func (l *left) finding(rs *netfilter.Ruleset, mode string) report.Finding {
	f := report.Finding{
		Subject: fmt.Sprintf("rules of %s mode (%s)", l.mode, tool(rs)),
		Want:    fmt.Sprintf("rules of %s mode only", mode),
		Got:     fmt.Sprintf("%s of %s mode with rules: %s", plural(len(l.chains), "chain"), l.mode, list(l.chains, 3)),
		Causes:  []string{"the proxy mode was changed: between iptables and IPVS kube-proxy removes nothing of the other mode when it starts"},
		Remedy:  "run kube-proxy --cleanup once on this node while kube-proxy is stopped, then start it; or reboot the node",
	}
	if len(l.deciding) == 0 {
		f.Severity = Warning
		f.Evidence = l.inert
		f.Message = fmt.Sprintf("kube-proxy runs in %s mode, and %s hold rules of %s mode in %s; they do nothing", mode, list(l.chains, 3), l.mode, tool(rs))
		return f
	}
	f.Evidence = l.deciding
	f.Message = fmt.Sprintf("kube-proxy runs in %s mode, and rules of %s mode still stop or translate packets in %s of %s", mode, l.mode, list(l.places, 3), tool(rs))
	if len(l.services) > 0 {
		f.Message += ": those for " + list(l.services, 3)
	}
	return f
}
