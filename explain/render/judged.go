package render

import (
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Level is how bad something is that is shown.
type Level uint8

// The levels: as it should be, a remark, a warning, an error.
const (
	Fine Level = iota
	Remark
	Warning
	Error
)

// Sign is the sign of a level.
func (l Level) Sign() string {
	switch l {
	case Fine:
		return markOK.sign
	case Warning:
		return markWarn.sign
	case Error:
		return markError.sign
	}
	return severity("info").sign
}

// Judged is how a part of a document is marked: a sign, the word that says the same, and what it is about. Text is empty
// where there is nothing to say.
type Judged struct {
	Level            Level
	Sign, Word, Text string
}

func judged(m mark, text string) Judged {
	j := Judged{Sign: m.sign, Word: m.word, Text: text}
	switch m.tone {
	case good:
		j.Level = Fine
	case warn:
		j.Level = Warning
	case bad:
		j.Level = Error
	default:
		j.Level = Remark
	}
	return j
}

// JudgeSeverity is the mark of a finding of a severity: critical, error, warning, info. An empty one is fine.
func JudgeSeverity(s string) Judged {
	if s == "" {
		return judged(markOK, "")
	}
	return judged(severity(s), "")
}

// JudgePath is the mark of a path, and in a few words what happens on it.
func JudgePath(p *report.Path) Judged {
	var words []string
	for _, w := range pathHead(p) {
		words = append(words, w.text)
	}
	m := judge(p)
	if m == markOK && len(p.Uncertain) > 0 {
		m = markWarn
	}
	text := strings.Join(words, " ")
	return judged(m, strings.TrimPrefix(text, m.sign+" "+m.word+": "))
}

// JudgeBackend is the mark of a backend of a path, and why it has it.
func JudgeBackend(p *report.Path, b *report.Backend) Judged {
	m, why := judgeBackend(p, b)
	if inside, text := judgeInside(b.Inside); m == markOK && inside != markOK {
		m, why = inside, text
	}
	return judged(m, why)
}

// JudgeReply is the mark of an answer's way back, and what is wrong with it.
func JudgeReply(r *report.Reply) Judged { return judged(judgeReply(r)) }

// Percent is a share of 0 to 1 in words of one decimal; a real share never looks like none or all.
func Percent(share float64) string { return percent(share) }

// Dial is "address:port", with brackets around IPv6; without port the address alone.
func Dial(address string, port int) string { return dial(address, port) }

// Dialed is a frontend as clients dial it, with protocol and port name.
func Dialed(f report.Frontend) string { return dialed(f) }

// Clients is what the clients of a source class are called.
func Clients(class string) string { return className(client{class: class}) }

// Brief is the rule of a hop without what its place in the tree says already: the chain, and comments.
func Brief(h *report.Hop) string { return brief(h) }

// BuiltIn tells whether a chain of iptables is one that the kernel calls.
func BuiltIn(chain string) bool { return builtIn(chain) }

// Place is "file:line".
func Place(e report.Evidence) string { return place(e) }

// Proxy names what serves Services on a node.
func Proxy(p report.Proxy) string { return proxyName(p) }

// ASCII replaces the signs of this program by their usual ASCII spelling, and escapes what else is none.
func ASCII(s string) string { return toASCII(s) }
