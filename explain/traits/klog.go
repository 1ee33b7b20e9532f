package traits

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// entry is one log line, taken apart.
type entry struct {
	time string // "0105 09:46:26.462441", empty where the format has none
	msg  string // the message alone: unquoted where the line is structured
	// all is the message with its key="value" pairs.
	all string
	// head is true when the line begins an entry, false when it continues one.
	head bool
}

// value returns the value of a key="value" pair, "" when there is none.
func (e entry) value(key string) string {
	_, rest, ok := strings.Cut(e.all, " "+key+"=")
	if !ok {
		return ""
	}
	if q, err := strconv.QuotedPrefix(rest); err == nil {
		if s, err := strconv.Unquote(q); err == nil {
			return s
		}
	}
	rest, _, _ = strings.Cut(rest, " ")
	return rest
}

// readEntry takes a line apart. It knows klog's text of all versions, with whatever a container runtime or the
// journal put before it, klog's JSON, Docker's JSON, and the key=value lines of k3s. A line of any other
// form is a message that continues the one before.
func readEntry(line string) entry {
	if strings.HasPrefix(line, "{") {
		if e, ok := readJSONEntry(line); ok {
			return e
		}
	}
	return readTextEntry(line)
}

func readTextEntry(line string) entry {
	if at, rest, ok := cutKlogHeader(line); ok {
		return entry{time: at, msg: message(rest), all: rest, head: true}
	}
	// time="2026-01-05T09:40:12Z" level=info msg="Running kube-proxy --cluster-cidr=…"
	if strings.Contains(line, "level=") {
		if i := strings.Index(line, " msg="); i >= 0 {
			e := entry{all: line[i:], head: true}
			e.msg = e.value("msg")
			e.all = e.msg
			return e
		}
	}
	return entry{msg: line, all: line}
}

// message is the text of a structured line, `"Version info" version="v1.36.3"`, or the whole of a plain one.
func message(s string) string {
	if q, err := strconv.QuotedPrefix(s); err == nil {
		if m, err := strconv.Unquote(q); err == nil {
			return m
		}
	}
	return s
}

// headerReach is how far into a line a klog header is looked for, in bytes.
const headerReach = 256

// cutKlogHeader finds "I0105 09:40:12.114203       1 proxier.go:855] " and returns its time and what follows.
func cutKlogHeader(line string) (at, rest string, ok bool) {
	head := line[:min(len(line), headerReach)]
	i := strings.Index(head, ".go:")
	if i < 0 {
		return "", "", false
	}
	end := i + len(".go:")
	for end < len(head) && head[end] >= '0' && head[end] <= '9' {
		end++
	}
	if end == len(head) || head[end] != ']' {
		return "", "", false
	}
	// What comes before the source file: severity and date, time, thread.
	words := strings.Fields(head[:i])
	if len(words) < 4 {
		return "", "", false
	}
	words = words[len(words)-4:]
	date := words[0]
	if len(date) < 5 || !strings.Contains(words[1], ":") {
		return "", "", false
	}
	date = date[len(date)-5:]
	if strings.IndexByte("IWEF", date[0]) < 0 {
		return "", "", false
	}
	if _, err := strconv.Atoi(date[1:]); err != nil {
		return "", "", false
	}
	return date[1:] + " " + words[1], strings.TrimPrefix(line[end+1:], " "), true
}

// readJSONEntry reads klog's JSON format ({"ts":…,"msg":…,"version":…}) and Docker's ({"log":"I0105 …\n"}).
func readJSONEntry(line string) (entry, bool) {
	var fields map[string]any
	if json.Unmarshal([]byte(line), &fields) != nil {
		return entry{}, false
	}
	if text, ok := fields["log"].(string); ok {
		return readTextEntry(strings.TrimRight(text, "\r\n")), true
	}
	msg, ok := fields["msg"].(string)
	if !ok {
		return entry{}, false
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		if name != "msg" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all strings.Builder
	all.WriteString(msg)
	for _, name := range names {
		fmt.Fprintf(&all, " %s=%q", name, fmt.Sprint(fields[name]))
	}
	return entry{msg: msg, all: all.String(), head: true}, true
}
