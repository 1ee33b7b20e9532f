package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// targetPortNotInPod: a selected pod declares ports, but not the one that the Service sends to. Container ports only
// inform, so that this is a hint and no proof. Pods that declare no port at all say nothing, and of those whose pods
// are not among the evidence nothing is said.
var targetPortNotInPod = Check{
	ID: "target-port-not-in-pod", Rests: onObjects, Severity: Warning,
	Title: "service ports that selected pods do not declare",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, s := range n.services() {
			if len(s.Spec.Selector) == 0 {
				continue
			}
			for _, p := range s.ports {
				// Both families have the same pods: the first one speaks for both.
				spec := s.spec(p)
				if spec == nil || spec.TargetPort.Type == intstr.String || p.Family != s.ports[0].Family {
					continue
				}
				if pods := n.undeclaring(p); len(pods) > 0 {
					out = append(out, undeclared(s, p, pods))
				}
			}
		}
		return out
	},
}

// undeclaring are the pods behind the ready endpoints of a port that declare other ports and not this one. Where
// somebody was seen to listen there, nothing is wrong.
func (n *Node) undeclaring(p *Port) []objects.Pod {
	var out []objects.Pod
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		pod, ok := n.podByName(e.Pod)
		if !ok || !e.Ready || p.listens(e.String()) {
			continue
		}
		declaresAny := declares(pod, p.Protocol, func(corev1.ContainerPort) bool { return true })
		if declaresAny && !declares(pod, p.Protocol, func(c corev1.ContainerPort) bool { return int(c.ContainerPort) == e.Port }) {
			out = append(out, pod)
		}
	}
	return out
}

// listens tells whether a process was seen to take connections to an endpoint, inside of its pod.
func (p *Port) listens(endpoint string) bool {
	for _, paths := range p.Cells {
		for i := range paths {
			for j := range paths[i].Backends {
				b := &paths[i].Backends[j]
				if b.Inside != nil && joinAddr(b) == endpoint && (b.Inside.Result == report.ResultLocalProcess || b.Inside.Result == report.ResultRedirect) {
					return true
				}
			}
		}
	}
	return false
}

func undeclared(s *service, p *Port, pods []objects.Pod) report.Finding {
	target := s.spec(p).TargetPort.IntVal
	if target == 0 {
		target = s.spec(p).Port
	}
	names := list(podNames(pods), podsShown)
	verb, noun := "declares", "pod"
	if len(pods) > 1 {
		verb, noun = "declare", "pods"
	}
	f := report.Finding{
		Object: s.object(), Subject: fmt.Sprintf("targetPort %d", target),
		Message: fmt.Sprintf("%s sends to port %d, and %d of the %s behind it %s other container ports but not this one (%s %s): connections there are probably refused",
			p.Key(), target, len(pods), plural(len(p.Endpoints), "pod"), verb, noun, names),
		Want: fmt.Sprintf("a container port %d (%s) in each pod", target, p.Protocol), Got: "none in " + names,
		Evidence: []report.Evidence{s.evidence()},
		Causes:   []string{"the selector catches pods of another workload", "the targetPort of the Service is wrong", "the pod listens there and does not declare it, which is allowed"},
		Remedy:   fmt.Sprintf("use one Service for each workload (a narrower selector) or correct the targetPort; to see who listens: kubectl -n %s exec %s -- ss -lnt, or svcnet on its node with --pod %s/%s", s.Namespace, pods[0].Name, s.Namespace, pods[0].Name),
	}
	f.Object.Port, f.Object.Protocol = p.PortName, p.Protocol
	for i, pod := range pods {
		if i < podsShown {
			f.Evidence = append(f.Evidence, podEvidence(pod, "declares "+declaredPorts(pod)))
		}
	}
	return f
}

func declaredPorts(pod objects.Pod) string {
	var out []string
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			out = append(out, fmt.Sprintf("%d/%s", port.ContainerPort, protocolName(port.Protocol)))
		}
	}
	return list(out, podsShown)
}

func protocolName(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}
