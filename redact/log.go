package redact

import (
	"regexp"
	"strings"
)

// nameKeys are keys of structured logs whose value is a name, or several.
const nameKeys = `[Nn]ame|[Nn]ode|node[Nn]ame|hostname|[Nn]amespace|[Pp]od|[Ss]ervice|[Ss]ervice(?:Port)?Name|svcPortName|svcName|endpoint[Ss]lice|object|host|user|cluster` +
	`|(?:port|pod|container|node|host|endpoint[Ss]lice|endpoints|zone|cluster|volume|secret|configMap|user|domain)(?:Name|Namespace)` +
	`|hostname-override|node-name|cluster-name`

var (
	// namedValue is a value of a structured log that is a name.
	namedValue = regexp.MustCompile(`\b(` + nameKeys + `)=("(?:[^"\\]|\\.)*"|[^\s",]+)`)
	// portInText is a service port within a message.
	portInText = regexp.MustCompile(`\b[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9]*:[a-z0-9][-a-z0-9]*\b|"[a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*"`)
	// syslogHead is what the system's log puts in front of a line: the time, the node and the program.
	syslogHead = regexp.MustCompile(`^((?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)) )(\S+)( [A-Za-z0-9_.()-]+(?:\[\d+\])?: )`)
	// mediaType is what looks like a Service in quotes, and is the form of a document.
	mediaType = regexp.MustCompile(`^"(?:text|application|net|kernel|fs)/`)
	klogHead  = regexp.MustCompile(`^[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d+ +\d+ [A-Za-z0-9_.-]+\.go:\d+\]`)
)

// prose rewrites a line that is text for people, as a program's log.
func (r *renaming) prose(s string) string {
	if head := klogHead.FindString(s); head != "" {
		return head + r.prose(s[len(head):])
	}
	if m := syslogHead.FindStringSubmatch(s); m != nil {
		return m[1] + r.text(m[2], host) + r.text(m[3], prose) + r.prose(s[len(m[0]):])
	}
	var b strings.Builder
	at := 0
	write := func(m []int) {
		b.WriteString(r.text(s[at:m[0]], prose))
	}
	// What was found further on is kept until it is reached: each is looked for once.
	from := func(find func(string) []int, found []int) []int {
		if found != nil && found[0] >= at || found == nil && at > 0 {
			return found
		}
		found = find(s[at:])
		for i := range found {
			found[i] += at
		}
		return found
	}
	named, ports := strings.Contains(s, "="), strings.Contains(s, "/")
	var m, p []int
	for at < len(s) {
		if named {
			m = from(namedValue.FindStringSubmatchIndex, m)
		}
		if ports {
			p = from(portInText.FindStringIndex, p)
		}
		switch {
		case m == nil && p == nil:
			b.WriteString(r.text(s[at:], prose))
			return b.String()
		case m != nil && (p == nil || m[0] <= p[0]):
			write(m)
			b.WriteString(s[m[2]:m[3]])
			b.WriteByte('=')
			b.WriteString(r.text(s[m[4]:m[5]], name))
			at = m[1]
		default:
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
	if plainNumber.MatchString(last) || mediaType.MatchString(s) {
		return prose
	}
	return name
}

// log rewrites a program's log.
func (r *renaming) log(data string) string { return r.eachLine(data, r.prose) }
