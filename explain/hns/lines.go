package hns

import (
	"encoding/json"
	"strings"
)

// lines reads what is no JSON: hnsdiag's tables, PowerShell's list form, and either with JSON in it.
func (r *reading) lines(text string) {
	var (
		table   string // the table that the lines are of
		list    object // the object of a list that the lines are of
		key     string
		value   strings.Builder // of key
		n       int
		pending = text
	)
	keep := func() {
		if key != "" {
			list.fields[key] = listValue(value.String())
		}
		key = ""
		value.Reset()
	}
	flush := func() {
		keep()
		if len(list.fields) > 0 {
			r.object(list)
		}
		list = object{}
	}
	for len(pending) > 0 {
		line, rest, _ := strings.Cut(pending, "\n")
		n++
		full := strings.TrimRight(line, "\r")
		trimmed := strings.TrimSpace(full)
		switch {
		case strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "["):
			// hnsdiag -d may print a heading before a JSON document.
			flush()
			begin := strings.IndexAny(pending, "{[")
			used := begin + r.json(pending[begin:], n)
			n += strings.Count(pending[:used], "\n") - 1
			pending = pending[used:]
			if after, lineEnd := strings.CutPrefix(strings.TrimLeft(pending, " \t\r"), "\n"); lineEnd {
				pending = after
				n++
			}
			continue
		case trimmed == "":
			flush()
			table = ""
		case strings.HasSuffix(trimmed, ":") && !strings.Contains(trimmed, " "), isPrompt(trimmed):
			flush()
			table = ""
		case isHeading(trimmed):
			flush()
			table = headingOf(trimmed)
			if table != "" {
				r.used++
				r.state.HasBalancers = r.state.HasBalancers || table == balancers
			}
		case table == balancers:
			r.row(trimmed, n)
		case table != "":
		default:
			if k, v, ok := listLine(full); ok {
				keep()
				if _, again := list.fields[k]; again {
					flush()
				}
				if list.fields == nil {
					list = object{line: n, fields: make(map[string]json.RawMessage)}
				}
				key = k
				value.WriteString(v)
			} else if key != "" && full != trimmed && value.Len() < maxWrapped {
				// A value that was wrapped.
				value.WriteString(" " + trimmed)
			}
		}
		pending = rest
	}
	flush()
}

// maxWrapped is how long a value grows that goes on over several lines.
const maxWrapped = 64 << 10

// balancers is the table of load balancers: "ID | Virtual IPs | Direct IP IDs". The others of `hnsdiag list all` hold
// neither addresses nor ports.
const balancers = "load balancers"

// other stands for those.
const other = "other"

// isPrompt tells of the line with the next command, in what was copied from a terminal: `PS C:\k> hnsdiag list all`.
func isPrompt(line string) bool { return strings.HasPrefix(line, "PS ") && strings.Contains(line, ">") }

func isHeading(line string) bool { return headingOf(line) != "" }

func headingOf(line string) string {
	words := strings.Fields(strings.ReplaceAll(line, "|", " "))
	switch joined := strings.Join(words, " "); {
	case joined == "ID Virtual IPs Direct IP IDs":
		return balancers
	case joined == "Name ID", joined == "Name ID Virtual Network Name", joined == "ID Endpoint IDs":
		return other
	}
	return ""
}

// row reads "326f84d7-… |  10.96.0.1       | ba06178e-… fc0bbb8f-…". Ports are not in the table.
func (r *reading) row(line string, n int) {
	cells := strings.Split(line, "|")
	id, ok := identifier(cells[0])
	if len(cells) != 3 || !ok {
		r.problem(n, "no row of hnsdiag's table of load balancers")
		return
	}
	r.add(LoadBalancer{
		ID: id, VIPs: addresses(strings.Fields(cells[1])), Endpoints: identifiers(strings.Fields(cells[2])),
		hasVIPs: true, Evidence: Evidence{r.file, n},
	})
}

// listLine reads "IPAddress                 : 10.244.1.11" of PowerShell's list form.
func listLine(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	bare := strings.TrimRight(key, " ")
	if !ok || bare == "" || bare == key && !strings.HasPrefix(value, " ") || strings.ContainsAny(bare, " \t{}@=;,/") {
		return "", "", false
	}
	return bare, strings.TrimSpace(value), true
}

// listValue is a value of the list form as JSON: "{a, b}" is a list, "@{Type=ELB; …}" an object, "{@{…}, @{…}}" a list
// of those; the rest is text.
func listValue(v string) json.RawMessage {
	text := func(s string) json.RawMessage {
		out, err := json.Marshal(s)
		if err != nil {
			return nil
		}
		return out
	}
	inner, isList := strings.CutPrefix(v, "{")
	if !isList || !strings.HasSuffix(inner, "}") {
		return text(v)
	}
	inner = strings.TrimSuffix(inner, "}")
	var items []json.RawMessage
	for _, item := range splitOutside(inner, ',') {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, text(item))
		}
	}
	out, err := json.Marshal(items)
	if err != nil || items == nil {
		return json.RawMessage("[]")
	}
	return out
}

// hashtable reads "@{ExternalPort=80; InternalPort=8080; Protocol=6; Type=ELB; VIPs=System.Object[]}", which PowerShell
// prints for an object inside another one.
func hashtable(s string) (map[string]json.RawMessage, bool) {
	inner, ok := strings.CutPrefix(s, "@{")
	if !ok || !strings.HasSuffix(inner, "}") {
		return nil, false
	}
	out := make(map[string]json.RawMessage)
	for _, field := range splitOutside(strings.TrimSuffix(inner, "}"), ';') {
		k, v, ok := strings.Cut(strings.TrimSpace(field), "=")
		if !ok {
			continue
		}
		if quoted, err := json.Marshal(v); err == nil {
			out[k] = quoted
		}
	}
	return out, len(out) > 0
}

// splitOutside splits at a separator that stands in no braces.
func splitOutside(s string, separator byte) []string {
	var out []string
	depth, begin := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '{':
			depth++
		case c == '}':
			depth = max(depth-1, 0)
		case c == separator && depth == 0:
			out = append(out, s[begin:i])
			begin = i + 1
		}
	}
	return append(out, s[begin:])
}
