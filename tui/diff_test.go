package tui

import (
	"context"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/fleet"
	"github.com/svcnet/svcnet/explain/report"
)

// compared compares two readings as the command line does.
func compared(_ context.Context, before, after *explain.Reading) (*report.Diff, error) {
	d := fleet.NewDiff(fleet.Side{Report: before.Report, Status: before.Status}, fleet.Side{Report: after.Report, Status: after.Status})
	for was, is := range explain.Changes(before, after) {
		d.Service(was, is)
	}
	return d.Document(), nil
}

func TestDiff(t *testing.T) {
	s := demoNode(t)
	f := pagedFeed(s)
	f.Live = true
	comparisons := 0
	f.Compare = func(ctx context.Context, before, after *explain.Reading) (*report.Diff, error) {
		comparisons++
		return compared(ctx, before, after)
	}
	c := newConsole(t, f, Look{}, 130, 40).press("6")
	c.shows("6 Diff", "nothing changed since")

	broken := edited(s, withoutLine("-A KUBE-SERVICES -d 10.96.20.12/32"))
	c.turnTo(broken)
	c.shows("Diff (", "Findings that appeared (2)", "missing-service-rule", "Services (1)", "~ store/cart  changed", "ClusterIP 10.96.20.12:9000/TCP", "marked, 12:00:00, to 12:01:00")
	c.press("<end>").shows("before    ", "after     ", "lost      10.244.")
	c.press("<enter>").shows("› store/cart:grpc").press("<esc>")
	c.press("<home><down><enter>").shows("› store/cart:grpc").press("<esc>d").shows("› missing-service-rule").press("<esc>")

	// The same reading is compared once; the mark makes everything new.
	c.run(c.changed())
	if comparisons != 1 {
		t.Errorf("compared %d times", comparisons)
	}
	c.press("m").shows("6 Diff").lacks("Findings that appeared")
	c.press("<esc>6").turnTo(s)
	c.shows("Findings that are gone (2)", "missing-service-rule")
}

// TestOneComparison holds a comparison back while newer moments come.
func TestOneComparison(t *testing.T) {
	s := demoNode(t)
	f := pagedFeed(s)
	f.Live, f.Compare = true, compared
	c := newConsole(t, f, Look{}, 130, 40).press("6")
	screen := c.tabs[5].(*diff)
	moment := func(without string) *Moment {
		m, err := newMoment(edited(s, withoutLine(without)), noon, nil, explain.AuditOptions{}, false)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first, second := moment("-A KUBE-SERVICES -d 10.96.20.12/32"), moment("no such line, but read again")
	c.moment = first
	slow := screen.changed(c.Model)
	c.shows("comparing …")
	c.moment = second
	if slow == nil || screen.changed(c.Model) != nil {
		t.Fatal("two comparisons at a time")
	}
	_, next := c.Update(slow())
	if screen.new != first || !strings.Contains(c.screen(), "store/cart") {
		t.Errorf("the old comparison is not shown:\n%s", c.screen())
	}
	c.shows("comparing with")
	c.run(next)
	if screen.running || screen.new != second {
		t.Errorf("the newer moment was not compared")
	}
	c.shows("nothing changed since")

	// What was compared with another mark is no answer any more.
	c.moment = first
	slow = screen.changed(c.Model)
	c.marked = c.moment
	c.run(c.changed())
	_, next = c.Update(slow())
	c.run(next)
	if screen.doc != nil || screen.running {
		t.Errorf("an answer to an old question is shown:\n%s", c.screen())
	}
}
