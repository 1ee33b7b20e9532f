package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// nodePortInEphemeralRange: node ports that outgoing connections of the node may get as their own port.
var nodePortInEphemeralRange = Check{
	ID: "nodeport-in-ephemeral-range", Rests: onObjects, Severity: Warning,
	Title: "node ports that are not reserved from outgoing connections",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		uses := n.nodePorts()
		if len(uses) == 0 {
			return nil
		}
		ports, missing := n.Host.LocalPorts()
		if missing != "" {
			n.lacks(Sysctls)
			return nil
		}
		var names, numbers []string
		var evidence []report.Evidence
		for _, u := range uses {
			if !ports.Gives(uint16(u.port)) {
				continue
			}
			names = append(names, fmt.Sprintf("%d (%s of %s)", u.port, u.purpose, u.of.Key()))
			numbers = once(numbers, strconv.Itoa(u.port))
			if len(evidence) < 3 {
				evidence = append(evidence, serviceEvidence(u.of))
			}
		}
		if len(names) == 0 {
			return nil
		}
		return []report.Finding{{
			Subject:  host.LocalPortRange,
			Message:  fmt.Sprintf("outgoing connections of this node get ports %d to %d, and %s in it, not reserved", ports.Min, ports.Max, lie(names)),
			Want:     "node ports outside of " + host.LocalPortRange + ", or in " + host.LocalReservedPorts,
			Got:      several(numbers) + " inside",
			Evidence: append([]report.Evidence{HostEvidence("sysctl", ports.Range), HostEvidence("sysctl", ports.Excepted)}, evidence...),
			Causes: []string{
				host.LocalPortRange + " was widened for busy clients",
				"kube-apiserver's --service-node-port-range was moved",
			},
			Remedy: fmt.Sprintf("sysctl -w %s=%s (add what is reserved already, and the whole --service-node-port-range)", host.LocalReservedPorts, strings.Join(numbers, ",")),
		}}
	},
}

// nodePortUse is what a port of the nodes is for.
type nodePortUse struct {
	port    int
	purpose string
	of      *intent.ServicePort
}

// nodePorts are the ports of the nodes that Services take, each with its first use in a Service.
func (n *Node) nodePorts() []nodePortUse {
	var out []nodePortUse
	done := make(map[string]bool)
	take := func(u nodePortUse) {
		key := fmt.Sprintf("%d %s %s/%s", u.port, u.purpose, u.of.Namespace, u.of.Name)
		if u.port != 0 && !done[key] {
			done[key] = true
			out = append(out, u)
		}
	}
	for _, sp := range n.Plan.Ports {
		take(nodePortUse{sp.NodePort, "nodePort", sp})
		take(nodePortUse{sp.HealthCheckNodePort, "healthCheckNodePort", sp})
	}
	return out
}

func lie(names []string) string {
	if len(names) == 1 {
		return names[0] + " lies"
	}
	return several(names) + " lie"
}
