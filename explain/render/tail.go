package render

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// findings lists what differs or is dangerous, with the remedy.
func (p *page) findings(all []report.Finding) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Findings"))
	for i := range all {
		f := &all[i]
		m := severity(f.Severity)
		l := line{}.cell(m.tone, m.sign+" "+m.word).cell(strong, f.ID)
		if f.Subject != "" && !strings.Contains(f.Message, f.Subject) {
			l = l.cell(noTone, f.Subject+":")
			l = l.prose(noTone, f.Message)
		} else {
			l = l.join(":").prose(noTone, f.Message)
		}
		p.write("", "", 4, l)
		p.detail("want", f.Want)
		p.detail("got", f.Got)
		for _, e := range f.Evidence {
			l := line{}.prose(faint, "evidence:")
			l = l.token(place(e))
			p.write("    ", "    ", 2, l.rule(e.Text))
		}
		for _, c := range f.Causes {
			p.detail("cause", c)
		}
		p.detail("remedy", f.Remedy)
		p.detail("see", f.Docs)
	}
}

func (p *page) detail(name, text string) {
	if text != "" {
		p.write("    ", "    ", 2, line{}.prose(faint, name+":").prose(noTone, text))
	}
}

// notEvaluated lists what lies outside of the evidence, each thing once.
func (p *page) notEvaluated(paths []report.Path) {
	var all []string
	seen := map[string]bool{}
	for i := range paths {
		for _, n := range paths[i].NotEvaluated {
			if !seen[n] {
				seen[n] = true
				all = append(all, n)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Not evaluated"))
	for _, n := range all {
		p.write("  ", "  ", 2, line{}.prose(noTone, n))
	}
}

// sources lists those that gave no answer: what they hold is not known, which is not the same as nothing.
func (p *page) sources(all []report.Source) {
	all = slices.DeleteFunc(slices.Clone(all), func(s report.Source) bool { return answers(s.Status) })
	if len(all) == 0 {
		return
	}
	p.blank()
	p.write("", "", 0, line{}.cell(strong, "Not read"))
	for _, s := range all {
		l := line{}.cell(warn, "! "+s.Status).cell(noTone, s.Name)
		if s.File != "" && s.File != s.Name {
			l = l.cell(noTone, "("+s.File+")")
		}
		if s.Error != "" {
			l = l.join(":").prose(noTone, s.Error)
		}
		p.write("  ", "  ", 2, l)
	}
}

// answers tells whether a source of this status was looked at.
func answers(status string) bool {
	return status == "ok" || status == "empty" || status == "absent"
}
