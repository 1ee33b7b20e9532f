package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// hostPortRuleMissing: a running pod of this node asks for a host port, and no rule that packets reach translates to
// it. The rules of host ports are written when a pod starts and never again.
var hostPortRuleMissing = Check{
	ID: "hostport-rule-missing", Severity: Error,
	Title: "host ports of running pods that no rule forwards",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Pods) || n.hostPortsElsewhere() {
			return nil
		}
		forwarded := make(map[netfilter.Family]*hostPortRules)
		var out []report.Finding
		for _, pod := range n.Objects.Pods {
			ports := hostPorts(pod.Pod)
			if len(ports) == 0 || !runs(pod.Pod) {
				continue
			}
			if n.Name == "" {
				n.lacks(Nodes) // nothing says whose evidence this is
				return nil
			}
			addr, err := netip.ParseAddr(pod.Status.PodIP)
			if pod.Spec.NodeName != n.Name || err != nil {
				continue
			}
			family := netfilter.FamilyOf(addr)
			if !n.Needs(RulesOf(family)) {
				continue
			}
			if forwarded[family] == nil {
				forwarded[family] = n.hostPortRules(family)
			}
			if f, ok := forwarded[family].lacking(pod, addr, ports); ok {
				out = append(out, f)
			}
		}
		return out
	},
}

// runs tells whether a pod is there to stay and has a network of its own.
func runs(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !pod.Spec.HostNetwork
}

// hostPorts are the host ports that the containers of a pod ask for, those of sidecars (init containers that go on
// running) too.
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	var out []corev1.ContainerPort
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// hostPortsElsewhere tells whether something else than iptables rules makes host ports on this node: BPF programs, or
// an nftables table of the portmap plugin or the container runtime.
func (n *Node) hostPortsElsewhere() bool {
	if !slices.Contains([]string{"", "iptables", "ipvs", "nftables", "userspace"}, n.Proxy.Mode) {
		return true
	}
	for _, t := range n.ForeignTables {
		if strings.Contains(t, "hostport") {
			return true
		}
	}
	for i := range n.Host.Links {
		if strings.HasPrefix(n.Host.Links[i].Name, "cilium_") {
			return true
		}
	}
	for _, rs := range n.Rulesets {
		for _, t := range rs.Tables {
			if slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool { return strings.HasPrefix(c.Name, "CILIUM_") }) {
				return true
			}
		}
	}
	return false
}

// hostPortRules is where the rules of one family translate to.
type hostPortRules struct {
	to map[forwardedTo]bool
	// unreadable: a reachable rule of a host port shows no destination.
	unreadable bool
	// evidence is where packets enter the nat table.
	evidence []report.Evidence
}

type forwardedTo struct {
	netip.AddrPort
	protocol string
}

// hostPortRules collects the destinations of all DNAT rules that packets from outside can reach.
func (n *Node) hostPortRules(family netfilter.Family) *hostPortRules {
	out := &hostPortRules{to: make(map[forwardedTo]bool)}
	for _, rs := range n.Rulesets {
		t := rs.Table("nat")
		if rs.Family != family || t == nil {
			continue
		}
		if c := t.Chain(netfilter.Prerouting.String()); c != nil {
			out.evidence = append(out.evidence, report.Evidence{Source: iptablesSource(rs), File: rs.File, Line: c.Line, Text: "nat " + c.Name})
		}
		for _, c := range reachable(t, netfilter.Prerouting.String()) {
			for i := range c.Rules {
				out.take(c, &c.Rules[i])
			}
		}
	}
	return out
}

func (h *hostPortRules) take(c *netfilter.Chain, r *netfilter.Rule) {
	switch t := r.Target.(type) {
	case *netfilter.Translate:
		if t.Kind != netfilter.DNAT {
			return
		}
		for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
			if r.Proto.Test(dataplane.ProtocolNumber(protocol)) {
				h.to[forwardedTo{netip.AddrPortFrom(t.Min, t.MinPort), protocol}] = true
			}
		}
	case netfilter.Unreadable:
		h.unreadable = h.unreadable || isHostPort(c.Name)
	}
}

// reachable are the chains that packets can come to from a built-in chain.
func reachable(t *netfilter.Table, from string) []*netfilter.Chain {
	var out []*netfilter.Chain
	seen := map[string]bool{from: true}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		c := t.Chain(next[0])
		if c == nil {
			continue
		}
		out = append(out, c)
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(netfilter.Jump); ok && !seen[j.Chain] {
				seen[j.Chain] = true
				next = append(next, j.Chain)
			}
		}
	}
	return out
}

// lacking is the finding of a pod with host ports that nothing forwards. A container port that a rule forwards to from
// whatever port counts as forwarded.
func (h *hostPortRules) lacking(pod objects.Pod, addr netip.Addr, ports []corev1.ContainerPort) (report.Finding, bool) {
	var missing []string
	for _, p := range ports {
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = "TCP"
		}
		if !h.to[forwardedTo{netip.AddrPortFrom(addr, uint16(p.ContainerPort)), protocol}] {
			missing = append(missing, fmt.Sprintf("%d/%s", p.HostPort, protocol))
		}
	}
	if len(missing) == 0 || h.unreadable {
		return report.Finding{}, false
	}
	name := pod.Namespace + "/" + pod.Name
	return report.Finding{
		Object:   report.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		Subject:  name,
		Message:  fmt.Sprintf("pod %s asks for hostPort %s on this node, and no rule that packets reach translates it to %s", name, several(missing), addr),
		Want:     fmt.Sprintf("DNAT to %s (chain CNI-HOSTPORT-DNAT of the portmap plugin, or the container runtime's own)", addr),
		Got:      "no such rule in table nat",
		Evidence: append([]report.Evidence{ObjectEvidence(pod.Evidence, "Pod "+name)}, h.evidence...),
		Causes: []string{
			"a firewall reload flushed the nat table: the rules of a host port are written once, when the pod starts",
			"the network plugin's configuration has no portmap plugin with the portMappings capability",
		},
		Remedy: fmt.Sprintf("kubectl -n %s delete pod %s (its replacement gets the rules); with firewalld set FlushAllOnReload=no", pod.Namespace, pod.Name),
	}, true
}
