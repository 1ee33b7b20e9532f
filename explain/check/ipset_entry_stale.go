package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

// ipsetEntryStale: an entry of one of kube-proxy's IP sets that no Service asks for.
var ipsetEntryStale = Check{
	ID: "ipset-entry-stale", Rests: onGrid, Severity: Warning,
	Title: "entries of kube-proxy's IP sets that no Service asks for",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, d := range n.setDifferences() {
			if d.want != nil {
				continue
			}
			// Every cluster has this Service: without it the others that are given are not all there are.
			if _, whole := n.Objects.Service("default", "kubernetes"); !whole {
				n.lacks(Services)
				return nil
			}
			f := report.Finding{
				Subject:  fmt.Sprintf("%s: %s", d.set.Name, d.have.Text),
				Message:  fmt.Sprintf("IP set %s has the entry %s, which no Service asks for", d.set.Name, d.have.Text),
				Want:     "no such entry",
				Got:      d.have.Text,
				Evidence: []report.Evidence{d.evidence()},
				Causes:   []string{proxyStopped, "the Service, its address or its endpoint is gone, and kube-proxy has not synced since"},
				Remedy:   restartProxy + "; by hand: ipset del " + d.set.Name + " " + d.have.Text,
			}
			if sp := d.of(n); sp != nil {
				f.Object = servicePortObject(sp)
				f.Message = fmt.Sprintf("IP set %s has the entry %s, which %s does not ask for", d.set.Name, d.have.Text, sp.Key())
				f.Evidence = append(f.Evidence, planEvidence(sp.Evidence, sp.Evidence.Text))
			}
			out = append(out, f)
		}
		return out
	},
}
