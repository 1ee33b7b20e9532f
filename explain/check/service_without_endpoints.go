package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// serviceWithoutEndpoints: there is nothing behind a Service, or behind one of its ports or families. It says why, as
// far as pods tell.
var serviceWithoutEndpoints = Check{
	ID: "service-without-endpoints", Rests: onObjects, Severity: Warning,
	Title: "Services with nothing behind them",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			switch {
			case s.hasNoEndpoint():
				out = append(out, n.withoutEndpoints(s, nil))
			default:
				for _, empty := range s.emptyPorts() {
					out = append(out, n.withoutEndpoints(s, empty))
				}
			}
		}
		return out
	},
}

// emptyPorts are the ports without an endpoint, those of one name and protocol together.
func (s *service) emptyPorts() [][]*Port {
	var out [][]*Port
	for _, p := range s.ports {
		if !p.hasNoEndpoint() {
			continue
		}
		at := slices.IndexFunc(out, func(q []*Port) bool { return q[0].PortName == p.PortName && q[0].Protocol == p.Protocol })
		if at < 0 {
			out = append(out, []*Port{p})
		} else {
			out[at] = append(out[at], p)
		}
	}
	return out
}

// withoutEndpoints says that a Service has no endpoints, or that some of its ports have none, and why.
func (n *Node) withoutEndpoints(s *service, ports []*Port) report.Finding {
	some := ports != nil
	if !some {
		ports = s.ports
	}
	why := n.whyEmpty(s, ports)
	if some && (why.id == selectorMatchesNoPodsID || why.id == podsNotReadyID) {
		why.id = "" // those speak of whole Services
	}
	f := report.Finding{
		Object: s.object(), Subject: s.key(),
		Want: "at least one ready endpoint", Got: "none",
		Evidence: append([]report.Evidence{s.evidence()}, why.evidence...),
		Causes:   why.causes, Remedy: why.remedy, CausedBy: why.id,
	}
	what := s.key()
	if some {
		p := ports[0]
		what, f.Object.Port, f.Object.Protocol = p.Key(), p.PortName, p.Protocol
		f.Subject = what
		if family := s.emptyFamily(ports); family != "" {
			what += " over " + family
			f.Subject, f.Got = what, "none over "+family
		}
	}
	f.Message = fmt.Sprintf("%s has no usable endpoint, so that connections are refused: %s", what, why.text)
	for _, p := range ports {
		if e := p.refusal(); e != nil {
			f.Evidence = append(f.Evidence, *e)
			break
		}
	}
	return f
}

// emptyFamily names the family of ports that have endpoints in the other one; empty where they have none at all.
func (s *service) emptyFamily(ports []*Port) string {
	served := slices.ContainsFunc(s.ports, func(p *Port) bool {
		return p.PortName == ports[0].PortName && p.Protocol == ports[0].Protocol && !p.hasNoEndpoint()
	})
	if !served {
		return ""
	}
	return fmt.Sprintf("IPv%d", ports[0].Family)
}

// refusal is the rule that refuses the port's connections; nil where none was seen.
func (p *Port) refusal() *report.Evidence {
	for _, paths := range p.Cells {
		first := &paths[0]
		if (first.Result == report.ResultReject || first.Result == report.ResultDrop) && refusesByService(first) {
			if v := verdict(first); len(v) > 0 {
				return &v[0]
			}
		}
	}
	return nil
}

// emptiness is why a Service has no endpoints. id is the finding that says so in more detail; empty for none.
type emptiness struct {
	id, text, remedy string
	causes           []string
	evidence         []report.Evidence
}

// whyEmpty says why a Service, or some of its ports, has no endpoints.
func (n *Node) whyEmpty(s *service, ports []*Port) emptiness {
	for _, p := range ports {
		if u := n.unresolved(s, p); u != nil {
			return emptiness{id: targetPortUnresolvedID, text: u.text, remedy: u.remedy}
		}
	}
	if len(s.Spec.Selector) == 0 {
		return n.whyEmptyByHand(s)
	}
	selected := fmt.Sprintf("kubectl -n %s get pods -l %s", s.Namespace, selectorOf(s))
	pods, all := n.selected(s)
	if missing := n.missingFromSlices(s, pods); len(missing) > 0 && n.Has(Slices) {
		return emptiness{
			id: podMissingFromSlicesID, text: fmt.Sprintf("%s ready, but no EndpointSlice of the Service lists %s", areNamed(missing), themOrIt(missing)),
			remedy: controllerRemedy,
		}
	}
	switch {
	case len(pods) == 0 && all:
		return emptiness{
			id: selectorMatchesNoPodsID, text: "no pod has the labels of its selector (" + selectorOf(s) + ")",
			causes: []string{"the workload behind it is scaled to zero", "the selector and the labels of the pod template differ"},
			remedy: "start the workload, correct the selector or the labels, or delete the Service (" + selected + ")",
		}
	case !all:
		return emptiness{
			text:   "its EndpointSlices list no ready address; whether pods are missing or not ready is not known, because its pods were not read",
			causes: []string{"the workload behind it is scaled to zero", "no pod has the labels of the selector (" + selectorOf(s) + ")", "its pods are not ready"},
			remedy: "look at the pods that it selects: " + selected,
		}
	}
	if family := s.emptyFamily(ports); family != "" && !slices.ContainsFunc(pods, func(p objects.Pod) bool { return hasFamily(p, ports[0].Family) }) {
		return emptiness{
			text:   "none of its pods has an address of that family",
			causes: []string{"the Service asks for two families (spec.ipFamilies), and the cluster's pods have one"},
			remedy: "give pods addresses of both families, or make the Service ipFamilyPolicy: SingleStack",
		}
	}
	return whyNoneReady(pods, selected)
}

// whyNoneReady is about pods that a Service selects and that are in its slices, none of them as ready.
func whyNoneReady(pods []objects.Pod, selected string) emptiness {
	e := emptiness{id: podsNotReadyID, remedy: "look at what keeps the pods from being ready: " + selected + ", kubectl describe pod"}
	var states []string
	for _, p := range pods {
		if podReady(p.Pod) {
			return emptiness{
				text:   fmt.Sprintf("pod %s is ready, but its EndpointSlice does not (yet) say so", p.Name),
				causes: []string{"the pod has become ready only now", "kube-controller-manager does not keep up or has stopped"}, remedy: controllerRemedy,
				evidence: []report.Evidence{podEvidence(p, "is ready")},
			}
		}
		states = append(states, p.Name+" "+whyUnready(p.Pod))
	}
	e.text = fmt.Sprintf("none of its %s is ready: %s", plural(len(pods), "pod"), list(states, 3))
	return e
}

func hasFamily(p objects.Pod, family int) bool {
	return slices.ContainsFunc(podAddrs(p.Pod), func(a netip.Addr) bool { return a.Is4() == (family == 4) })
}

// whyEmptyByHand is about a Service without selector, whose slices somebody has to write.
func (n *Node) whyEmptyByHand(s *service) emptiness {
	e := emptiness{
		text:   "it has no selector, so that nobody fills its EndpointSlices by itself",
		causes: []string{"whoever is to write its EndpointSlices has not done so, or has removed them", "a selector was forgotten"},
		remedy: fmt.Sprintf("write an EndpointSlice with the label kubernetes.io/service-name: %s, or give the Service a selector", s.Name),
	}
	for _, slice := range n.Objects.SlicesOf(s.Namespace, s.Name) {
		if len(slice.Endpoints) > 0 {
			e.text = fmt.Sprintf("it has no selector, and what EndpointSlice %s lists for it is not ready or of no use", slice.Name)
			e.remedy = fmt.Sprintf("look at the conditions, ports and addresses of the slice: kubectl -n %s get endpointslice %s -o yaml", s.Namespace, slice.Name)
			e.evidence = append(e.evidence, sliceEvidence(slice))
			break
		}
	}
	return e
}

// selectorOf is a Service's selector as kubectl -l takes it.
func selectorOf(s *service) string {
	var out []string
	for k, v := range s.Spec.Selector {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
