package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// ipsetEntryMissing: one of kube-proxy's IP sets lacks what a Service asks for.
var ipsetEntryMissing = Check{
	ID: "ipset-entry-missing", Rests: onGrid, Severity: Error,
	Title: "entries that kube-proxy's IP sets lack",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, d := range n.setDifferences() {
			if d.want == nil {
				continue
			}
			sp := d.want.Port
			f := report.Finding{
				Object:   servicePortObject(sp),
				Subject:  fmt.Sprintf("%s: %s", d.set.Name, d.want.Text),
				Message:  fmt.Sprintf("IP set %s lacks the entry %s, for %s: %s", d.set.Name, d.want.Text, sp.Key(), d.does),
				Want:     d.want.Text,
				Got:      "no such entry",
				Evidence: []report.Evidence{d.evidence(), planEvidence(sp.Evidence, sp.Evidence.Text)},
				Causes:   []string{proxyStopped, "something other than kube-proxy changed the set"},
				Remedy:   restartProxy + "; by hand: ipset add " + d.set.Name + " " + d.want.Text,
			}
			if dataplane.IsHealthCheckSet(d.set.Name) && !n.stopsHealthChecks(sp) {
				f.Severity = Warning
				f.Message += " by kube-proxy's rule, and no other rule stops them now"
			}
			if strings.HasSuffix(d.want.Text, "/0") {
				f.Causes = []string{"sets of type " + d.set.Type + " take no network that holds every address: kube-proxy cannot add it, and says so in its log"}
				f.Remedy = "leave loadBalancerSourceRanges empty, or write the two halves: 0.0.0.0/1 and 128.0.0.0/1"
				if sp.Family == 6 {
					f.Remedy = "leave loadBalancerSourceRanges empty, or write the two halves: ::/1 and 8000::/1"
				}
			}
			out = append(out, f)
		}
		return out
	},
	Explains: []string{"frontend-unreachable", "reply-blocked", "source-ranges-exclude-cluster"},
}

// stopsHealthChecks tells whether the node drops or refuses what is sent to the health check port of a Service. At the
// address of a load balancer KUBE-IPVS-FILTER refuses every port that is in no set.
func (n *Node) stopsHealthChecks(sp *intent.ServicePort) bool {
	if slices.ContainsFunc(sp.Frontends, func(f intent.Frontend) bool { return f.Kind == intent.LoadBalancer }) {
		return true
	}
	for i := range n.Ports {
		p := &n.Ports[i]
		if p.Namespace != sp.Namespace || p.Name != sp.Name || p.Family != sp.Family {
			continue
		}
		for _, paths := range p.Cells {
			for j := range paths {
				if paths[j].Frontend.Kind == string(intent.HealthCheck) && ends(paths[j].Result) {
					return true
				}
			}
		}
	}
	return false
}
