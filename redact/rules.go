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

// nextField cuts the next word off a line, with the blanks in front of it: what is in quotes, or between the marks of a
// comment, is one. The word is empty where only blanks are left.
func nextField(s string, noComments bool) (blanks, word string) {
	n := len(s) - len(strings.TrimLeft(s, " \t\n\f\r"))
	blanks, s = s[:n], s[n:]
	switch {
	case s == "":
		return blanks, ""
	case s[0] == '"':
		return blanks, s[:stringEnd(s, 0)]
	case strings.HasPrefix(s, "/*") && !noComments:
		if end := strings.Index(s[2:], "*/"); end >= 0 {
			return blanks, s[:end+4]
		}
	}
	if end := strings.IndexAny(s, " \t\n\f\r"); end >= 0 {
		return blanks, s[:end]
	}
	return blanks, s
}

// bytecode is a program of the kernel's filter as a list shows it.
var bytecode = regexp.MustCompile(`(\bmatch bpf )(pinned \S+|\d[\d ,]*\d)`)

// columns finds the source and the destination in a line of a list, behind its options ("--"): there iptables writes
// names for addresses where it finds any.
type columns struct {
	before []string
	after  int // fields behind the options; -1 before them
	first  int // which of them is the source
}

// host tells whether the next word is an address, or the name of one.
func (c *columns) host(word string) bool {
	if c.after >= 0 {
		c.after++
		return c.after-1 == c.first || c.after-1 == c.first+1
	}
	switch n := len(c.before); {
	case n > 5, n == 0 && strings.HasPrefix(word, "-"):
		c.before = append(c.before, "", "", "", "", "", "") // no line of a list
	case n > 0 && (word == "--" || word == "-f" || word == "!f"):
		c.after = 0
		if n > 2 && counter.MatchString(c.before[0]) && counter.MatchString(c.before[1]) {
			c.first = 2 // with counters there are devices in front
		}
	default:
		c.before = append(c.before, word)
	}
	return false
}

// counter is a number of packets or bytes in a list.
var counter = regexp.MustCompile(`^\d+[KMGTP]?$`)

// anywhere are names that iptables itself gives addresses.
var anywhere = set("anywhere", "localhost", "default", "any", "loopback", "link-local")

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
	rest = bytecode.ReplaceAllStringFunc(rest, func(f string) string {
		m := bytecode.FindStringSubmatch(f)
		return m[1] + r.renamed(m[2])
	})
	list := columns{after: -1}
	noComments := false
	for rest != "" {
		blanks, word := nextField(rest, noComments)
		rest = rest[len(blanks)+len(word):]
		b.WriteString(blanks)
		if word == "" {
			break
		}
		noComments = noComments || word == "/*" || strings.HasPrefix(word, "/*") && !strings.HasSuffix(word, "*/")
		switch {
		case list.host(word):
			bare, _, _ := strings.Cut(strings.TrimPrefix(word, "!"), "/")
			if anywhere[bare] {
				b.WriteString(word)
			} else {
				b.WriteString(r.text(word, host))
			}
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
	case "--u32", "u32", "--bytecode", "--hex-string":
		return r.renamed(word)
	}
	return r.text(word, m)
}

// unescape and escape are made once: a line may hold very many strings.
var (
	unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
	escape   = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

func unquote(word string) (text, quote string) {
	if !strings.HasPrefix(word, `"`) {
		return word, ""
	}
	text = strings.TrimSuffix(word[1:], `"`)
	return unescape.Replace(text), `"`
}

func escapeQuotes(s, quote string) string {
	if quote == "" {
		return s
	}
	return escape.Replace(s)
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
		if m := prompt.FindStringSubmatch(body); m != nil {
			b.WriteString(m[1] + r.text(m[2], host) + r.text(m[3], host) + r.text(m[4], grammar))
			b.WriteString(rewrite(body[len(m[0]):]))
		} else {
			b.WriteString(rewrite(body))
		}
		b.WriteString(line[len(body):])
	}
	return b.String()
}

// prompt is a shell's, which captures have in front of commands: its user, its node, and where it is.
var prompt = regexp.MustCompile(`^([\s(\[]*)([A-Za-z0-9._-]+@)?([A-Za-z0-9._-]+)((?::[~/][^\s#$]*|\s+[~/][^\s#$]*)\]?\s?[#$]\s)`)

// quoted is a string within a line.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// nftText rewrites what nft prints, and ipset: strings behind "comment" are comments, others are names.
func (r *renaming) nftText(data string) string {
	return r.eachLine(data, func(line string) string {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			return r.text(line, prose)
		}
		line = r.packetLine(line)
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
	return r.eachLine(data, func(line string) string { return r.within(line, quoted, name) })
}

// within rewrites a line of which the last group of every match is taken in another mode; without a group it is the match.
func (r *renaming) within(line string, found *regexp.Regexp, inside mode) string {
	var b strings.Builder
	at := 0
	for _, m := range found.FindAllStringSubmatchIndex(line, -1) {
		from, to := m[len(m)-2], m[len(m)-1]
		b.WriteString(r.text(line[at:from], grammar))
		b.WriteString(r.text(line[from:to], inside))
		at = to
	}
	b.WriteString(r.text(line[at:], grammar))
	return b.String()
}
