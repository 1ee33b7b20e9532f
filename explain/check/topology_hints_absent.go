package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// topologyHintsAbsent: a Service asks for endpoints that are near, and every node uses all of them, because hints are
// missing or cannot be used here. It says which condition fails.
var topologyHintsAbsent = Check{
	ID: "topology-hints-absent", Rests: onObjects, Severity: Warning,
	Title: "Services whose wish for near endpoints has no effect",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			wish := wishOf(s)
			if wish.text == "" {
				continue
			}
			for i, p := range s.ports {
				// The hints of a slice are those of all its ports.
				if i > 0 && s.ports[i-1].Family == p.Family || len(p.Cluster) == 0 {
					continue
				}
				if why := n.hintsFail(s, p, wish); why != nil {
					out = append(out, n.hintsUnused(s, p, wish, why))
				}
			}
		}
		return out
	},
}

// wish is what a Service asks for.
type wish struct {
	text string
	// annotated is topology-mode, with which the controller shares endpoints out among zones; the field
	// trafficDistribution asks for the client's own zone, or for its own node.
	annotated, sameNode bool
}

func wishOf(s *service) wish {
	for _, name := range []string{corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints} {
		if v := s.Annotations[name]; v != "" && !strings.EqualFold(v, "Disabled") {
			return wish{text: fmt.Sprintf("the annotation %s: %s", name, v), annotated: true}
		}
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d != "" {
		return wish{text: "trafficDistribution: " + *d, sameNode: *d == corev1.ServiceTrafficDistributionPreferSameNode}
	}
	return wish{}
}

// unusable is a condition that fails, with what may be behind it.
type unusable struct {
	text   string
	causes []string
	remedy string
}

// zones are those that Nodes are labelled with, and the Nodes that have no such label.
func (n *Node) zones() (zones, unlabelled []string) {
	for _, node := range n.Objects.Nodes {
		zone := node.Labels[corev1.LabelTopologyZone]
		switch {
		case zone == "":
			unlabelled = append(unlabelled, node.Name)
		case !slices.Contains(zones, zone):
			zones = append(zones, zone)
		}
	}
	return zones, unlabelled
}

// hintsFail is the condition that keeps kube-proxy here from using hints; nil where it does, or where there is nothing
// to choose from.
func (n *Node) hintsFail(s *service, p *Port, w wish) *unusable {
	zones, unlabelled := n.zones()
	if !w.sameNode && len(zones) == 1 && len(unlabelled) == 0 {
		return nil // all endpoints are in the one zone that there is
	}
	var ready, without []*intent.Endpoint
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if !e.Ready {
			continue
		}
		ready = append(ready, e)
		if w.sameNode && len(e.HintNodes) == 0 || !w.sameNode && len(e.HintZones) == 0 {
			without = append(without, e)
		}
	}
	switch {
	case len(ready) == 0:
		return nil
	case n.Proxy.Mode == "userspace" || n.Proxy.Mode == kernelspace:
		return &unusable{
			text:   fmt.Sprintf("kube-proxy in %s mode does not look at hints", n.Proxy.Mode),
			remedy: "none for this node: the mode knows no topology",
		}
	case len(without) > 0:
		return n.hintsMissing(s, w, ready, without, zones, unlabelled)
	case !w.annotated && !n.Proxy.AtLeast(1, 31):
		return &unusable{
			text:   fmt.Sprintf("kube-proxy %s looks at hints only where the annotation %s asks for them", n.Proxy.VersionText(), corev1.AnnotationTopologyMode),
			remedy: "upgrade kube-proxy to 1.31 or newer",
		}
	case w.sameNode:
		return nil
	}
	return n.hintsForeign(w, ready)
}

// hintsMissing is about endpoints without hints: a single one makes kube-proxy ignore those of all others.
func (n *Node) hintsMissing(s *service, w wish, ready, without []*intent.Endpoint, zones, unlabelled []string) *unusable {
	u := &unusable{
		text:   fmt.Sprintf("%d of %s %s no hint", len(without), plural(len(ready), "ready endpoint"), map[bool]string{true: "has", false: "have"}[len(without) == 1]),
		remedy: fmt.Sprintf("kubectl -n %s describe service %s (its events say why the controller gives no hints)", s.Namespace, s.Name),
	}
	if len(s.Spec.Selector) == 0 {
		u.causes = append(u.causes, "the EndpointSlices were written by hand, without hints")
	}
	if len(unlabelled) > 0 {
		u.causes = append(u.causes, fmt.Sprintf("%s without the label %s: %s", plural(len(unlabelled), "node"), corev1.LabelTopologyZone, list(unlabelled, podsShown)))
		u.remedy = fmt.Sprintf("label the nodes with their zone: kubectl label node %s %s=ZONE", unlabelled[0], corev1.LabelTopologyZone)
	}
	if w.annotated && len(zones) > len(ready) {
		u.causes = append(u.causes, fmt.Sprintf("there are fewer endpoints (%d) than zones (%d): the controller then gives no hints", len(ready), len(zones)))
		u.remedy = "run at least one endpoint for each zone, better three, or use trafficDistribution: PreferClose, which has no such condition"
	}
	if w.sameNode {
		u.causes = append(u.causes, "the control plane is older than 1.35 and has the feature gate PreferSameTrafficDistribution off")
	}
	if len(u.causes) == 0 && w.annotated {
		u.causes = []string{"endpoints cannot be shared out in proportion to the CPUs of the zones without overloading one of them, or a node reports no CPUs"}
	}
	if len(u.causes) == 0 {
		u.causes = []string{"the control plane is older than 1.30 and does not know trafficDistribution, or its EndpointSlice controller does not keep up"}
	}
	return u
}

// hintsForeign is about endpoints that all have hints, which this node cannot use all the same.
func (n *Node) hintsForeign(w wish, ready []*intent.Endpoint) *unusable {
	node, ok := n.Objects.Node(n.Name)
	if !ok {
		if n.Needs(Nodes) {
			n.lacks(NodeName)
		}
		return nil
	}
	zone := node.Labels[corev1.LabelTopologyZone]
	if zone == "" {
		return &unusable{
			text:   fmt.Sprintf("the endpoints have hints, but node %s has no label %s", n.Name, corev1.LabelTopologyZone),
			remedy: fmt.Sprintf("kubectl label node %s %s=ZONE", n.Name, corev1.LabelTopologyZone),
		}
	}
	hinted := slices.ContainsFunc(ready, func(e *intent.Endpoint) bool { return slices.Contains(e.HintZones, zone) })
	if hinted || !w.annotated {
		return nil // without endpoints in its zone, trafficDistribution means any
	}
	return &unusable{
		text:   fmt.Sprintf("no endpoint is hinted for zone %s, in which %s is", zone, n.Name),
		causes: []string{"the zone is new, or the EndpointSlice controller does not keep up"},
		remedy: "look at the hints: kubectl get endpointslices -o yaml, and at the log of kube-controller-manager",
	}
}

func (n *Node) hintsUnused(s *service, p *Port, w wish, u *unusable) report.Finding {
	f := report.Finding{
		Object: s.object(), Subject: s.key(),
		Message: fmt.Sprintf("%s asks for near endpoints (%s), and kube-proxy uses all of them: %s", s.key(), w.text, u.text),
		Want:    "endpoints near the client", Got: fmt.Sprintf("all %s", plural(len(p.Cluster), "endpoint")),
		Evidence: []report.Evidence{s.evidence()},
		Causes:   u.causes, Remedy: u.remedy,
	}
	for i := range p.Endpoints {
		if e := &p.Endpoints[i]; e.Ready {
			hints := "no hints"
			if len(e.HintZones)+len(e.HintNodes) > 0 {
				hints = "hints for " + list(slices.Concat(e.HintZones, e.HintNodes), 3)
			}
			f.Evidence = append(f.Evidence, report.Evidence{Source: "objects", File: e.Evidence.File, Line: e.Evidence.Line, Text: fmt.Sprintf("EndpointSlice %s/%s: %s, %s", s.Namespace, e.Slice, e, hints)})
			break
		}
	}
	return f
}
