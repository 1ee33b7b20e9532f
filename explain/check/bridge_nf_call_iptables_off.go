package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// bridgeNFCallIPTablesOff: pods hang on a Linux bridge that does not hand what it switches to netfilter. A request to a
// Service is routed and translated; the answer of a pod on the same bridge is switched past connection tracking, and the
// client hears from an address that it did not dial.
var bridgeNFCallIPTablesOff = Check{
	ID: "bridge-nf-call-iptables-off", Rests: onObjects, Severity: Error,
	Title: "bridges of pods that switch answers past netfilter",
	Node: func(n *Node) []report.Finding {
		if !n.translatesByRules() {
			return nil
		}
		bridges := n.podBridges()
		if len(bridges) == 0 {
			return nil
		}
		var out []report.Finding
		for _, family := range bothFamilies(n.Plan.Ports) {
			for _, b := range bridges {
				switch calls := n.Host.CallsRules(b.link, int(family)); calls.Is {
				case host.Unknown:
					n.lacks(Sysctls)
				case host.No:
					out = append(out, b.pastRules(family, calls.Because, HostEvidence("sysctl", calls.Evidence)))
				}
			}
		}
		return out
	},
}

func (b *podBridge) pastRules(family netfilter.Family, got string, evidence report.Evidence) report.Finding {
	name := host.BridgeCallsSysctl(int(family))
	return report.Finding{
		Subject: fmt.Sprintf("%s %s", b.name, familyName(family)),
		Message: fmt.Sprintf("pods hang on bridge %s, and %s: answers between two pods of this node are switched without being translated back, so a Service fails whenever it chooses an endpoint on the client's node", b.name, got),
		Want:    name + " = 1", Got: got,
		Evidence: []report.Evidence{evidence, HostEvidence("bridge", bridgeEvidence(b.ports[0]))},
		Causes: []string{
			"br_netfilter was not loaded at boot, or was loaded after the sysctl was to be set",
			"Docker, libvirt or a hardening tool set it to 0",
		},
		Remedy: fmt.Sprintf("modprobe br_netfilter && sysctl -w %s=1; to keep it, name br_netfilter in /etc/modules-load.d and the sysctl in /etc/sysctl.d", name),
	}
}
