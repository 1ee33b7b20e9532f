package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
)

// headLines are those above every screen: whose node this is and how it fares, and the tabs.
const headLines = 2

// tabGap stands between tabs.
const tabGap = 2

// header says whose node this is, how it fares, and how old that is.
func (m *Model) header() row {
	var left, right row
	left = left.add(accent, "svcnet")
	switch {
	case m.moment == nil && m.early != nil:
		left = left.gap(2).add(strong, m.early.Node).gap(2).add(faint, render.Proxy(m.early.Proxy))
	case m.moment == nil:
		left = left.gap(2).add(plain, m.feed.From)
	default:
		name := m.moment.Node
		if name == "" {
			name = "a node that the evidence does not name"
		}
		r := m.moment.Reading.Report
		left = left.gap(2).add(strong, name).gap(2).add(faint, render.Proxy(r.Proxy))
		right = m.counts(m.width >= 90)
	}
	right = right.gap(2)
	right = append(right, m.age()...)
	room := m.width - right.width() - 1
	if n := left.width(); n > room {
		left = cut(left, room)
	}
	return append(left.gap(m.width-left.width()-right.width()), right...)
}

// counts are the findings by severity, in words where there is room.
func (m *Model) counts(words bool) row {
	var r row
	s := m.moment.Reading.Report.Summary
	for _, c := range []struct {
		n    int
		sev  string
		word string
	}{{s.Critical, "critical", "critical"}, {s.Error, "error", "error"}, {s.Warning, "warning", "warning"}} {
		if c.n > 0 {
			j := render.JudgeSeverity(c.sev)
			text := strconv.Itoa(c.n)
			if words {
				text = plural(c.n, c.word)
			}
			r = r.gap(min(len(r), 1)).add(toneOf(j.Level), j.Sign+" "+text)
		}
	}
	if n := len(explain.MissingSources(m.moment.Reading.Report.Sources)); n > 0 {
		// What was not read has no findings, and is not well for that.
		r = row{}.add(bad, "✗ "+plural(n, "source")+" not read").gap(min(len(r), 1)).append(r)
	}
	if len(r) == 0 {
		j := render.JudgeSeverity("")
		sign := span{j.Sign, toneOf(j.Level)}
		if s.Unknown > 0 {
			sign = span{"?", note}
		}
		r = append(r, sign).add(plain, " no findings")
	}
	if s.Unknown > 0 {
		text := strconv.Itoa(s.Unknown)
		if words {
			text += " unknown"
		}
		r = r.gap(1).add(note, "? "+text)
	}
	return r
}

// age says how old what is shown is, and what keeps it from being newer.
func (m *Model) age() row {
	var r row
	now := m.feed.Now()
	old := ""
	if m.moment != nil {
		old = ago(now.Sub(m.moment.At))
	}
	switch {
	case m.reading.failed != nil && m.moment == nil:
		return r.add(bad, "✗ not read")
	case m.reading.failed != nil:
		return r.add(bad, "✗ read failed, this is "+old)
	case !m.feed.Live && m.moment != nil:
		return r.add(faint, "from "+strings.TrimRight(fit(m.feed.From, min(24, ansi.StringWidth(m.feed.From))), " "))
	case m.paused:
		return r.add(warn, "paused, "+old)
	case m.moment == nil && m.reading.all > 0:
		return r.add(note, fmt.Sprintf("read %d of %d nodes", m.reading.done, m.reading.all))
	case m.moment == nil && m.early != nil:
		return r.add(note, "checking …")
	case m.moment == nil:
		return r.add(note, "reading …")
	case !m.reading.since.IsZero() && now.Sub(m.reading.since) > 5*time.Second:
		return r.add(warn, fmt.Sprintf("reading for %s, this is %s", seconds(now.Sub(m.reading.since)), old))
	}
	return r.add(faint, "live, "+old)
}

// ago is an age in words.
func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return seconds(d) + " old"
}

func seconds(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%dh", int(d.Hours()))
}

func plural(n int, word string) string {
	if n == 1 || word == "critical" {
		return fmt.Sprintf("%d %s", n, word)
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// tabName is a tab with its number, and how much there is in it.
func (m *Model) tabName(i int) string { return fmt.Sprintf("%d %s", i+1, m.tabs[i].title(m)) }

// tabLine shows the tabs, or where what lies over them was come to.
func (m *Model) tabLine() row {
	var r row
	if len(m.over) > 0 {
		r = r.add(faint, m.tabs[m.tab].title(m))
		for _, s := range m.over {
			r = r.add(faint, " › ").add(strong, s.title(m))
		}
		return r
	}
	for i := range m.tabs {
		t := faint
		if i == m.tab {
			t = accent
		}
		r = r.add(t, m.tabName(i)).gap(tabGap)
	}
	return r
}

// footer is what there is to say, or the keys that are most useful now.
func (m *Model) footer() row {
	var r row
	t, prompts := m.top().(interface{ prompt(m *Model) row })
	typed, typing := m.top().(typing)
	switch {
	case prompts && typing && typed.types():
		return t.prompt(m)
	case m.said != "":
		return r.add(m.saidTone, m.said)
	case prompts:
		if p := t.prompt(m); p != nil {
			return p
		}
	}
	k := m.keys
	hints := append([]binding{k.help}, m.top().keys(m)...)
	if len(m.over) > 0 {
		hints = append([]binding{k.help, k.back}, m.top().keys(m)...)
	} else {
		hints = append(hints, k.quit)
	}
	for _, b := range hints {
		piece := row{}.add(accent, m.theme.keyName(&b)).gap(1).add(faint, b.does())
		if r.width()+piece.width()+2 > m.width {
			break
		}
		r = append(r.gap(2*min(len(r), 1)), piece...)
	}
	return r
}

// cut shortens a row to a width.
func cut(r row, width int) row {
	var out row
	for _, s := range r {
		n := row{s}.width()
		if n > width {
			return append(out, span{strings.TrimRight(fit(s.text, width), " "), s.tone})
		}
		out, width = append(out, s), width-n
	}
	return out
}
