package redact

import (
	"bytes"
	"encoding/json"
	"strings"
)

// documentStrings say what becomes of the strings of a document at their places.
type documentStrings struct {
	key   func(k string, at place) string
	value func(s string, at place) string
	// bare rewrites what has no quotes; nil where numbers stay.
	bare func(s string, at place) string
}

// objectStrings are those of Kubernetes objects and of configurations.
func (r *renaming) objectStrings() documentStrings { return documentStrings{r.key, r.value, r.bare} }

// json rewrites the strings of JSON in place, several documents one behind the other among it. Everything else stays
// byte for byte, so that lines keep their numbers. What is no JSON is rewritten as text, all of whose words are names.
func (r *renaming) json(data string, s documentStrings) string {
	var b strings.Builder
	b.Grow(len(data))
	var at place
	type level struct {
		object, wantKey bool
		depth           int
	}
	var stack []level
	for i := 0; i < len(data); {
		c := data[i]
		switch c {
		case '{', '[':
			stack = append(stack, level{c == '{', c == '{', len(at)})
		case '}', ']':
			if n := len(stack); n > 0 {
				at = at[:stack[n-1].depth]
				stack = stack[:n-1]
			}
		case ',':
			if n := len(stack); n > 0 && stack[n-1].object {
				at = at[:stack[n-1].depth]
				stack[n-1].wantKey = true
			}
		case '"':
			end := stringEnd(data, i)
			raw := data[i:end]
			var text string
			if json.Unmarshal([]byte(raw), &text) != nil {
				b.WriteString(r.text(raw, name))
				i = end
				continue
			}
			var fresh string
			if n := len(stack); n > 0 && stack[n-1].wantKey {
				stack[n-1].wantKey = false
				fresh = s.key(text, at)
				at = append(at[:stack[n-1].depth], text)
			} else {
				fresh = s.value(text, at)
			}
			if fresh != text {
				raw = jsonString(fresh)
			}
			b.WriteString(raw)
			i = end
			continue
		case ' ', '\t', '\r', '\n', ':':
		default:
			end := i
			for end < len(data) && !strings.ContainsRune("{}[],:\" \t\r\n", rune(data[end])) {
				end++
			}
			raw := data[i:end]
			if s.bare != nil {
				raw = s.bare(raw, at)
			} else {
				raw = r.text(raw, name) // numbers, true, false, null
			}
			b.WriteString(raw)
			i = end
			continue
		}
		b.WriteByte(c)
		i++
	}
	return b.String()
}

// stringEnd is the index behind the string that begins at i.
func stringEnd(data string, i int) int {
	for j := i + 1; j < len(data); j++ {
		switch data[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(data)
}

func jsonString(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always is encoded
	return strings.TrimSuffix(b.String(), "\n")
}
