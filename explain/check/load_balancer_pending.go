package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/report"
)

// loadBalancerPending: a Service of type LoadBalancer without any external address.
var loadBalancerPending = Check{
	ID: "load-balancer-pending", Rests: onObjects, Severity: Info,
	Title: "Services of type LoadBalancer that have no address yet",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		type key struct{ namespace, name string }
		skipped := make(map[key]bool, len(n.Plan.Skipped))
		for _, s := range n.Plan.Skipped {
			skipped[key{s.Namespace, s.Name}] = true
		}
		var out []report.Finding
		for _, svc := range n.Objects.Services {
			pending := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) == 0 && len(svc.Spec.ExternalIPs) == 0
			if !pending || svc.DeletionTimestamp != nil || skipped[key{svc.Namespace, svc.Name}] {
				continue
			}
			class := "no loadBalancerClass"
			if svc.Spec.LoadBalancerClass != nil {
				class = "loadBalancerClass " + *svc.Spec.LoadBalancerClass
			}
			name := svc.Namespace + "/" + svc.Name
			out = append(out, report.Finding{
				Object:   report.Object{Kind: "Service", Namespace: svc.Namespace, Name: svc.Name},
				Subject:  name,
				Message:  fmt.Sprintf("%s is of type LoadBalancer and has no address: no load balancer has taken it on yet (%s), and there is nothing to forward", name, class),
				Want:     "an address in status.loadBalancer.ingress",
				Got:      "none",
				Evidence: []report.Evidence{ObjectEvidence(svc.Evidence, "Service "+name)},
				Causes: []string{
					"no load balancer controller runs in this cluster, or none feels responsible for this loadBalancerClass",
					"the controller cannot make one (quota, permissions, no free address): its events and log say so",
				},
				Remedy: fmt.Sprintf("kubectl -n %s describe service %s shows the controller's events; without a controller use type NodePort", svc.Namespace, svc.Name),
			})
		}
		return out
	},
}
