package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// serviceCIDROverlapsPodCIDR: cluster IPs lie where pods are. A pod takes such an address for a neighbour's and never
// sends to it by way of the node.
var serviceCIDROverlapsPodCIDR = Check{
	ID: "service-cidr-overlaps-pod-cidr", Rests: onObjects, Severity: Critical,
	Title:    "pod ranges that hold service addresses",
	Explains: []string{"service-ip-on-interface"},
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) || len(n.Plan.Ports) == 0 {
			return nil
		}
		pods := n.podRanges()
		if len(pods) == 0 {
			n.Needs(Nodes) // without Nodes nothing tells where pods are
			return nil
		}
		hit := make(map[netip.Prefix]bool)
		var clashes []string
		var evidence []report.Evidence
		for _, r := range n.serviceRanges() {
			for _, pr := range pods {
				if r.Overlaps(pr.Prefix) {
					hit[pr.Prefix] = true
					clashes = once(clashes, "the service range "+r.String())
					evidence = once(evidence, r.evidence)
				}
			}
		}
		services, holders := n.clusterIPsIn(pods)
		for _, p := range holders {
			hit[p] = true
		}
		if len(hit) == 0 {
			return nil
		}
		if len(services) > 0 {
			names := make([]string, len(services))
			for i, sp := range services {
				names[i] = fmt.Sprintf("%s (%s/%s)", sp.Frontends[0].Addr, sp.Namespace, sp.Name)
			}
			clashes = append(clashes, "the cluster IPs "+several(names))
			evidence = append(evidence, serviceEvidence(services[0]))
		}
		var ranges []string
		var where []report.Evidence
		for _, pr := range pods {
			if hit[pr.Prefix] {
				ranges = append(ranges, fmt.Sprintf("%s (%s)", pr.Prefix, pr.of))
				where = append(where, pr.evidence)
			}
		}
		return []report.Finding{{
			Subject:  ranges[0],
			Message:  fmt.Sprintf("the pod range %s overlaps %s: pods take these addresses for neighbours and do not send to them through the node", several(ranges), inWords(clashes)),
			Want:     "ranges of pods and of Services that have nothing in common",
			Got:      several(ranges),
			Evidence: append(where[:min(len(where), 3)], evidence...),
			Causes:   []string{"the network plugin was given the range that kube-apiserver has as --service-cluster-ip-range (10.96.0.0/12 with kubeadm)"},
			Remedy:   "re-create the cluster's pod network with a range of its own; the range of Services can only be extended, not moved, once Services exist",
		}}
	},
}

// addrRange is a range of the cluster with where it is known from.
type addrRange struct {
	netip.Prefix
	of       string
	evidence report.Evidence
}

// podRanges are the ranges of the nodes' pods and of the whole cluster's, as objects and configuration name them. What
// kube-proxy is given as cluster CIDR is not among them: it is at times set to a range that is wider than the pods'.
func (n *Node) podRanges() []addrRange {
	var out []addrRange
	for _, node := range n.Objects.Nodes {
		texts := node.Spec.PodCIDRs
		if len(texts) == 0 {
			texts = []string{node.Spec.PodCIDR}
		}
		for _, text := range texts {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, addrRange{p.Masked(), "podCIDR of node " + node.Name, ObjectEvidence(node.Evidence, "Node "+node.Name)})
			}
		}
	}
	return append(out, n.rangesOf("podCIDR", "pod range of the cluster")...)
}

// serviceRanges are the ranges from which cluster IPs are taken, as far as they are known.
func (n *Node) serviceRanges() []addrRange { return n.rangesOf("serviceCIDR", "service range") }

// rangesOf are the ranges that a trait of the proxy states without any reservation.
func (n *Node) rangesOf(trait, of string) []addrRange {
	var out []addrRange
	for _, f := range n.Proxy.Facts {
		if f.Name != trait || f.Note != "" {
			continue
		}
		if p, err := netip.ParsePrefix(f.Value); err == nil {
			out = append(out, addrRange{p.Masked(), of, report.Evidence{Source: "configuration", File: f.File, Line: f.Line, Text: f.Text}})
		}
	}
	return out
}

// clusterIPsIn finds the Services whose cluster IP lies in one of the ranges, the first port of each, and the ranges
// that hold one. It looks up an address once for each length that ranges have, however many ranges there are.
func (n *Node) clusterIPsIn(ranges []addrRange) (services []*intent.ServicePort, holders []netip.Prefix) {
	known := make(map[netip.Prefix]bool, len(ranges))
	var lengths []int
	for _, r := range ranges {
		known[r.Prefix] = true
		lengths = once(lengths, r.Bits())
	}
	var last netip.Addr
	for _, sp := range n.Plan.Ports {
		a := sp.Frontends[0].Addr // the cluster IP comes first
		if a == last {
			continue
		}
		last = a
		inside := false
		for _, bits := range lengths {
			if p, err := a.Prefix(bits); err == nil && known[p] {
				inside = true
				holders = once(holders, p)
			}
		}
		if inside {
			services = append(services, sp)
		}
	}
	return services, holders
}

// inWords joins a list of two.
func inWords(list []string) string {
	if len(list) == 2 {
		return list[0] + " and " + list[1]
	}
	return several(list)
}
