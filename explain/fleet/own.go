package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// own replaces what belongs to one node by a word for it, so that the texts of alike nodes are equal.
type own struct {
	names, words []string
	// literal is true where nothing belongs to a node: documents of one node are compared.
	literal bool
}

func ownOf(node string, o report.Own) own {
	var out own
	add := func(name, word string) {
		if name != "" && !slices.Contains(out.names, name) {
			out.names, out.words = append(out.names, name), append(out.words, word)
		}
	}
	for _, p := range o.PodCIDRs {
		add(p, "<pods of the node>")
	}
	for _, a := range o.Addresses {
		word := "<address of the node>"
		if strings.Contains(a, ":") {
			word = "<IPv6 address of the node>"
		}
		add(a, word)
	}
	add(node, "<node>")
	// A range before its own first address, a long name before one that it begins with.
	at := make([]int, len(out.names))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(out.names[b]), len(out.names[a])), cmp.Compare(out.names[a], out.names[b]))
	})
	var s own
	for _, i := range at {
		s.names, s.words = append(s.names, out.names[i]), append(s.words, out.words[i])
	}
	return s
}

// in is text without what belongs to the node.
func (o *own) in(text string) string {
	for i, name := range o.names {
		if strings.Contains(text, name) {
			text = replaceWhole(text, name, o.words[i])
		}
	}
	return text
}

// replaceWhole replaces a name or address where it stands by itself and is no piece of a longer one.
func replaceWhole(text, name, word string) string {
	var b strings.Builder
	v6 := strings.Contains(name, ":")
	for {
		i := strings.Index(text, name)
		if i < 0 {
			break
		}
		end := i + len(name)
		b.WriteString(text[:i])
		if begins(text, i, v6) && ends(text, end, v6) {
			b.WriteString(word)
		} else {
			b.WriteString(name)
		}
		text = text[end:]
	}
	b.WriteString(text)
	return b.String()
}

// begins and ends tell whether a name may begin, or end, at a byte of a text.
func begins(text string, at int, v6 bool) bool {
	if at == 0 {
		return true
	}
	c := text[at-1]
	return !wordByte(c) && c != '.' && (!v6 || c != ':')
}

func ends(text string, at int, v6 bool) bool {
	if at == len(text) {
		return true
	}
	c := text[at]
	if c == '.' || v6 && c == ':' {
		// The end of a sentence is none of a name's.
		return at+1 == len(text) || !wordByte(text[at+1]) && text[at+1] != ':'
	}
	return !wordByte(c)
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
}

// numberless is text with its numbers left out: what a node counts is its own.
func numberless(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < '0' || c > '9' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('#')
		for i+1 < len(text) && (text[i+1] >= '0' && text[i+1] <= '9' || text[i+1] == '.' || text[i+1] == ',') {
			i++
		}
	}
	return b.String()
}
