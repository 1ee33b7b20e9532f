// Package render turns documents into text for people: a tree, tables, and graphs for other programs.
// JSON and YAML are not made here: they are the document itself.
//
// A document holds text of strangers (rule comments, names from files), so everything that is written
// passes through one place that escapes it: see Clean. The package is pure: what the terminal is like
// comes in as Options.
package render

import (
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

// Format is one way to show a trace.
type Format struct {
	// Name is what -o calls it; Short says in a few words what it is.
	Name, Short string
	Trace       func(w io.Writer, t *report.Trace, o Options) error
}

// Formats returns all formats by name.
func Formats() []Format {
	return []Format{
		{"dot", "Graph in the DOT language of Graphviz", DOT},
		{"mermaid", "Graph for Markdown pages that draw Mermaid", Mermaid},
		{"tree", "Tree of frontends, clients and backends", Tree},
		{"wide", "Tables of every path, backend and hop", Wide},
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
