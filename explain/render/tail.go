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
		p.claim("    ", f)
		p.advice("    ", f)
		p.detail("    ", "see", f.Docs)
	}
}

// claim is what a finding says is wrong, and what that rests on; advice what may be behind it, and what to do.
func (p *page) claim(in string, f *report.Finding) {
	p.detail(in, "want", f.Want)
	p.detail(in, "got", f.Got)
	p.detail(in, "pending", f.Pending)
	for _, e := range f.Evidence {
		p.write(in, in, 2, line{}.prose(faint, "evidence:").token(place(e)).rule(e.Text))
	}
}

func (p *page) advice(in string, f *report.Finding) {
	for _, c := range f.Causes {
		p.detail(in, "cause", c)
	}
	p.detail(in, "remedy", f.Remedy)
}

func (p *page) detail(in, name, text string) {
	if text != "" {
		p.write(in, in, 2, line{}.prose(faint, name+":").prose(noTone, text))
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
