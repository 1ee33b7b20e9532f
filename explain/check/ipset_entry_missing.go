package check

import (
	"fmt"
	"maps"
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
		lacks := make(map[string][]setDifference)
		for _, d := range n.setDifferences() {
			if d.want != nil {
				lacks[d.set.Name] = append(lacks[d.set.Name], d)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(lacks)) {
			if ds := lacks[name]; len(ds) > 1 && len(ds) == n.wantedIn(name) {
				out = append(out, n.allMissing(ds))
				continue
			}
			for _, d := range lacks[name] {
				out = append(out, n.entryMissing(d))
			}
		}
		return out
	},
	Explains: []string{"frontend-unreachable", "reply-blocked", "source-ranges-exclude-cluster"},
}

// unnoticed ends what is said of entries that lack and make no difference.
const unnoticed = ", which makes no difference to any client now"

// wantedIn is how many entries Services ask for in a set.
func (n *Node) wantedIn(set string) int {
	entries := make(map[string]bool)
	for _, sp := range n.Plan.Ports {
		for _, w := range dataplane.IPVSElements(sp) {
			if w.Set == set && !w.May {
				entries[w.Text] = true
			}
		}
	}
	return len(entries)
}

// allMissing is about a set in which nothing is that belongs there.
func (n *Node) allMissing(ds []setDifference) report.Finding {
	first := ds[0]
	f := report.Finding{
		Subject: first.set.Name,
		Message: fmt.Sprintf("IP set %s lacks all %d entries that Services ask for, %s for %s among them: %s",
			first.set.Name, len(ds), first.want.Text, first.want.Port.Key(), first.does),
		Want:     fmt.Sprintf("%d entries", len(ds)),
		Got:      "none of them",
		Evidence: []report.Evidence{first.evidence()},
		Causes:   []string{proxyStopped, "something other than kube-proxy emptied the set"},
		Remedy:   restartProxy + "; by hand, for each: ipset add " + first.set.Name + " " + first.want.Text,
	}
	if !slices.ContainsFunc(ds, func(d setDifference) bool { return n.tells(d.want) }) {
		f.Severity = Warning
		f.Message += unnoticed
	}
	if first.want.Set == dataplane.AddressSet(first.want.Port.Family) {
		f.Severity = Warning // of Services nothing fails
	}
	for _, d := range ds {
		f.Evidence = append(f.Evidence, planEvidence(d.want.Port.Evidence, d.want.Port.Evidence.Text))
	}
	return f
}

func (n *Node) entryMissing(d setDifference) report.Finding {
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
	switch {
	case d.want.Set == dataplane.AddressSet(sp.Family):
		f.Severity = Warning // of Services nothing fails
	case !n.tells(d.want):
		f.Severity = Warning
		f.Message += unnoticed
	}
	if strings.HasSuffix(d.want.Text, "/0") {
		f.Causes = []string{"sets of type " + d.set.Type + " take no network that holds every address: kube-proxy cannot add it, and says so in its log"}
		f.Remedy = "leave loadBalancerSourceRanges empty, or write the two halves: 0.0.0.0/1 and 128.0.0.0/1"
		if sp.Family == 6 {
			f.Remedy = "leave loadBalancerSourceRanges empty, or write the two halves: ::/1 and 8000::/1"
		}
	}
	return f
}

// tells tells whether somebody notices that an entry is missing: a client of the Service, or somebody whose packets are
// in no cell.
func (n *Node) tells(w *dataplane.WantedElement) bool {
	sp := w.Port
	health := w.Set == dataplane.HealthCheckSet(sp.Family)
	switch {
	case w.Set == dataplane.AddressSet(sp.Family):
		return true // about ports that no Service has
	case health && slices.ContainsFunc(sp.Frontends, func(f intent.Frontend) bool { return f.Kind == intent.LoadBalancer }):
		return true // at that address KUBE-IPVS-FILTER refuses every port that is in no set
	}
	for i := range n.Ports {
		p := &n.Ports[i]
		if p.Namespace != sp.Namespace || p.Name != sp.Name || p.Family != sp.Family {
			continue
		}
		for _, paths := range p.Cells {
			if health == (paths[0].Frontend.Kind == string(intent.HealthCheck)) && slices.ContainsFunc(paths, Differs) {
				return true
			}
		}
	}
	return false
}
