package redact

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
)

// nameOptions are options of iptables whose value people chose, or that holds addresses in a form of its own.
var nameOptions = map[string]bool{
	"--match-set": true, "--add-set": true, "--del-set": true, "--map-set": true, "--name": true, "--hashlimit-name": true,
	"--log-prefix": true, "--nflog-prefix": true, "--string": true, "--hex-string": true, "--helper": true, "--path": true,
	"--label": true, "--u32": true, "--bytecode": true, "--object-pinned": true, "--uid-owner": true, "--gid-owner": true,
	"--nfacct-name": true, "--led-trigger-id": true, "--rateest-name": true,
}

// field is a word of a line with the blanks in front of it: quoted ones whole.
var field = regexp.MustCompile(`^(\s*)("(?:[^"\\]|\\.)*"?|/\*.*?\*/|\S+)`)

// rules rewrites what iptables prints, in each of its forms.
func (r *renaming) rules(data string) string {
	return r.eachLine(data, r.ruleLine)
}

func (r *renaming) ruleLine(line string) string {
	if strings.HasPrefix(line, "#") {
		return r.text(line, prose)
	}
	var b strings.Builder
	var subject string
	rest, last := line, ""
	destination := ""
	for rest != "" {
		f := field.FindStringSubmatch(rest)
		if f == nil {
			b.WriteString(rest) // blanks
			break
		}
		rest = rest[len(f[0]):]
		b.WriteString(f[1])
		word := f[2]
		switch {
		case last == "--comment":
			text, quote := unquote(word)
			if key, endpoint, ok := dataplane.ServicePortOf(text); ok {
				subject = key
				if endpoint.IsValid() {
					destination = endpoint.String()
				}
			}
			b.WriteString(quote + escapeQuotes(r.comment(text), quote) + quote)
		case strings.HasPrefix(word, "/*"):
			text := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(word, "/*"), "*/"))
			if key, _, ok := dataplane.ServicePortOf(text); ok {
				subject = key
			}
			b.WriteString(strings.Replace(word, text, r.comment(text), 1))
		case nameOptions[last], strings.HasPrefix(word, `"`):
			m := name
			if last == "--match-set" || last == "--add-set" || last == "--del-set" {
				m = grammar
			}
			b.WriteString(r.opaque(word, last, m))
		default:
			if last == "--to-destination" {
				destination = word
			}
			if d, ok := strings.CutPrefix(word, "to:"); ok {
				destination = d
			}
			b.WriteString(r.text(word, grammar))
		}
		last = word
		if name, _, joined := strings.Cut(word, "="); joined && strings.HasPrefix(word, "--") {
			last = name
		}
	}
	if subject != "" {
		r.learnPort(subject, netip.AddrPort{})
		if a, err := netip.ParseAddrPort(destination); err == nil {
			r.learnPort(subject, a)
		}
	}
	return b.String()
}

// opaque rewrites a value that may hold anything, numbers that spell addresses among them.
func (r *renaming) opaque(word, option string, m mode) string {
	switch option {
	case "--u32", "--bytecode", "--hex-string":
		return r.renamed(word)
	}
	return r.text(word, m)
}

func unquote(word string) (text, quote string) {
	if !strings.HasPrefix(word, `"`) {
		return word, ""
	}
	text = strings.TrimSuffix(word[1:], `"`)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text), `"`
}

func escapeQuotes(s, quote string) string {
	if quote == "" {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

// comment rewrites the comment of a rule, a set or an element.
func (r *renaming) comment(s string) string {
	if key, _, ok := dataplane.ServicePortOf(s); ok {
		if i := strings.Index(s, key); i >= 0 {
			return r.text(s[:i], grammar) + r.servicePort(key) + r.text(s[i+len(key):], grammar)
		}
	}
	return r.prose(s)
}

// eachLine rewrites line by line; line ends stay.
func (r *renaming) eachLine(data string, rewrite func(string) string) string {
	var b strings.Builder
	b.Grow(len(data))
	for line := range strings.Lines(data) {
		body := strings.TrimRight(line, "\r\n")
		b.WriteString(rewrite(body))
		b.WriteString(line[len(body):])
	}
	return b.String()
}

// quoted is a string within a line.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// nftText rewrites what nft prints, and ipset: strings behind "comment" are comments, others are names.
func (r *renaming) nftText(data string) string {
	return r.eachLine(data, func(line string) string {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			return r.text(line, prose)
		}
		var b strings.Builder
		at := 0
		for _, m := range quoted.FindAllStringIndex(line, -1) {
			before := line[at:m[0]]
			b.WriteString(r.text(before, grammar))
			text, quote := unquote(line[m[0]:m[1]])
			words := strings.Fields(before)
			last := ""
			if len(words) > 0 {
				last = words[len(words)-1]
			}
			switch last {
			case "comment":
				text = r.comment(text)
			case "prefix":
				text = r.text(text, name)
			default:
				text = r.text(text, grammar) // interfaces, marks, sets
			}
			b.WriteString(quote + escapeQuotes(text, quote) + quote)
			at = m[1]
		}
		b.WriteString(r.text(line[at:], grammar))
		return b.String()
	})
}

// lines rewrites the output of commands that print no names but those of interfaces and processes.
func (r *renaming) lines(data string) string {
	return r.eachLine(data, func(line string) string {
		var b strings.Builder
		at := 0
		for _, m := range quoted.FindAllStringIndex(line, -1) {
			b.WriteString(r.text(line[at:m[0]], grammar))
			b.WriteString(r.text(line[m[0]:m[1]], name))
			at = m[1]
		}
		b.WriteString(r.text(line[at:], grammar))
		return b.String()
	})
}
