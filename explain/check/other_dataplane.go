package check

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// otherDataplane: a program that is not evaluated here serves Services, or a part of them: what the rules say is not
// the whole answer.
var otherDataplane = Check{
	ID: "other-dataplane", Severity: Info,
	Title: "programs that serve Services and are not evaluated",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, o := range dataplane.Others() {
			if e, ok := n.traceOf(&o); ok {
				out = append(out, report.Finding{
					Subject:  o.Name,
					Message:  fmt.Sprintf("%s serves %s; this is not evaluated, so that a frontend may work although no rule is found for it, and the other way round", o.Name, o.Serves),
					Want:     "evaluated: iptables rules of kube-proxy",
					Got:      "unsupported: " + o.Name,
					Evidence: []report.Evidence{e},
					Remedy:   "look at its own view of Services: " + o.Look,
				})
			}
		}
		return append(out, n.meshes()...)
	},
	Explains: []string{"missing-service-rule"},
}

// traceOf is what gives a program away: a chain with rules, or an interface.
func (n *Node) traceOf(o *dataplane.Other) (report.Evidence, bool) {
	for _, rs := range n.Rulesets {
		if c := o.Chain(rs); c != nil {
			return ChainEvidence(rs, c), true
		}
	}
	for i := range n.Host.Links {
		if l := &n.Host.Links[i]; o.OnLink(l.Name) {
			return HostEvidence("ip link", l.Evidence), true
		}
	}
	for i := range n.Host.Addrs {
		if a := &n.Host.Addrs[i]; o.OnLink(a.Link) {
			return HostEvidence("ip addr", a.Evidence), true
		}
	}
	return report.Evidence{}, false
}

// meshes are the service meshes with sidecars in pods of this node.
func (n *Node) meshes() []report.Finding {
	type sidecars struct {
		mesh string
		pods []string
		at   report.Evidence
	}
	var found []*sidecars
	for _, p := range n.Objects.Pods {
		mesh := meshOf(p.Pod)
		if mesh == "" || n.Name != "" && p.Spec.NodeName != n.Name {
			continue
		}
		name := p.Namespace + "/" + p.Name
		i := slices.IndexFunc(found, func(s *sidecars) bool { return s.mesh == mesh })
		if i < 0 {
			i = len(found)
			found = append(found, &sidecars{mesh: mesh, at: ObjectEvidence(p.Evidence, "Pod "+name)})
		}
		found[i].pods = append(found[i].pods, name)
	}
	var out []report.Finding
	for _, s := range found {
		out = append(out, report.Finding{
			Subject:  s.mesh,
			Message:  fmt.Sprintf("%s on this node %s a sidecar of %s, which chooses backends by itself before a packet leaves the pod: %s", plural(len(s.pods), "pod"), has(len(s.pods)), s.mesh, list(s.pods, 3)),
			Want:     "evaluated: the node's own rules",
			Got:      "unsupported: the proxy in the pod",
			Evidence: []report.Evidence{s.at},
			Remedy:   "for connections of these pods look at the sidecar's own view (istioctl proxy-config, linkerd diagnostics)",
		})
	}
	return out
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func meshOf(p *corev1.Pod) string {
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			if mesh := dataplane.Mesh(containers[i].Name); mesh != "" {
				return mesh
			}
		}
	}
	return ""
}
