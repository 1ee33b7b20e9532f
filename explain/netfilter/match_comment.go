package netfilter

import "strings"

// comment is -m comment: text beside a rule. It tests nothing; its reader puts the text of the first one
// into Rule.Comment.
type comment struct{}

var commentMatch = extension{
	name: "comment",
	save: func(*arena) saved { return comment{} },
	list: listComment,
}

// Test always passes.
func (comment) Test(*Kernel, Hook, *Packet) Answer { return Yes }

func (comment) idle() bool { return true }

func (comment) option(o *option) bool {
	if o.name != "--comment" {
		return false
	}
	if text := o.value(); o.rule.Comment == "" {
		o.rule.Comment = text
	}
	return true
}

// listComment reads "/* text */". A text may itself hold "*/", and then the line has several readings: the
// first that leaves readable words behind is taken.
func listComment(l *listing) Match {
	l.skip()
	if l.uncommented || !strings.HasPrefix(l.s[l.i:], "/* ") {
		return nil
	}
	start := l.i + len("/* ")
	end := -1
	for from, tries := start-1, 0; tries < 4; tries++ {
		n := strings.Index(l.s[from:], " */")
		if n < 0 {
			break
		}
		at := from + n
		if end < 0 {
			end = at
		}
		after := l.s[at+len(" */"):]
		if strings.TrimLeft(after, " \t") == "" || (after[0] == ' ' && beginsListed(after)) {
			end = at
			break
		}
		from = at + 1
	}
	if end < 0 {
		l.uncommented = true
		return nil
	}
	if l.rule.Comment == "" && end > start {
		l.rule.Comment = l.s[start:end]
	}
	l.i = end + len(" */")
	return comment{}
}
