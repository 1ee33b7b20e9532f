package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/hns"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// hnsPolicyDuplicate: HNS has several load balancers for one address and port. Which of them it uses nobody can say, and
// kube-proxy knows and mends one of them only.
var hnsPolicyDuplicate = Check{
	ID: "hns-policy-duplicate", Rests: onGrid, Severity: Warning,
	Title: "frontends for which HNS has several load balancers",
	Port: func(p *Port) []report.Finding {
		if p.On.Proxy.Mode != kernelspace || p.On.HNS == nil || !p.On.Has(ServiceTables) {
			return nil
		}
		for _, f := range p.Frontends {
			if f.Kind == intent.HealthCheck {
				continue
			}
			all := p.On.HNS.Serving(netip.AddrPortFrom(f.Addr, uint16(f.Port)), dataplane.ProtocolNumber(p.Protocol), f.OnNode)
			if len(all) < 2 {
				continue
			}
			return []report.Finding{p.duplicated(f, all)}
		}
		return nil
	},
	Explains: []string{"missing-endpoint-rule", "stale-endpoint-rule", "wrong-translation"},
}

func (p *Port) duplicated(f intent.Frontend, all []*hns.LoadBalancer) report.Finding {
	out := report.Finding{
		Subject: all[0].At(),
		Want:    "one load balancer",
		Got:     fmt.Sprintf("%d load balancers", len(all)),
		Causes: []string{
			"HNS refused to delete the older one (known of Windows Server 2019), and kube-proxy made another",
			"two kube-proxies run on the node",
		},
		Remedy: "restart kube-proxy on this node: it deletes all load balancers of HNS when it starts, and makes them anew",
	}
	out.Message = fmt.Sprintf("HNS has %d load balancers for %s %s (%s)", len(all), f.Kind, all[0].At(), p.Key())
	for i, b := range all {
		if i > 0 && !b.LeadsAs(all[0]) {
			out.Message += ", and they lead to different endpoints"
			break
		}
	}
	for _, b := range all[:min(len(all), 3)] {
		out.Evidence = append(out.Evidence, balancerEvidence(b))
	}
	out.Evidence = append(out.Evidence, p.objectEvidence())
	return out
}
