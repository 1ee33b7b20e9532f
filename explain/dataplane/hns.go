package dataplane

import (
	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// Balanced is a frontend that a load balancer of HNS serves. HNS knows no names: the service port is empty.
type Balanced struct {
	Portal
	Balancer *hns.LoadBalancer
}

// EachBalanced calls f for every address and port that a load balancer of HNS takes, in the order of the captures.
func EachBalanced(s *hns.State, f func(Balanced)) {
	for i := range s.Balancers {
		b := &s.Balancers[i]
		if !b.Complete() {
			continue
		}
		p := Portal{Protocol: b.Protocol, Port: b.ExternalPort, Kind: intent.NodePort, Family: netfilter.IPv4}
		if len(b.VIPs) == 0 {
			if b.IPv6 {
				p.Family = netfilter.IPv6
			}
			f(Balanced{p, b})
			continue
		}
		for _, a := range b.VIPs {
			p.Addr, p.Kind, p.Family = a, intent.ClusterIP, netfilter.FamilyOf(a)
			if b.ExternalVIP {
				p.Kind = intent.LoadBalancer
			}
			f(Balanced{p, b})
		}
	}
}
