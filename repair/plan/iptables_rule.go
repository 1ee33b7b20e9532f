package plan

import (
	"slices"
	"strings"
)

// sameRule tells whether two rules of one chain, as iptables-save prints them, are one and the same to packets. Versions of
// iptables print the same rule in different ways: the order of matches, blanks, a match that tests nothing more than what
// stands before it. Comments count only where they are asked for: they do nothing, and kube-proxy leaves some out in large
// clusters.
func sameRule(a, b string, comments bool) bool {
	if a == b || !comments && sameButComment(a, b) {
		return true
	}
	// Rules of one form are as long as their addresses: nearly all that differ do so in what is cheap to see.
	return jumpOf(a) == jumpOf(b) && slices.Equal(ruleParts(a, comments), ruleParts(b, comments))
}

// sameButComment tells whether two texts are the same when their comments are taken out.
func sameButComment(a, b string) bool {
	a1, a2 := aroundComment(a)
	b1, b2 := aroundComment(b)
	if len(a1) > len(b1) {
		a1, a2, b1, b2 = b1, b2, a1, a2
	}
	between := len(b1) - len(a1)
	return strings.HasPrefix(b1, a1) && len(a2) == len(b2)+between && a2[:between] == b1[len(a1):] && a2[between:] == b2
}

// aroundComment is what stands before and behind the first comment of a rule.
func aroundComment(rule string) (before, behind string) {
	const match = " -m comment --comment "
	at := strings.Index(rule, match)
	if at < 0 {
		return rule, ""
	}
	rest := rule[at+len(match):]
	if !strings.HasPrefix(rest, `"`) {
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			return rule[:at], rest[i:]
		}
		return rule[:at], ""
	}
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return rule[:at], rest[i+1:]
		}
	}
	return rule, "" // a quote that is not closed
}

// sameRules tells the same of all rules of a chain, in their order.
func sameRules(a, b []string, comments bool) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool { return sameRule(x, y, comments) })
}

// ruleKey is a rule without its comment, in one spelling.
func ruleKey(rule string) string { return strings.Join(ruleParts(rule, false), "\x00") }

// ruleParts takes a rule apart: what it tests itself, its matches sorted, its target.
func ruleParts(rule string, comments bool) []string {
	var tests, matches []string
	target := ""
	protocol := ""
	part := &tests
	flush := func(words []string) {
		if len(words) == 0 {
			return
		}
		text := strings.Join(words, " ")
		switch words[0] {
		case "-m":
			switch {
			case len(words) == 2 && words[1] == protocol:
				// "-p tcp -m tcp" tests no more than "-p tcp".
			case len(words) > 1 && words[1] == "comment" && !comments:
			default:
				matches = append(matches, text)
			}
		case "-j", "-g":
			target = text
		default:
			*part = append(*part, text)
		}
	}
	var words []string
	inTarget := false
	not := false
	for _, w := range ruleWords(rule) {
		switch {
		case inTarget:
		case w == "!":
			not = true
			continue
		case w == "-m" || w == "-j" || w == "-g":
			flush(words)
			words = nil
			inTarget = w != "-m"
		case len(w) == 2 && w[0] == '-' && w[1] != '-':
			flush(words)
			words = nil
		}
		if not {
			not = false
			words = append(words, "!")
			if len(w) == 2 && w[0] == '-' {
				// Which word a part begins with decides where it belongs.
				words[0], w = w, "!"
			}
		}
		if len(words) == 1 && words[0] == "-p" {
			protocol = w
		}
		words = append(words, w)
	}
	flush(words)
	slices.Sort(tests)
	slices.Sort(matches)
	return append(append(tests, matches...), target)
}

// ruleWords splits a rule at blanks outside of quotes.
func ruleWords(rule string) []string {
	var out []string
	var word strings.Builder
	quoted, empty := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '\\' && quoted && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
		case c == '"':
			quoted, empty = !quoted, true
		case c == ' ' && !quoted:
			if empty || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			empty = false
		default:
			word.WriteByte(c)
		}
	}
	if empty || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}
