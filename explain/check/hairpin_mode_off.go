package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// hairpinModeOff: a bridge does not send a frame out of the port that it came in on, which is what has to happen when a
// Service sends a pod to itself. The bridge being promiscuous does as well (kubelet's promiscuous-bridge, promiscMode).
var hairpinModeOff = Check{
	ID: "hairpin-mode-off", Rests: onObjects, Severity: Warning,
	Title: "bridges on which a pod does not reach itself through its Service",
	Node: func(n *Node) []report.Finding {
		if !n.translatesByRules() {
			return nil
		}
		bridges := n.podBridges()
		if len(bridges) == 0 {
			return nil
		}
		local := n.locallyBacked()
		if len(local) == 0 {
			return nil
		}
		var out []report.Finding
		for _, b := range bridges {
			if off := n.noHairpin(b); len(off) > 0 {
				out = append(out, b.withoutHairpin(off, local))
			}
		}
		return out
	},
}

// locallyBacked are the Services that have an endpoint among the pods of this node.
func (n *Node) locallyBacked() []string {
	var out []string
	for _, sp := range n.Plan.Ports {
		for _, e := range sp.Endpoints {
			if !e.Local {
				continue
			}
			if _, own := n.nodeOf(e.Addr); !own {
				out = once(out, sp.Namespace+"/"+sp.Name)
				break
			}
		}
	}
	return out
}

// noHairpin are the ports of a bridge that do not send frames back. What is not known makes the running check unknown.
func (n *Node) noHairpin(b *podBridge) []*host.Link {
	if b.link != nil && b.link.HasFlag("PROMISC") {
		return nil
	}
	var off []*host.Link
	known := false
	for _, p := range b.ports {
		known = known || p.Hairpin != host.Unknown
		if p.Hairpin == host.No {
			off = append(off, p)
		}
	}
	switch {
	case !known:
		n.lacks(Bridges)
	case len(off) > 0 && (b.link == nil || len(b.link.Flags) == 0):
		n.lacks(Links) // the bridge may be promiscuous
		return nil
	}
	return off
}

func (b *podBridge) withoutHairpin(off []*host.Link, local []string) report.Finding {
	f := report.Finding{
		Subject: b.name,
		Message: fmt.Sprintf("hairpin mode is off on %s of bridge %s (%s) and the bridge is not promiscuous: a pod that a Service sends to itself gets no answer (Services with pods here: %s)", plural(len(off), "port"), b.name, several(names(off)), several(local)),
		Want:    "hairpin on for each port, or PROMISC on " + b.name, Got: fmt.Sprintf("hairpin off on %d of %d ports, no PROMISC", len(off), len(b.ports)),
		Evidence: []report.Evidence{HostEvidence("bridge", bridgeEvidence(off[0])), HostEvidence("ip link", b.link.Evidence)},
		Causes:   []string{"the bridge plugin's configuration has neither hairpinMode nor promiscMode", "a kubelet with --hairpin-mode=none (before 1.24)"},
		Remedy:   fmt.Sprintf("bridge link set dev %s hairpin on, for each of the ports; to keep it, \"hairpinMode\": true in the network plugin's configuration", off[0].Name),
	}
	return f
}
