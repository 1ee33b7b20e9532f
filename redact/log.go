package redact

import (
	"regexp"
	"strings"
)

// nameKeys are keys of structured logs whose value is a name, or several.
const nameKeys = `[Nn]ame|[Nn]ode|node[Nn]ame|hostname|[Nn]amespace|[Pp]od|[Ss]ervice|[Ss]ervice(?:Port)?Name|svcPortName|svcName|endpoint[Ss]lice|object|host|user|cluster`

var (
	// namedValue is a value of a structured log that is a name.
	namedValue = regexp.MustCompile(`\b(` + nameKeys + `)=("(?:[^"\\]|\\.)*"|[^\s",]+)`)
	// portInText is a service port within a message.
	portInText = regexp.MustCompile(`\b[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9]*:[a-z0-9][-a-z0-9]*\b`)
	klogHead   = regexp.MustCompile(`^[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d+ +\d+ [A-Za-z0-9_.-]+\.go:\d+\]`)
)

// prose rewrites a line that is text for people, as a program's log.
func (r *renaming) prose(s string) string {
	if head := klogHead.FindString(s); head != "" {
		return head + r.prose(s[len(head):])
	}
	var b strings.Builder
	at := 0
	write := func(m []int) {
		b.WriteString(r.text(s[at:m[0]], prose))
	}
	for at < len(s) {
		m := namedValue.FindStringSubmatchIndex(s[at:])
		p := portInText.FindStringIndex(s[at:])
		switch {
		case m == nil && p == nil:
			b.WriteString(r.text(s[at:], prose))
			return b.String()
		case m != nil && (p == nil || m[0] <= p[0]):
			for i := range m {
				m[i] += at
			}
			write(m)
			b.WriteString(s[m[2]:m[3]])
			b.WriteByte('=')
			b.WriteString(r.text(s[m[4]:m[5]], name))
			at = m[1]
		default:
			p[0], p[1] = p[0]+at, p[1]+at
			write(p)
			b.WriteString(r.text(s[p[0]:p[1]], r.modeOfPort(s[p[0]:p[1]])))
			at = p[1]
		}
	}
	return b.String()
}

// modeOfPort tells a service port from a file with a line ("proxier/x:12").
func (r *renaming) modeOfPort(s string) mode {
	_, last, _ := strings.Cut(s, ":")
	if plainNumber.MatchString(last) {
		return prose
	}
	return name
}

// log rewrites a program's log.
func (r *renaming) log(data string) string { return r.eachLine(data, r.prose) }
