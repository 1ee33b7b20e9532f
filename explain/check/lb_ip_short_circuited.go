package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// lbIPShortCircuited: the load balancer is asked to speak the PROXY protocol to the pods, and connections from inside of
// the cluster to its address never reach it. Without such an annotation the short cut is what everybody wants.
var lbIPShortCircuited = Check{
	ID: "lb-ip-short-circuited", Rests: onObjects, Severity: Info,
	Title: "load balancer addresses that clients of the cluster reach without the load balancer",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		var out []report.Finding
		for _, svc := range n.Objects.Services {
			annotation := proxyProtocol(svc.Annotations)
			if annotation == "" {
				continue
			}
			var addresses []string
			for _, sp := range n.Plan.Of(svc.Namespace, svc.Name) {
				for _, f := range sp.Frontends {
					// Addresses that are left to the load balancer (ipMode Proxy) are no frontends.
					if f.Kind == intent.LoadBalancer {
						addresses = once(addresses, f.Addr.String())
					}
				}
			}
			if len(addresses) == 0 {
				continue
			}
			key := svc.Namespace + "/" + svc.Name
			at := strings.Join(addresses, ", ")
			out = append(out, report.Finding{
				Object:  report.Object{Kind: "Service", Namespace: svc.Namespace, Name: svc.Name},
				Subject: at,
				Message: fmt.Sprintf("connections from inside of the cluster to %s, the load balancer address of %s, go straight to the pods: the load balancer, which is to add the PROXY protocol (%s), is skipped", at, key, annotation),
				Want:    "connections that carry the PROXY protocol header",
				Got:     "connections without it from pods and nodes",
				Evidence: []report.Evidence{
					ObjectEvidence(svc.Evidence, annotation),
				},
				Causes: []string{"status.loadBalancer.ingress names an address with ipMode VIP, or none"},
				Remedy: "let the cloud controller set ipMode: Proxy (kube-proxy 1.30 and newer honour it), or publish a host name instead of the address",
			})
		}
		return out
	},
}

// proxyProtocol is the annotation by which a load balancer is asked to add the PROXY protocol, "key: value". Every
// cloud has its own, and all of them name both the load balancer and the protocol.
func proxyProtocol(annotations map[string]string) string {
	keys := make([]string, 0, len(annotations))
	for key := range annotations {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		value := strings.ToLower(strings.TrimSpace(annotations[key]))
		name := strings.ReplaceAll(strings.ToLower(key), "-", "")
		asked := strings.Contains(name, "proxyprotocol") && !slices.Contains([]string{"", "false", "none", "off", "no", "0", "disabled"}, value) ||
			strings.Contains(value, "proxy-protocol")
		if strings.Contains(name, "loadbalancer") && asked {
			return key + ": " + annotations[key]
		}
	}
	return ""
}
