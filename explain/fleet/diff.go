package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/report"
)

// Side is one of two readings that are compared.
type Side struct {
	Report *report.Report
	Status *report.NodeStatus
	// Missing names the sources without which it cannot be right.
	Missing []string
}

// Diff gathers what changed between two readings. Make one with NewDiff.
type Diff struct {
	doc report.Diff
	// same is true when both are of one node: then its addresses are no less to compare than anything else.
	same bool
}

// NewDiff compares everything but the paths of Services, which Service adds.
func NewDiff(before, after Side) *Diff {
	d := &Diff{same: before.Report.Node == after.Report.Node}
	d.doc = report.Diff{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "Diff"},
		Before:   side(before), After: side(after),
		Services: []report.ServiceDiff{}, Unknown: unknownDiff(before.Report.Unknown, after.Report.Unknown),
		Settings: d.settings(before.Status, after.Status), Sources: sourcesDiff(before.Report.Sources, after.Report.Sources),
	}
	d.doc.Appeared = d.onlyIn(after.Report, before.Report)
	d.doc.Cleared = d.onlyIn(before.Report, after.Report)
	return d
}

func side(s Side) report.DiffSide {
	return report.DiffSide{Node: s.Report.Node, Captured: s.Status.Captured, Verdict: s.Report.Verdict, Missing: append([]string{}, s.Missing...)}
}

// own is what belongs to a node and is no change: nothing when both readings are of the same node.
func (d *Diff) own(node string, o report.Own) own {
	if d.same {
		return own{literal: true}
	}
	return ownOf(node, o)
}

// onlyIn are the findings of one report that another does not have.
func (d *Diff) onlyIn(r, other *report.Report) []report.Finding {
	theirs := make(map[string]bool)
	o := d.own(other.Node, other.Own)
	for i := range other.Findings {
		theirs[findingKey(&other.Findings[i], &o)] = true
	}
	out := []report.Finding{}
	o = d.own(r.Node, r.Own)
	for i := range r.Findings {
		f := &r.Findings[i]
		// Of two nodes, what depends on where endpoints are is no difference.
		if !theirs[findingKey(f, &o)] && (d.same || f.Severity != info) {
			out = append(out, *f)
		}
	}
	return out
}

// settings are the traits that changed; when something was last synced is a date and no change.
func (d *Diff) settings(before, after *report.NodeStatus) []report.SettingDiff {
	out := []report.SettingDiff{}
	a, b := d.own(before.Node, before.Own), d.own(after.Node, after.Own)
	for _, t := range before.Traits {
		i := slices.IndexFunc(after.Traits, func(u report.Trait) bool { return u.Name == t.Name })
		if t.Name == "lastSync" || i < 0 || !d.same && slices.Contains(perNode, t.Name) {
			continue
		}
		if u := after.Traits[i]; a.in(t.Value) != b.in(u.Value) {
			out = append(out, report.SettingDiff{Name: t.Name, Before: t.Value, After: u.Value})
		}
	}
	return out
}

func unknownDiff(before, after []report.Unknown) []report.SettingDiff {
	return changedValues(before, after, func(u report.Unknown) (string, string) { return u.ID, u.Text })
}

func sourcesDiff(before, after []report.Source) []report.SettingDiff {
	// One kind of source may have several files; what counts is whether any answered, and which did not.
	statuses := func(all []report.Source) []report.Source {
		of := make(map[string][]string)
		for _, s := range all {
			if !slices.Contains(of[s.Name], s.Status) {
				of[s.Name] = append(of[s.Name], s.Status)
			}
		}
		var out []report.Source
		for name, list := range of {
			slices.Sort(list)
			out = append(out, report.Source{Name: name, Status: strings.Join(list, ", ")})
		}
		return out
	}
	return changedValues(statuses(before), statuses(after), func(s report.Source) (string, string) { return s.Name, s.Status })
}

// changedValues are the values that two lists do not have in common, by name.
func changedValues[T any](before, after []T, value func(T) (name, value string)) []report.SettingDiff {
	all := make(map[string]*report.SettingDiff)
	at := func(name string) *report.SettingDiff {
		if all[name] == nil {
			all[name] = &report.SettingDiff{Name: name}
		}
		return all[name]
	}
	for _, v := range before {
		name, text := value(v)
		at(name).Before = text
	}
	for _, v := range after {
		name, text := value(v)
		at(name).After = text
	}
	out := []report.SettingDiff{}
	for _, s := range all {
		if s.Before != s.After {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b report.SettingDiff) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Service compares the traces of one Service; nil is a side that does not have it. Services come by namespace and name.
func (d *Diff) Service(before, after *report.Trace) {
	switch {
	case before == nil && after == nil:
	case before == nil:
		d.change(after.Metadata, "added", []report.PathDiff{})
	case after == nil:
		d.change(before.Metadata, "removed", []report.PathDiff{})
	default:
		if paths := d.paths(before, after); len(paths) > 0 {
			d.change(after.Metadata, "changed", paths)
		}
	}
}

func (d *Diff) change(of report.Metadata, change string, paths []report.PathDiff) {
	d.doc.Services = append(d.doc.Services, report.ServiceDiff{Namespace: of.Namespace, Name: of.Name, Change: change, Paths: paths})
}

// paths are the cells that changed, those of one frontend that changed alike in one.
func (d *Diff) paths(before, after *report.Trace) []report.PathDiff {
	a, b := d.own(before.Node, before.Own), d.own(after.Node, after.Own)
	was, is := byCell(cellParts(before.Paths, &a)), byCell(cellParts(after.Paths, &b))
	out := []report.PathDiff{}
	add := func(p report.PathDiff, class string) {
		i := slices.IndexFunc(out, func(q report.PathDiff) bool {
			return q.Frontend == p.Frontend && q.Before == p.Before && q.After == p.After && slices.Equal(q.Gained, p.Gained) && slices.Equal(q.Lost, p.Lost)
		})
		if i < 0 {
			out = append(out, p)
			i = len(out) - 1
		}
		out[i].SourceClasses = append(out[i].SourceClasses, class)
	}
	cells := make([]string, 0, len(was)+len(is))
	for name := range was {
		cells = append(cells, name)
	}
	for name := range is {
		cells = append(cells, name)
	}
	slices.Sort(cells)
	for _, name := range slices.Compact(cells) {
		w, i := was[name], is[name]
		if w.key == i.key || !d.same && (w.key == "" && i.asked || i.key == "" && w.asked) {
			continue // of two nodes, one may lack a class of clients
		}
		p := report.PathDiff{Frontend: cmp.Or(i.to, w.to), Before: w.outcome, After: i.outcome,
			Gained: without(i.backends, w.backends), Lost: without(w.backends, i.backends)}
		if p.Before == p.After {
			p.After += ", by other chains"
		}
		add(p, cmp.Or(i.who, w.who))
	}
	return out
}

// byCell are the parts of a trace by the cell that they are about. Nodes have several addresses of one kind: what is the
// same at each of them is one cell.
func byCell(parts []part) map[string]part {
	out := make(map[string]part, len(parts))
	for _, p := range parts {
		name := about(p)
		if old, ok := out[name]; ok && old.key != p.key {
			p.key, p.outcome = old.key+"\n"+p.key, old.outcome+"; "+p.outcome
			p.backends = append(slices.Clone(old.backends), p.backends...)
			p.asked = p.asked && old.asked
		}
		out[name] = p
	}
	return out
}

// without are the entries of a list that another does not have, sorted, each once.
func without(list, other []string) []string {
	out := []string{}
	for _, s := range list {
		if !slices.Contains(other, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Document is the document of everything that was compared.
func (d *Diff) Document() *report.Diff {
	out := d.doc
	s := &out.Summary
	for _, c := range out.Services {
		switch c.Change {
		case "added":
			s.Added++
		case "removed":
			s.Removed++
		default:
			s.Changed++
		}
	}
	s.Same = len(out.Services)+len(out.Appeared)+len(out.Cleared)+len(out.Settings)+len(out.Unknown)+len(out.Sources) == 0
	s.Text = diffText(&out)
	return &out
}

func diffText(d *report.Diff) string {
	between := fmt.Sprintf("Between %s and %s", orUnnamed(d.Before.Node), orUnnamed(d.After.Node))
	if d.Before.Node == d.After.Node {
		between = "On " + orUnnamed(d.After.Node)
		if d.Before.Captured != "" && d.After.Captured != "" {
			between += fmt.Sprintf(" between %s and %s", d.Before.Captured, d.After.Captured)
		}
	}
	if d.Summary.Same {
		if d.Before.Node != d.After.Node {
			return between + " there is no difference."
		}
		return between + " nothing changed."
	}
	var words []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			words = append(words, "1 "+one)
		case n > 1:
			words = append(words, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(d.Summary.Changed, "Service changed", "Services changed")
	add(d.Summary.Added, "Service added", "Services added")
	add(d.Summary.Removed, "Service removed", "Services removed")
	add(len(d.Appeared), "finding appeared", "findings appeared")
	add(len(d.Cleared), "finding cleared", "findings cleared")
	add(len(d.Settings), "setting changed", "settings changed")
	add(len(d.Unknown), "check is known on one side alone", "checks are known on one side alone")
	add(len(d.Sources), "source changed its status", "sources changed their status")
	return between + ": " + strings.Join(words, ", ") + "."
}

func orUnnamed(node string) string { return cmp.Or(node, "a node without a name") }
