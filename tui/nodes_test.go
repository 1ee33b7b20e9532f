package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// fleetOf is the comparison of six nodes: one that differs, four that are alike, one that could not be read.
func fleetOf() *report.Reports {
	finding := report.Finding{
		ID: "missing-endpoint-rule", Severity: "error", Node: "node-1", Subject: "10.244.2.12:8080", Message: "no traffic",
		Object: report.Object{Kind: "Service", Namespace: "store", Name: "web", Port: "http", Protocol: "TCP", Endpoint: "10.244.2.12:8080"},
	}
	item := func(node string, errors int) report.Report {
		return report.Report{Node: node, Proxy: report.Proxy{Mode: "iptables"}, Summary: report.AuditSummary{Error: errors}}
	}
	return &report.Reports{
		Items: []report.Report{item("node-1", 1), item("node-2", 0), item("node-3", 0), item("node-4", 0), item("node-5", 0)},
		Kinds: []report.Kindred{
			{Nodes: []string{"node-3"}, Item: "node-3", Odd: true, Differs: []string{"ip_forward is off"}, Text: "7 Services: 0 as they should be"},
			{Nodes: []string{"node-1", "node-2", "node-4", "node-5"}, Item: "node-1", Differs: []string{}, Text: "7 Services: 4 as they should be"},
		},
		Findings: []report.NodesFinding{{Nodes: []string{"node-1", "node-2", "node-4"}, Finding: finding}},
		Unread:   []report.Unread{{Node: "node-6", Error: "read node node-6: no answer (see its kubelet)"}},
		Summary:  report.AuditSummary{Error: 1, Text: "5 nodes: 4 alike, node-3 differs; 1 node could not be read; 1 error."},
	}
}

func TestNodes(t *testing.T) {
	var read []string
	audits := 0
	f := pagedFeed(demoNode(t))
	f.Live = true
	f.Nodes = func(_ context.Context, progress func(done, all int)) (*report.Reports, error) {
		audits++
		for i := range 6 {
			progress(i+1, 6)
		}
		return fleetOf(), nil
	}
	f.Read = func(_ context.Context, node string) (*snapshot.Snapshot, error) {
		read = append(read, node)
		s := demoNode(t)
		s.Node = node
		return s, nil
	}
	c := newConsole(t, f, Look{}, 120, 30)
	c.shows("3 Nodes (6)", "5 nodes: 4 alike, node-3 differs", "›✗ node-6", "not read: read node node-6: no answer", "differs: ip_forward is off", "▸ 4 nodes alike: node-1, node-2, node-4, node-5")
	// Twice, because what it shows may settle.
	if !slices.Equal(read, []string{"node-3", "node-3"}) {
		t.Errorf("read %v, want the odd node", read)
	}
	for _, order := range [][2]string{{"not read", "✓ node-3"}, {"✓ node-3", "4 nodes alike"}} {
		if s := c.screen(); strings.Index(s, order[0]) > strings.Index(s, order[1]) {
			t.Errorf("%q comes behind %q:\n%s", order[0], order[1], s)
		}
	}
	c.press("<enter>").shows("node-6 could not be read")
	// Space folds, and pauses where there is nothing to fold.
	c.press("<end> ").shows("▾ 4 nodes alike", "node-5").press("<down><down><enter>")
	if read[len(read)-1] != "node-2" || c.node != "node-2" || c.moment.Node != "node-2" || c.tab != 0 {
		t.Errorf("read %v; shown is %s in tab %d", read, c.moment.Node, c.tab)
	}
	c.press("3").shows("(shown)").press("2/id:missing-endpoint<enter>").shows("NODES")
	if under := c.under(); !strings.Contains(under, "  3 ") {
		t.Errorf("not on 3 nodes: %q", under)
	}
	c.press("<esc>/node:node-4<enter>").shows("missing-endpoint-rule").lacks("stale-endpoint").press("<esc>")

	// All nodes are read again when asked, and the shown one goes on.
	before := len(read)
	c.press("3r")
	if audits != 2 || len(read) != before+1 || read[before] != "node-2" || c.tab != nodesTab {
		t.Errorf("%d audits, read %v, in tab %d", audits, read[before:], c.tab)
	}
	c.press("/node-5<enter>").shows("▾ 4 nodes alike", "✗ node-5").lacks("✗ node-6").press("<esc>").shows("✗ node-6")
}

// TestChosenWhileRead chooses a node while all are read: nothing is read twice at a time.
func TestChosenWhileRead(t *testing.T) {
	var read []string
	f := pagedFeed(demoNode(t))
	f.Nodes = func(context.Context, func(done, all int)) (*report.Reports, error) { return fleetOf(), nil }
	f.Read = func(_ context.Context, node string) (*snapshot.Snapshot, error) {
		read = append(read, node)
		s := demoNode(t)
		s.Node = node
		return s, nil
	}
	c := newConsole(t, f, Look{}, 120, 30)
	read = nil
	reading := c.readNodes()
	c.run(c.showNode("node-4"))
	c.shows("node-4 is shown once all nodes are read")
	if len(read) > 0 {
		t.Errorf("read %v beside all nodes", read)
	}
	c.run(reading)
	if !slices.Equal(read, []string{"node-4"}) || c.moment.Node != "node-4" {
		t.Errorf("read %v, shown is %s", read, c.moment.Node)
	}
}

func TestNoNodes(t *testing.T) {
	c := newConsole(t, pagedFeed(demoNode(t)), Look{}, 120, 30).press("3")
	c.shows("This is node-1", "kubectl svcnet tui --all-nodes")

	f := pagedFeed(demoNode(t))
	f.Nodes = func(context.Context, func(done, all int)) (*report.Reports, error) {
		return nil, errors.New("list nodes: forbidden")
	}
	f.Read = func(_ context.Context, node string) (*snapshot.Snapshot, error) {
		return nil, fmt.Errorf("read %q", node)
	}
	newConsole(t, f, Look{}, 120, 30).shows("✗ list nodes: forbidden", "✗ not read")
}
