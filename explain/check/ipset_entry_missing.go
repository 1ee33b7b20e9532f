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
		if len(lacks) == 0 {
			return nil
		}
		wanted, off := n.wantedEntries(), n.cellsOff()
		for _, name := range slices.Sorted(maps.Keys(lacks)) {
			ds := lacks[name]
			if len(ds) > 1 && len(ds) == len(wanted[name]) {
				out = append(out, off.grade(allMissing(ds), ds...))
				continue
			}
			for _, d := range ds {
				out = append(out, off.grade(entryMissing(d), d))
			}
		}
		return out
	},
	Explains: []string{"frontend-unreachable", "reply-blocked", "source-ranges-exclude-cluster"},
}

// wantedEntries are the entries that Services ask for, by set.
func (n *Node) wantedEntries() map[string]map[string]bool {
	out := make(map[string]map[string]bool)
	for _, sp := range n.Plan.Ports {
		for _, w := range dataplane.IPVSElements(sp) {
			if w.May {
				continue
			}
			if out[w.Set] == nil {
				out[w.Set] = make(map[string]bool)
			}
			out[w.Set][w.Text] = true
		}
	}
	return out
}

// allMissing is about a set in which nothing is that belongs there.
func allMissing(ds []setDifference) report.Finding {
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
	for _, d := range ds {
		f.Evidence = append(f.Evidence, planEvidence(d.want.Port.Evidence, d.want.Port.Evidence.Text))
	}
	return f
}

func entryMissing(d setDifference) report.Finding {
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
	return f
}

// cellsOff are the Services, by family, of which some cell is not as intended: health check ports apart, which other
// rules are for.
type cellsOff map[serviceCells]bool

type serviceCells struct {
	namespace, name string
	family          int
	health          bool
}

func (n *Node) cellsOff() cellsOff {
	out := make(cellsOff)
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, paths := range p.Cells {
			if slices.ContainsFunc(paths, Differs) {
				out[serviceCells{p.Namespace, p.Name, p.Family, paths[0].Frontend.Kind == string(intent.HealthCheck)}] = true
			}
		}
	}
	return out
}

// grade makes a warning of a finding about entries whose lack no client of a Service notices.
func (off cellsOff) grade(f report.Finding, lacks ...setDifference) report.Finding {
	first := lacks[0].want
	switch {
	case first.Set == dataplane.AddressSet(first.Port.Family):
		f.Severity = Warning // about ports that no Service has
	case !slices.ContainsFunc(lacks, func(d setDifference) bool { return off.noticed(d.want) }):
		f.Severity = Warning
		f.Message += ", which makes no difference to any client now"
	}
	return f
}

// noticed tells whether somebody notices that an entry is missing.
func (off cellsOff) noticed(w *dataplane.WantedElement) bool {
	sp := w.Port
	health := w.Set == dataplane.HealthCheckSet(sp.Family)
	if health && slices.ContainsFunc(sp.Frontends, func(f intent.Frontend) bool { return f.Kind == intent.LoadBalancer }) {
		return true // at that address, which is in no cell, KUBE-IPVS-FILTER refuses every port that is in no set
	}
	return off[serviceCells{sp.Namespace, sp.Name, sp.Family, health}]
}
