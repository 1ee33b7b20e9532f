package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// ipForwardOff: the node does not forward packets: nothing gets from a pod or from outside to an endpoint by way of it.
var ipForwardOff = Check{
	ID: "ip-forward-off", Severity: Critical,
	Title: "nodes that do not forward packets",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, family := range bothFamilies(n.Plan.Ports) {
			name := n.forwardingSwitch(family)
			value, evidence, ok := n.Sysctl(name)
			if !ok || value != "0" || family == netfilter.IPv6 && n.forcesForwarding() {
				continue
			}
			out = append(out, report.Finding{
				Subject: name,
				Message: fmt.Sprintf("%s is 0: the node forwards no %s packets, so pods and clients outside reach no endpoint through it", name, familyName(family)),
				Want:    name + " = 1", Got: name + " = 0",
				Evidence: []report.Evidence{evidence},
				Causes: []string{
					"a hardening tool, or sysctl --system with a file that sets it to 0, after the network plugin had set it",
					"nothing ever set it: kube-proxy leaves it to the operator and the network plugin",
				},
				Remedy: fmt.Sprintf("sysctl -w %s=1, and write it to a file in /etc/sysctl.d that sorts last", name),
			})
		}
		return out
	},
}

// forwardingSwitch is the sysctl that makes a node forward. That of IPv4 has two names.
func (n *Node) forwardingSwitch(family netfilter.Family) string {
	if family == netfilter.IPv6 {
		return "net.ipv6.conf.all.forwarding"
	}
	const name, alias = "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"
	if _, _, ok := n.Host.Sysctl(name); ok {
		return name
	}
	if _, _, ok := n.Host.Sysctl(alias); ok {
		return alias
	}
	return name
}

// forcesForwarding tells whether some interface forwards IPv6 whatever the switch of all says (Linux 6.17).
func (n *Node) forcesForwarding() bool {
	for name, value := range n.Host.Sysctls {
		if strings.HasPrefix(name, "net.ipv6.conf.") && strings.HasSuffix(name, ".force_forwarding") && value != "0" {
			return true
		}
	}
	return false
}
