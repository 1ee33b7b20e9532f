package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Report writes an audit as text for a tired person: the summary, then the findings by root cause, each with what
// follows from it folded below, and at the end what could not be answered.
func Report(w io.Writer, r *report.Report, o Options) error {
	p := newPage(w, o)
	m := verdictMark(r)
	p.write("", "", 2, line{}.cell(m.tone, m.sign+" "+string(r.Verdict)+":").prose(noTone, r.Summary.Text).cell(noTone, "("+proxyName(r.Proxy)+")"))
	for _, g := range roots(onOneNode(r.Findings)) {
		p.blank()
		p.findingGroup(g, 0)
	}
	if len(r.Findings) > 0 {
		p.blank()
		p.write("", "", 2, line{}.prose(faint, "`svcnet explain ID` says more about a finding: what it means, how to confirm it by hand, how to fix it."))
	}
	if len(r.Unknown) > 0 {
		p.blank()
		p.write("", "", 0, line{}.cell(strong, "Not known"))
		for _, u := range unknowns(r.Unknown) {
			p.write("  ", "  ", 2, line{}.cell(warn, "?").prose(noTone, u))
		}
	}
	p.sources(r.Sources)
	return p.flush()
}

func verdictMark(r *report.Report) mark {
	switch {
	case r.Summary.Critical+r.Summary.Error > 0:
		return markError
	case r.Summary.Warning+r.Summary.Unknown > 0:
		return markWarn
	}
	return markOK
}

// located is a finding with where it was found: on which of many nodes, "" where there is one.
type located struct {
	*report.Finding
	on string
}

func onOneNode(all []report.Finding) []located {
	out := make([]located, len(all))
	for i := range all {
		out[i].Finding = &all[i]
	}
	return out
}

// group is all findings of one id, severity, cause and place, and what follows from them.
type group struct {
	findings []*report.Finding
	on       string
	follows  []*group
}

// roots groups findings by id, and puts the groups that follow from another one of the same place below it.
func roots(all []located) []*group {
	var order []*group
	byID := make(map[string]*group)
	for _, at := range all {
		f := at.Finding
		key := f.ID + " " + f.Severity + " " + f.CausedBy + " " + at.on
		c := byID[key]
		if c == nil {
			c = &group{on: at.on}
			byID[key] = c
			order = append(order, c)
		}
		c.findings = append(c.findings, f)
	}
	var out []*group
	for _, c := range order {
		cause := c.findings[0].CausedBy
		at := slices.IndexFunc(order, func(o *group) bool { return o != c && o.on == c.on && o.findings[0].ID == cause })
		if cause == "" || at < 0 {
			out = append(out, c)
			continue
		}
		order[at].follows = append(order[at].follows, c)
	}
	return out
}

// shownOfGroup is how many findings of a group are shown in full and by name.
const (
	shownInFull = 1
	shownByName = 8
)

// findingGroup writes one group of findings. depth 0 is a root cause.
func (p *page) findingGroup(c *group, depth int) {
	f := c.findings[0]
	indent := strings.Repeat("    ", depth)
	m := severity(f.Severity)
	l := line{}.cell(m.tone, m.sign+" "+f.Severity).cell(strong, f.ID)
	if c.on != "" && depth == 0 {
		l = l.prose(noTone, c.on)
	}
	l = l.join(":").prose(noTone, f.Message)
	p.write(indent, indent, 4, l)
	in := indent + "    "
	p.claim(in, f)
	if depth == 0 {
		p.advice(in, f)
	}
	p.rest(in, c.findings[shownInFull:])
	if len(c.follows) > 0 {
		p.write(in, in, 2, line{}.prose(strong, "and what follows from it:"))
		for _, kid := range c.follows {
			p.findingGroup(kid, depth+1)
		}
	}
}

// rest names further findings of a group, those of one object on one line.
func (p *page) rest(in string, more []*report.Finding) {
	if len(more) == 0 {
		return
	}
	var objects []string
	subjects := make(map[string][]string)
	for _, f := range more {
		name := objectName(f)
		if subjects[name] == nil {
			objects = append(objects, name)
		}
		if !slices.Contains(subjects[name], f.Subject) {
			subjects[name] = append(subjects[name], f.Subject)
		}
	}
	p.write(in, in, 2, line{}.prose(faint, "also:"))
	for i, name := range objects {
		if i == shownByName {
			p.write(in+"  ", in+"  ", 2, line{}.prose(noTone, fmt.Sprintf("and %d more (-o json has them all)", len(objects)-i)))
			return
		}
		text := strings.Join(subjects[name], ", ")
		if text == name {
			text = ""
		}
		p.write(in+"  ", in+"  ", 2, line{}.cell(noTone, name).prose(faint, text))
	}
}

// objectName is what a finding is about, in words.
func objectName(f *report.Finding) string {
	o := f.Object
	name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	if name == "" {
		return o.Kind
	}
	return o.Kind + " " + name
}

// unknowns says once what is missing, with the checks that lack it.
func unknowns(all []report.Unknown) []string {
	var texts []string
	ids := make(map[string][]string)
	for _, u := range all {
		if ids[u.Text] == nil {
			texts = append(texts, u.Text)
		}
		ids[u.Text] = append(ids[u.Text], u.ID)
	}
	for i, t := range texts {
		texts[i] = t + ": " + strings.Join(ids[t], ", ")
	}
	return texts
}
