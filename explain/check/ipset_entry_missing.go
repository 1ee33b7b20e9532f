package check

import (
	"fmt"
	"strings"

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
