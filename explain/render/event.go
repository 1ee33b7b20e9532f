package render

import (
	"io"

	"github.com/svcnet/svcnet/explain/report"
)

// Event writes an event of a node that is watched: when, what, and who wrote rules before it.
func Event(w io.Writer, e *report.NodeEvent, o Options) error {
	p := newPage(w, o)
	m := eventMark(e)
	l := line{}.cell(faint, clock(e.Time)).cell(m.tone, m.sign+" "+m.word).prose(noTone, e.Text)
	if e.Lag == nil && len(e.Writers) > 0 {
		last := e.Writers[len(e.Writers)-1]
		l = l.prose(faint, "(rules were last written at "+clock(last.Time)+" by").token(last.Process + ")")
	}
	p.write("", "", 2, l)
	return p.flush()
}

// eventMark is the mark of an event: the severity of a finding that appeared, good for what is over.
func eventMark(e *report.NodeEvent) mark {
	switch {
	case e.Type == report.EventAppeared && e.Finding != nil:
		m := severity(e.Finding.Severity)
		m.word = string(e.Type)
		return m
	case e.Type == report.EventCleared, e.Type == report.EventSource && e.Source != nil && e.Source.Status == "ok":
		return mark{markOK.sign, string(e.Type), good}
	case e.Type == report.EventSource:
		return mark{markWarn.sign, string(e.Type), warn}
	}
	return mark{"·", string(e.Type), noTone}
}

// clock is the time of day of a time, to the millisecond.
func clock(stamp string) string {
	const from, to = len("2006-01-02T"), len("2006-01-02T15:04:05.000")
	if len(stamp) < to {
		return stamp
	}
	return stamp[from:to]
}
