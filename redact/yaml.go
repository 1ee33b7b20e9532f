package redact

import (
	"strings"
)

// yaml rewrites the scalars of YAML in place, line by line. It is no parser: it finds keys and values as people and
// kubectl write them, so that lines keep their numbers, and takes for a name what it does not understand.
func (r *renaming) yaml(data string) string {
	y := &yamlText{r: r}
	for line := range strings.Lines(data) {
		body := strings.TrimRight(line, "\r\n")
		y.line(body)
		y.out.WriteString(line[len(body):])
	}
	return y.out.String()
}

type yamlText struct {
	r   *renaming
	out strings.Builder
	// keys lead to where the next line stands, each with its column.
	keys []yamlKey
	// flow holds the levels of a flow collection ("{a: [b") that goes on in the next line.
	flow []flowLevel
	// inBlock: the next lines are the text ("|") of a key, which is text and stands in column block.
	inBlock bool
	block   int
	text    string
	// at are the keys that lead to where the next value stands, those of flow collections among them.
	at place
	// hidden: the scalar that goes on is a secret.
	hidden bool
	// open is the quote of a scalar that goes on in the next line.
	open byte
}

type yamlKey struct {
	column int
	key    string
}

type flowLevel struct {
	object bool
	key    string
	depth  int // how many keys lead to it
}

func (y *yamlText) line(line string) {
	trimmed := strings.TrimLeft(line, " \t")
	column := len(line) - len(trimmed)
	switch {
	case trimmed == "":
		y.out.WriteString(line)
		return
	case y.inBlock && column > y.block && proseFields[y.text]:
		y.out.WriteString(y.r.prose(line))
		return
	case y.inBlock && column > y.block && y.open == 0 && len(y.flow) == 0 && y.at.secret():
		y.out.WriteString(line[:column] + "redacted")
		return
	case y.open != 0:
		y.continued(line)
		return
	case len(y.flow) > 0:
		y.flowText(line)
		return
	}
	// Text that is no message is a configuration, and so YAML itself; what is none is names.
	y.inBlock = y.inBlock && column > y.block
	switch {
	case strings.HasPrefix(trimmed, "#"):
		y.out.WriteString(y.r.prose(line))
		return
	case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "..."):
		y.keys, y.at = nil, nil
		y.out.WriteString(line[:3])
		if rest := line[3:]; strings.TrimSpace(rest) != "" {
			y.value(rest)
		}
		return
	}
	y.out.WriteString(line[:column])
	rest := trimmed
	dashed := false
	for rest == "-" || strings.HasPrefix(rest, "- ") {
		dashed = true
		n := len(rest) - len(strings.TrimLeft(rest[1:], " "))
		y.pop(column + 1) // keys of the item before
		y.out.WriteString(rest[:n])
		column += n
		rest = rest[n:]
	}
	if rest == "" {
		return
	}
	key, n, ok := yamlKeyOf(rest)
	if !ok {
		if !dashed {
			y.popBelow(column)
		}
		y.value(rest)
		return
	}
	y.pop(column)
	raw := rest[:n]
	fresh := y.r.key(key, y.at)
	if fresh != key {
		raw = requote(raw, fresh)
	}
	y.out.WriteString(raw)
	y.out.WriteByte(':')
	y.keys, y.at = append(y.keys, yamlKey{column, key}), append(y.at, key)
	y.value(rest[n+1:])
}

// pop leaves the keys that stand further left than column.
func (y *yamlText) pop(column int) {
	for n := len(y.keys); n > 0 && y.keys[n-1].column >= column; n-- {
		y.keys, y.at = y.keys[:n-1], y.at[:n-1]
	}
}

// popBelow leaves the key whose value a line in this column goes on with.
func (y *yamlText) popBelow(column int) {
	for n := len(y.keys); n > 1 && y.keys[n-1].column > column; n-- {
		y.keys, y.at = y.keys[:n-1], y.at[:n-1]
	}
}

// yamlKeyOf finds the key at the start of a line, without its quotes, and the length it takes with them.
func yamlKeyOf(s string) (key string, n int, ok bool) {
	if s[0] == '"' || s[0] == '\'' {
		end := strings.IndexByte(s[1:], s[0])
		if end < 0 || len(s) <= end+2 || s[end+2] != ':' {
			return "", 0, false
		}
		return s[1 : end+1], end + 2, len(s) == end+3 || s[end+3] == ' '
	}
	if strings.ContainsRune("{[|>&*!%@`#", rune(s[0])) {
		return "", 0, false
	}
	if i := strings.Index(s, ": "); i > 0 {
		return s[:i], i, true
	}
	if strings.HasSuffix(s, ":") && !strings.Contains(s, " #") {
		return s[:len(s)-1], len(s) - 1, len(s) > 1
	}
	return "", 0, false
}

// requote writes text with the quotes that raw has.
func requote(raw, text string) string {
	switch {
	case raw != "" && raw[0] == '"':
		return jsonString(text)
	case raw != "" && raw[0] == '\'':
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return text
}

// value rewrites what stands behind a key or a dash.
func (y *yamlText) value(s string) {
	body := strings.TrimLeft(s, " \t")
	y.out.WriteString(s[:len(s)-len(body)])
	if body == "" {
		return
	}
	switch body[0] {
	case '{', '[':
		y.flowText(body)
		return
	case '|', '>':
		y.inBlock, y.block = true, -1
		if n := len(y.keys); n > 0 {
			y.block = y.keys[n-1].column
		}
		y.text = y.at.last()
		y.out.WriteString(body)
		return
	case '"', '\'':
		n, text, whole := yamlQuoted(body)
		if !whole {
			y.open, y.hidden = body[0], y.at.secret()
			if y.hidden {
				y.out.WriteString(body[:1] + "redacted")
				return
			}
			y.out.WriteString(y.r.text(body, y.modeHere()))
			return
		}
		if fresh := y.r.value(text, y.at); fresh != text {
			y.out.WriteString(requote(body[:1], fresh))
		} else {
			y.out.WriteString(body[:n])
		}
		y.out.WriteString(y.r.prose(body[n:]))
		return
	case '#':
		y.out.WriteString(y.r.prose(body))
		return
	}
	plain, comment := body, ""
	if i := strings.Index(body, " #"); i >= 0 {
		plain, comment = body[:i], body[i:]
	}
	y.out.WriteString(y.r.value(plain, y.at))
	y.out.WriteString(y.r.prose(comment))
}

// modeHere is how words of a value are taken that is not whole.
func (y *yamlText) modeHere() mode {
	at := y.at
	if proseFields[at.last()] {
		return prose
	}
	return name
}

// continued rewrites a line within a quoted scalar.
func (y *yamlText) continued(line string) {
	quote := string(y.open)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' && y.open == '"' {
			i++
			continue
		}
		if line[i] == y.open {
			y.open = 0
			break
		}
	}
	if y.hidden {
		if y.open == 0 {
			y.out.WriteString(line[:len(line)-len(strings.TrimLeft(line, " \t"))] + "redacted" + quote)
		}
		return
	}
	y.out.WriteString(y.r.text(line, y.modeHere()))
}

// yamlQuoted reads a quoted scalar at the start of s.
func yamlQuoted(s string) (n int, text string, whole bool) {
	q := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case q == '"' && s[i] == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '"', '\\', '/':
				b.WriteByte(s[i])
			default:
				return 0, "", false // an escape that only a parser knows
			}
		case s[i] == q && q == '\'' && i+1 < len(s) && s[i+1] == q:
			b.WriteByte(q)
			i++
		case s[i] == q:
			return i + 1, b.String(), true
		default:
			b.WriteByte(s[i])
		}
	}
	return 0, "", false
}

// flowText rewrites a flow collection, or the part of one that a line holds.
func (y *yamlText) flowText(s string) {
	for i := 0; i < len(s); {
		c := s[i]
		switch c {
		case '{', '[':
			y.flow = append(y.flow, flowLevel{object: c == '{', depth: len(y.at)})
			y.out.WriteByte(c)
			i++
		case '}', ']':
			if n := len(y.flow); n > 0 {
				y.at = y.at[:y.flow[n-1].depth]
				y.flow = y.flow[:n-1]
			}
			y.out.WriteByte(c)
			i++
			if len(y.flow) == 0 {
				y.out.WriteString(y.r.prose(s[i:])) // a comment
				return
			}
		case ',':
			if n := len(y.flow); n > 0 && y.flow[n-1].object {
				y.flow[n-1].key = ""
				y.at = y.at[:y.flow[n-1].depth]
			}
			y.out.WriteByte(c)
			i++
		case ' ', '\t':
			y.out.WriteByte(c)
			i++
		case '#':
			y.out.WriteString(y.r.prose(s[i:]))
			return
		default:
			i += y.flowScalar(s[i:])
		}
	}
}

// flowScalar rewrites a key with its colon, or a value, at the start of s.
func (y *yamlText) flowScalar(s string) int {
	var text string
	n := 0
	if s[0] == '"' || s[0] == '\'' {
		var whole bool
		n, text, whole = yamlQuoted(s)
		if !whole {
			y.out.WriteString(y.r.text(s, name))
			return len(s)
		}
	} else {
		for n < len(s) && !strings.ContainsRune(",{}[]", rune(s[n])) && !(s[n] == ':' && (n+1 == len(s) || s[n+1] == ' ')) && !(s[n] == ' ' && n+1 < len(s) && s[n+1] == '#') {
			n++
		}
		if n == 0 {
			y.out.WriteByte(s[0])
			return 1
		}
		text = strings.TrimRight(s[:n], " \t")
		n = len(text)
	}
	top := len(y.flow) - 1
	behind := strings.TrimLeft(s[n:], " ")
	if top >= 0 && y.flow[top].object && y.flow[top].key == "" && strings.HasPrefix(behind, ":") {
		fresh := y.r.key(text, y.at)
		y.out.WriteString(requote(s[:1], fresh))
		y.flow[top].key = text
		y.at = append(y.at, text)
		colon := len(s) - len(behind) + 1
		y.out.WriteString(s[n:colon])
		return colon
	}
	fresh := y.r.value(text, y.at)
	if fresh == text {
		y.out.WriteString(s[:n])
	} else {
		y.out.WriteString(requote(s[:1], fresh))
	}
	return n
}
