package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// A verdict is what became of a node by a run.
type verdict struct {
	// mended are the plan's findings that are gone, remaining those that are not, fresh what was not found before.
	mended, remaining, fresh []report.Finding
	// worse says why the node is not better; empty: it is, or at least no worse.
	worse string
}

// compare says whether a node is worse after a run than before.
//
// It is worse where connections that did what the objects ask for do so no more, by a trace of every Service whose paths
// may differ. Where none does, it is better if some do that did not. Where all fare as before, the findings decide: it is
// worse if there are more errors, or if none of those that the steps were for is gone.
func compare(before, after *explain.Reading, p *report.RepairPlan, done []report.RepairStep) verdict {
	var v verdict
	for i := range p.Findings {
		if f := &p.Findings[i]; has(after.Report, f) {
			v.remaining = append(v.remaining, *f)
		} else {
			v.mended = append(v.mended, *f)
		}
	}
	for i := range after.Report.Findings {
		if f := &after.Report.Findings[i]; f.Pending == "" && !has(before.Report, f) {
			v.fresh = append(v.fresh, *f)
		}
	}
	var lost, gained []string
	for was, now := range explain.Changes(before, after) {
		if was == nil || now == nil {
			continue // the Service came or went, which is nobody's doing here
		}
		l, g := fares(was, now)
		lost, gained = append(lost, l...), append(gained, g...)
	}
	switch {
	case len(lost) > 0:
		v.worse = fmt.Sprintf("the node is worse than before: %s%s", lost[0], more(len(lost)-1))
	case len(gained) > 0:
	case graves(after.Report) > graves(before.Report):
		v.worse = fmt.Sprintf("the node is worse than before: %s, and %d before", plural(graves(after.Report), "error"), graves(before.Report))
	default:
		if ids := claimed(done); len(ids) > 0 && !slices.ContainsFunc(v.mended, func(f report.Finding) bool { return ids[f.ID] }) {
			v.worse = "nothing of what it was for is mended"
		}
	}
	return v
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

// claimed are the ids of the findings that steps are for.
func claimed(steps []report.RepairStep) map[string]bool {
	out := make(map[string]bool)
	for _, s := range steps {
		for _, e := range s.Edits {
			for _, id := range e.Findings {
				out[id] = true
			}
		}
	}
	return out
}

// has tells whether a report has a finding.
func has(r *report.Report, f *report.Finding) bool {
	return slices.ContainsFunc(r.Findings, func(g report.Finding) bool {
		return g.ID == f.ID && g.Object == f.Object && g.Subject == f.Subject
	})
}

func graves(r *report.Report) int {
	n := 0
	for i := range r.Findings {
		if s := r.Findings[i].Severity; s == "critical" || s == "error" {
			n++
		}
	}
	return n
}

// A cell is connections of one kind of clients to one frontend.
type cell struct {
	kind, address           string // with the port
	protocol, class, source string
}

// A fare is how connections of a cell fare: good is the share that does what the objects ask for, asked what that is.
type fare struct {
	good  float64
	asked string
	known bool
}

// little is a share that makes no difference.
const little = 0.005

// fares are the cells that fare worse, and those that fare better.
func fares(was, now *report.Trace) (worse, better []string) {
	before, after := cellsOf(was), cellsOf(now)
	for c, w := range before {
		n, ok := after[c]
		if !ok || !w.known || !n.known || w.asked != n.asked {
			continue // the objects changed, or what happens is not decided
		}
		said := fmt.Sprintf("%s to %s %s/%s of %s/%s", clients(c.class), c.kind, c.address, c.protocol, now.Metadata.Namespace, now.Metadata.Name)
		switch {
		case n.good < w.good-little:
			worse = append(worse, fmt.Sprintf("%.0f%% of connections from %s fare as asked, %.0f%% before", 100*n.good, said, 100*w.good))
		case n.good > w.good+little:
			better = append(better, said)
		}
	}
	slices.Sort(worse)
	return worse, better
}

// dialled is an address with its port.
func dialled(address string, port int) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return fmt.Sprintf("%s:%d", address, port)
}

func clients(class string) string {
	if class == "" {
		return "clients"
	}
	return class
}

func cellsOf(t *report.Trace) map[cell]fare {
	out := make(map[cell]fare)
	for i := range t.Paths {
		p := &t.Paths[i]
		c := cell{p.Frontend.Kind, dialled(p.Frontend.Address, p.Frontend.Port), p.Frontend.Protocol, p.SourceClass, p.Source}
		f, seen := out[c]
		if !seen {
			f.known = p.Intended != nil
		}
		f.known = f.known && len(p.Uncertain) == 0 && p.Result != report.ResultUnknown
		if p.Intended != nil {
			f.asked = fmt.Sprint(p.Intended.Result, " ", strings.Join(p.Intended.Backends, " "))
			f.good += good(p)
		}
		out[c] = f
	}
	return out
}

// good is the share of a path that does what the objects ask for.
func good(p *report.Path) float64 {
	if len(p.Intended.Backends) == 0 {
		if p.Result == p.Intended.Result {
			return p.Probability
		}
		return 0
	}
	sum := 0.0
	for i := range p.Backends {
		b := &p.Backends[i]
		answered := b.Reply == nil || b.Reply.Result == report.ReplyDelivered || b.Reply.Result == report.ReplyUnknown ||
			// A backend on another node that is to see the client's own address answers it past this node.
			b.Reply.Result == report.ReplyBypasses && b.MasqueradeIntended != nil && !*b.MasqueradeIntended
		reached := b.Result == report.ResultDNAT || b.Result == report.ResultIPVS || b.Result == report.ResultBPF || b.Result == p.Intended.Result
		if b.State == "ok" && answered && reached {
			// More than its share takes from another one.
			sum += min(b.Probability, wanted(b))
		}
	}
	return sum
}

// wanted is the share that the objects ask for a backend; all, where they ask for none in particular.
func wanted(b *report.Backend) float64 {
	if b.Intended == nil {
		return 1
	}
	return *b.Intended
}

// says is the verdict for the journal, text for people.
func (v *verdict) says() string {
	return fmt.Sprintf("%d mended, %d remaining, %d new", len(v.mended), len(v.remaining), len(v.fresh))
}

func (v *verdict) text(id string) string {
	out := []string{fmt.Sprintf("%s mended.", plural(len(v.mended), "finding"))}
	if n := len(v.remaining); n > 0 {
		out = append(out, fmt.Sprintf("%s remain.", plural(n, "finding")))
	}
	if n := len(v.fresh); n > 0 {
		out = append(out, fmt.Sprintf("%s that %s not there before.", plural(n, "finding"), map[bool]string{true: "was", false: "were"}[n == 1]))
	}
	return strings.Join(append(out, fmt.Sprintf("`repair --rollback %s` takes it back.", id)), " ")
}
