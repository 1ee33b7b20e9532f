package tui

import (
	"context"
	"errors"
	"testing"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// planOf is a plan of one step, which says what it is about.
func planOf(about Scope) *report.RepairPlan {
	return &report.RepairPlan{
		Node: "node-1", Plan: "0123456789ab", Findings: []report.Finding{{ID: about.Finding}},
		Steps: []report.RepairStep{{
			Step: 1, Kind: "iptables", Title: "restore 1 chain", Reason: "about " + about.Namespace + "/" + about.Service + " " + about.Finding,
			Do:   report.RepairCommand{Command: []string{"iptables-nft-restore", "--noflush"}, Input: "*nat\nCOMMIT\n"},
			Undo: report.RepairCommand{Command: []string{"iptables-nft-restore", "--noflush"}, Input: "*nat\nCOMMIT\n"},
		}},
		Summary: report.RepairSummary{Text: "1 step for 1 finding."},
	}
}

// repairing is a feed with plans; done gets what was applied.
func repairing(t *testing.T, done *[]Scope, err error) *Feed {
	f := pagedFeed(demoNode(t))
	f.Repair = &Repair{
		Plan: func(_ *explain.Reading, about Scope) *report.RepairPlan { return planOf(about) },
		Apply: func(_ context.Context, p *report.RepairPlan, about Scope, say func(string)) (*report.RepairRun, error) {
			*done = append(*done, about)
			say("step 1 of 1: " + p.Steps[0].Title)
			say("  iptables-nft-restore --noflush")
			return &report.RepairRun{State: report.RepairApplied, Summary: report.RepairSummary{Text: "1 finding mended."}}, err
		},
	}
	return f
}

// TestRepair: a plan is about what is under the cursor, and nothing is written before somebody typed that he wants it.
func TestRepair(t *testing.T) {
	var done []Scope
	c := newConsole(t, repairing(t, &done, nil), Look{}, 100, 30)
	c.press("2R").shows("repair ", "1 step for 1 finding.", "1. restore 1 chain", "iptables-nft-restore --noflush <<'END'", "undo:", "A apply")
	c.press("y").shows(`"plan": "0123456789ab"`).press("<esc><esc>").lacks("restore 1 chain")

	c.press("1/checkout<enter>R").shows("repair store/checkout", "about store/checkout")
	c.press("c")
	if len(c.wrote) == 0 {
		t.Error("no command was copied")
	}
	for _, no := range []string{"A<esc>", "A<enter>", "Ayes<enter>", "Aapplyy<enter>"} {
		c.press(no)
		if len(done) > 0 {
			t.Fatalf("%s: written without being asked to", no)
		}
	}
	c.shows("nothing was written").press("A").shows("type apply and enter").press("apply<enter>")
	if len(done) != 1 || done[0] != (Scope{Namespace: "store", Service: "checkout"}) {
		t.Fatalf("applied %v, want store/checkout once", done)
	}
	c.shows("1 finding mended.", "step 1 of 1: restore 1 chain").lacks("undo:")
	c.press("A").shows("this plan is done")
	if len(done) != 1 {
		t.Error("a plan was done twice")
	}
}

// TestRepairFails: what went wrong is said beside what became of the steps.
func TestRepairFails(t *testing.T) {
	var done []Scope
	newConsole(t, repairing(t, &done, errors.New("step 1 (restore 1 chain): exit status 4")), Look{}, 100, 30).
		press("2RAapply<enter>").shows("exit status 4", "1 finding mended.")
	if len(done) != 1 {
		t.Errorf("applied %d times, want once", len(done))
	}
}

// TestNoRepair: where nothing can be written the plan is shown all the same.
func TestNoRepair(t *testing.T) {
	var done []Scope
	f := repairing(t, &done, nil)
	f.Repair.Apply, f.Repair.Because = nil, "these are files"
	newConsole(t, f, Look{}, 100, 30).press("R").shows("1. restore 1 chain").press("A").shows("nothing can be written: these are files")
	newConsole(t, pagedFeed(demoNode(t)), Look{}, 100, 30).press("R").shows("there are no plans of this")
}
