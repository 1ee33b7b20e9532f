package render

import (
	"io"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Status writes a node's status as text: the verdict, what it rests on, and the proxy's traits, each with where it is
// known from and what contradicts it.
func Status(w io.Writer, s *report.NodeStatus, o Options) error {
	p := newPage(w, o)
	m := statusMark(s.Verdict)
	p.write("", "", 2, line{}.cell(m.tone, m.sign).prose(strong, s.Summary.Text))
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Rests on"))
	for _, g := range s.Grounds {
		p.write("  ", "  ", 2, line{}.prose(noTone, g.Text))
		for _, e := range g.Evidence {
			p.write("    ", "    ", 2, line{}.prose(faint, "evidence:").token(place(e)).rule(e.Text))
		}
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "The proxy"))
	width := 0
	for _, t := range s.Traits {
		width = max(width, columns(t.Name))
	}
	for i := range s.Traits {
		p.trait(&s.Traits[i], width)
	}
	if s.Captured != "" || s.Tool != "" {
		p.blank()
		p.write("", "", 2, line{}.prose(faint, strings.TrimSpace("Evidence taken "+s.Captured+by(s.Tool))))
	}
	p.sources(s.Sources)
	return p.flush()
}

func by(tool string) string {
	if tool == "" {
		return ""
	}
	return " by " + tool
}

// trait writes one trait, and below it every fact that it rests on or that contradicts it.
func (p *page) trait(t *report.Trait, width int) {
	value, tone := t.Value, strong
	if value == "" {
		value, tone = "not known", faint
	}
	l := line{}.cell(noTone, padRight(t.Name, width)).cell(tone, value)
	if t.Note != "" {
		l = l.prose(faint, "("+t.Note+")")
	}
	p.write("  ", "  ", width+2, l)
	in := "  " + strings.Repeat(" ", width+2)
	for _, f := range t.Facts {
		l := line{}.prose(faint, orElse(f.Note, "from"))
		if f.Value != t.Value && f.Value != "" {
			l = line{}.prose(noTone, f.Value)
			if f.Note != "" {
				l = l.prose(faint, f.Note)
			}
		}
		p.write(in, in, 2, l.token(place(f.Evidence)).rule(f.Evidence.Text))
	}
}

func statusMark(v report.StatusVerdict) mark {
	switch v {
	case report.StatusHealthyProgrammed:
		return markOK
	case report.StatusNotRunning, report.StatusNotHealthy, report.StatusHealthyNotProgrammed, report.StatusNotProgrammed:
		return markError
	}
	return markWarn
}
