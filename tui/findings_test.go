package tui

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/svcnet/svcnet/collectors/snapshot"
	docs "github.com/svcnet/svcnet/docs/findings"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// pagedFeed is a feed that also knows the pages of findings.
func pagedFeed(s *snapshot.Snapshot) *Feed {
	f := feedOf(s)
	f.Page = docs.Page
	return f
}

// edited is a node whose IPv4 rules have other text.
func edited(s *snapshot.Snapshot, edit func([]byte) []byte) *snapshot.Snapshot {
	out := *s
	out.Evidence = slices.Clone(s.Evidence)
	for i := range out.Evidence {
		if e := &out.Evidence[i]; e.File == "iptables-save.txt" {
			e.Data = edit(slices.Clone(e.Data))
		}
	}
	return &out
}

// withoutLine leaves out the lines that have a text.
func withoutLine(text string) func([]byte) []byte {
	return func(data []byte) []byte {
		var out []byte
		for l := range bytes.Lines(data) {
			if !bytes.Contains(l, []byte(text)) {
				out = append(out, l...)
			}
		}
		return out
	}
}

// turnTo shows another moment of the node, as if it had been read.
func (c *console) turnTo(s *snapshot.Snapshot) {
	c.t.Helper()
	moment, err := newMoment(s, noon.Add(time.Minute), nil, explain.AuditOptions{}, false)
	if err != nil {
		c.t.Fatal(err)
	}
	c.before, c.moment = c.moment, moment
	c.run(c.changed())
}

// under is the row under the cursor.
func (c *console) under() string {
	c.t.Helper()
	for _, l := range strings.Split(c.screen(), "\n") {
		if strings.HasPrefix(l, "›") || strings.HasPrefix(l, ">") {
			return l
		}
	}
	return ""
}

// lacks fails where a text is on the screen.
func (c *console) lacks(texts ...string) *console {
	c.t.Helper()
	for _, text := range texts {
		if s := c.screen(); strings.Contains(s, text) {
			c.t.Errorf("the screen shows %q:\n%s", text, s)
		}
	}
	return c
}

func TestFindings(t *testing.T) {
	s := demoNode(t)
	c := newConsole(t, pagedFeed(s), Look{}, 120, 32).press("2")
	c.shows("2 Findings (7)", "›✗ error    missing-endpoint-rule", " ! warning  └ service-without-endpoints",
		" ? unknown  nodeport-in-ephemeral-range", "want      33.3%", "iptables-save.txt:139", "remedy    find out whether kube-proxy")
	lines := strings.Split(c.screen(), "\n")
	row := func(text string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.Contains(strings.Split(l, "│")[0], text) })
	}
	if cause, follows := row("selector-matches-no-pods"), row("└ service-without-endpoints"); follows != cause+1 {
		t.Errorf("what follows stands in line %d, its cause in line %d", follows, cause)
	}

	c.press("/sev:warn !stale<enter>").shows("missing-endpoint-rule", "selector-matches-no-pods", "filter sev:warn !stale").
		lacks("stale-endpoint-rule  ", "local-policy-no-local", "? unknown  ")
	c.press("<esc>/id:conntrack<enter>").shows("›? unknown  conntrack-insert-failed", "neither raised nor excluded").lacks("selector-matches")
	c.press("<esc>/ns:store web<enter>").shows("stale-endpoint-rule").lacks("selector-matches", "conntrack")
	c.press("<esc>/nosuchthing<enter>").shows("no finding is left of the filter")
	c.press("<enter>").shows("there is no finding under the cursor")
	c.press("<esc><home>")

	c.press("<down>c").shows("kubectl svcnet explain stale-endpoint-rule")
	if !slices.ContainsFunc(c.wrote, func(s string) bool { return strings.HasPrefix(s, "\x1b]52;") }) {
		t.Errorf("nothing was copied: %q", c.wrote)
	}
	c.press("d").shows("Findings (7) › stale-endpoint-rule", "What it means").press("<esc>")
	c.press("w").shows("Findings (7) › stale-endpoint-rule", "a partial sync left the chain behind").press("<esc>")
	c.press("<enter>").shows("Findings (7) › store/web:http", "10.244.1.11:8080")
	if under := c.under(); !strings.Contains(under, "stale") {
		t.Errorf("the cursor is on %q", under)
	}
	c.press("<esc>").shows("›✗ error    stale-endpoint-rule")

	// The cursor stays on its finding when others come.
	c.press("<down>")
	other := edited(s, withoutLine("-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES"))
	c.turnTo(other)
	c.shows("kube-jump-missing", "›! warning  selector-matches-no-pods")
	c.press("/kube-jump<enter><enter>").shows("this is about the node", "kube-jump-missing").lacks("ABOUT")
	c.press("<esc><esc>").turnTo(s)
	c.lacks("kube-jump-missing")
}

// allTabs are the keys of the screens.
const allTabs = "123456"

// TestDrawn looks at every screen in every size: nothing is wider or higher than the terminal, within ASCII where that is
// asked for, and the row under the cursor is marked by more than its colour.
func TestDrawn(t *testing.T) {
	s := demoNode(t)
	for _, size := range [][2]int{{60, 15}, {80, 24}, {109, 30}, {110, 30}, {200, 60}} {
		for _, l := range []Look{{}, {ASCII: true}, {Colors: Colors256}} {
			f := pagedFeed(s)
			f.Compare = compared
			f.Nodes = func(context.Context, func(done, all int)) (*report.Reports, error) { return fleetOf(), nil }
			f.Node = "node-1"
			c := newConsole(t, f, l, size[0], size[1])
			c.run(c.read())
			check := func(where string) {
				t.Helper()
				lines := strings.Split(c.screen(), "\n")
				if len(lines) != size[1] {
					t.Errorf("%v %s: %d lines", size, where, len(lines))
				}
				for _, line := range lines {
					if n := ansi.StringWidth(line); n > size[0] {
						t.Errorf("%v %s: %d wide: %q", size, where, n, line)
					}
					for _, r := range line {
						if l.ASCII && r >= 0x80 {
							t.Fatalf("%v %s: not within ASCII: %q", size, where, line)
						}
					}
				}
			}
			c.turnTo(edited(s, withoutLine("-A KUBE-SERVICES -d 10.96.20.12/32")))
			for _, tab := range allTabs {
				c.press(string(tab))
				check("tab " + string(tab))
				if c.under() == "" && tab != '4' {
					t.Errorf("%v %c: no row under the cursor:\n%s", size, tab, c.screen())
				}
				c.press("<end>")
				check("end of tab " + string(tab))
				c.press("w")
				check("details of tab " + string(tab))
				c.press("<esc>d")
				check("page of tab " + string(tab))
				c.press("<esc>")
			}
		}
	}
}

// TestHostile shows documents that are made to move the cursor.
func TestHostile(t *testing.T) {
	const hostile = "\x1b]0;x\x07 \u202egnp\r\n"
	f := pagedFeed(demoNode(t))
	f.Compare = func(context.Context, *explain.Reading, *explain.Reading) (*report.Diff, error) {
		return &report.Diff{
			Appeared: []report.Finding{{ID: hostile, Message: hostile, Subject: hostile}}, Settings: []report.SettingDiff{{Name: hostile, After: hostile}},
			Services: []report.ServiceDiff{{Namespace: hostile, Name: hostile, Change: "changed", Paths: []report.PathDiff{{Frontend: hostile, Before: hostile, Gained: []string{hostile}}}}},
			Summary:  report.DiffSummary{Text: hostile},
		}, nil
	}
	fleet := fleetOf()
	fleet.Kinds[0].Differs, fleet.Kinds[0].Text, fleet.Unread[0].Error, fleet.Summary.Text = []string{hostile}, hostile, hostile, hostile
	fleet.Kinds[1].Nodes[0] = hostile
	f.Nodes = func(context.Context, func(done, all int)) (*report.Reports, error) { return fleet, nil }
	c := newConsole(t, f, Look{}, 160, 40)
	c.turnTo(edited(demoNode(t), withoutLine("-A KUBE-SERVICES -d 10.96.20.12/32")))
	r, st := *c.moment.Reading.Report, *c.moment.Reading.Status
	r.Findings = []report.Finding{{
		ID: hostile, Severity: "error", Object: report.Object{Kind: hostile, Namespace: hostile, Name: hostile}, Message: hostile, Want: hostile, Got: hostile,
		Evidence: []report.Evidence{{File: hostile, Text: hostile}}, Causes: []string{hostile}, Remedy: hostile, Docs: hostile, CausedBy: hostile, Pending: hostile,
	}}
	r.Unknown = []report.Unknown{{ID: hostile, Sources: []string{hostile}, Text: hostile}}
	r.Sources = []report.Source{{Name: hostile, Status: hostile, File: hostile, Error: hostile}}
	st.Summary.Text, st.Grounds, st.Traits = hostile, []report.Ground{{Text: hostile}}, []report.Trait{{Name: hostile, Value: hostile, Facts: []report.Fact{{Note: hostile, Value: hostile}}}}
	c.moment.Reading.Report, c.moment.Reading.Status = &r, &st
	c.run(c.changed())
	for _, tab := range allTabs[1:] {
		for _, keys := range []string{"", "<end>", "w", "d", "<enter>", "<esc>c"} {
			c.press(string(tab) + keys)
			for _, sign := range []string{"\x1b", "\x07", "\u202e", "\r"} {
				if strings.Contains(c.screen(), sign) {
					t.Errorf("tab %c %s: %q is shown:\n%q", tab, keys, sign, c.screen())
				}
			}
			c.press("<esc>")
		}
	}
	c.press("2").shows(`\x1b]0;x\x07`, `\u202egnp`)
}
