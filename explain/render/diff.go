package render

import (
	"io"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Diff writes what changed between two readings: the summary, then Services with the clients for whom they changed,
// findings that appeared and those that are gone, settings and sources.
func Diff(w io.Writer, d *report.Diff, o Options) error {
	p := newPage(w, o)
	m := markOK
	if !d.Summary.Same {
		m = markWarn
	}
	for i := range d.Appeared {
		if f := severity(d.Appeared[i].Severity); f.tone == bad {
			m = markError
		}
	}
	p.write("", "", 2, line{}.cell(m.tone, m.sign).prose(strong, d.Summary.Text))
	if len(d.Services) > 0 {
		p.blank()
		p.write("", "", 0, line{}.cell(strong, "Services"))
		for i := range d.Services {
			p.serviceDiff(&d.Services[i])
		}
	}
	p.findingsThat("Findings that appeared", d.Appeared, true)
	p.findingsThat("Findings that are gone", d.Cleared, false)
	p.valuesThat("Settings", d.Settings)
	p.valuesThat("Not known on one side", d.Unknown)
	p.valuesThat("Sources", d.Sources)
	for _, s := range []report.DiffSide{d.Before, d.After} {
		if len(s.Missing) > 0 {
			p.blank()
			where := "Not read on " + orElse(s.Node, "a node without a name")
			if s.Captured != "" {
				where += " at " + s.Captured
			}
			p.write("", "", 2, line{}.cell(warn, "! ").prose(noTone, where+": "+strings.Join(s.Missing, ", ")))
		}
	}
	return p.flush()
}

func (p *page) serviceDiff(s *report.ServiceDiff) {
	sign := map[string]string{"added": "+", "removed": "-"}[s.Change]
	p.write("  ", "  ", 2, line{}.cell(noTone, orElse(sign, "~")).prose(strong, s.Namespace+"/"+s.Name).cell(noTone, s.Change))
	for i := range s.Paths {
		d := &s.Paths[i]
		p.write("      ", "      ", 2, line{}.cell(noTone, d.Frontend).prose(noTone, "from "+strings.Join(d.SourceClasses, ", ")))
		in := "        "
		p.detail(in, "before", orElse(d.Before, "no such clients or address"))
		p.detail(in, "after", orElse(d.After, "no such clients or address"))
		p.detail(in, "gained", strings.Join(d.Gained, ", "))
		p.detail(in, "lost", strings.Join(d.Lost, ", "))
	}
}

func (p *page) findingsThat(title string, all []report.Finding, inFull bool) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, title))
	for i := range all {
		f := &all[i]
		m := severity(f.Severity)
		if !inFull {
			m.tone = faint
		}
		p.write("  ", "  ", 2, line{}.cell(m.tone, m.sign+" "+f.Severity).cell(strong, f.ID).join(":").prose(noTone, f.Message))
		if inFull {
			p.claim("      ", f)
			p.detail("      ", "remedy", f.Remedy)
		}
	}
}

func (p *page) valuesThat(title string, all []report.SettingDiff) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, title))
	for _, s := range all {
		p.write("  ", "  ", 2, line{}.cell(noTone, s.Name).join(":").prose(noTone, orElse(s.Before, "not known")+" → "+orElse(s.After, "not known")))
	}
}
