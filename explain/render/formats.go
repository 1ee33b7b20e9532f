// Package render turns documents into text for people: a tree, tables, and graphs for other programs.
// JSON and YAML are not made here: they are the document itself.
//
// A document holds text of strangers (rule comments, names from files), so everything that is written
// passes through one place that escapes it: see Clean. The package is pure: what the terminal is like
// comes in as Options.
package render

import (
	"fmt"
	"io"

	"github.com/svcnet/svcnet/explain/report"
)

// Options say how the text is shown. The zero value is plain UTF-8 text without colour or width limit.
type Options struct {
	// Width is the number of columns of the terminal; 0 for no limit. Lines are wrapped, and rule texts
	// truncated, to fit; addresses and names never are.
	Width int
	// Color adds terminal colours. Nothing is said by colour alone.
	Color bool
	// ASCII keeps the output within ASCII, for terminals and locales that show nothing else.
	ASCII bool
}

// Format is one way to show documents.
type Format struct {
	// Name is what -o calls it; Short says in a few words what it is.
	Name, Short string
	// Trace, Report and Status show a document of their kind; nil where the format has no way to.
	Trace  func(w io.Writer, t *report.Trace, o Options) error
	Report func(w io.Writer, r *report.Report, o Options) error
	Status func(w io.Writer, s *report.NodeStatus, o Options) error
	// TraceList, ReportList and StatusList show those of many nodes.
	TraceList  func(w io.Writer, l *report.TraceList, o Options) error
	ReportList func(w io.Writer, l *report.Reports, o Options) error
	StatusList func(w io.Writer, l *report.NodeStatusList, o Options) error
	// Diff shows what changed between two.
	Diff func(w io.Writer, d *report.Diff, o Options) error
	// RepairPlan shows what would be done, RepairRun and RepairRunList what was.
	RepairPlan    func(w io.Writer, p *report.RepairPlan, o Options) error
	RepairRun     func(w io.Writer, r *report.RepairRun, o Options) error
	RepairRunList func(w io.Writer, l *report.RepairRuns, o Options) error
}

// Shows tells whether the format can show documents of a kind.
func (f Format) Shows(kind string) bool {
	switch kind {
	case "Trace":
		return f.Trace != nil
	case "Report":
		return f.Report != nil
	case "NodeStatus":
		return f.Status != nil
	case "Diff":
		return f.Diff != nil
	case "RepairPlan":
		return f.RepairPlan != nil
	}
	return false
}

// Show writes a document. The error is that of w, or says that the format does not show documents of this kind.
func (f Format) Show(w io.Writer, doc any, o Options) error {
	switch d := doc.(type) {
	case *report.Trace:
		if f.Trace != nil {
			return f.Trace(w, d, o)
		}
	case *report.Report:
		if f.Report != nil {
			return f.Report(w, d, o)
		}
	case *report.NodeStatus:
		if f.Status != nil {
			return f.Status(w, d, o)
		}
	case *report.TraceList:
		if f.TraceList != nil {
			return f.TraceList(w, d, o)
		}
	case *report.Reports:
		if f.ReportList != nil {
			return f.ReportList(w, d, o)
		}
	case *report.Diff:
		if f.Diff != nil {
			return f.Diff(w, d, o)
		}
	case *report.RepairPlan:
		if f.RepairPlan != nil {
			return f.RepairPlan(w, d, o)
		}
	case *report.RepairRun:
		if f.RepairRun != nil {
			return f.RepairRun(w, d, o)
		}
	case *report.RepairRuns:
		if f.RepairRunList != nil {
			return f.RepairRunList(w, d, o)
		}
	case *report.NodeStatusList:
		if f.StatusList != nil {
			return f.StatusList(w, d, o)
		}
	}
	return fmt.Errorf("the format %s does not show a %T", f.Name, doc)
}

// Formats returns all formats by name.
func Formats() []Format {
	return []Format{
		{Name: "dot", Short: "Graph in the DOT language of Graphviz", Trace: DOT},
		{Name: "mermaid", Short: "Graph for Markdown pages that draw Mermaid", Trace: Mermaid},
		{Name: "tree", Short: "Tree of frontends, clients and backends, or of findings, or of steps", Trace: Tree, Report: Report, Status: Status,
			TraceList: TreeList, ReportList: ReportList, StatusList: StatusList, Diff: Diff,
			RepairPlan: RepairPlan, RepairRun: RepairRun, RepairRunList: RepairRunList},
		{Name: "wide", Short: "Tables of every path, backend and hop", Trace: Wide, TraceList: WideList},
	}
}

// Lookup returns the format of that name.
func Lookup(name string) (Format, bool) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}
