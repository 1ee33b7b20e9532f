package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// yaml takes a stream of YAML documents. Documents, and within them the items of a list, are cut apart by
// their lines first: so each object knows its line, and one that is broken leaves the others whole.
func (d *decoder) yaml(data []byte) {
	for _, doc := range cutDocuments(data) {
		if !hasContent(doc.text) {
			continue
		}
		if items, implied, ok := cutItems(doc); ok && d.yamlItems(items, implied) {
			continue
		}
		raw, err := toJSON(doc.text)
		if err != nil {
			d.badYAML(doc, err)
			continue
		}
		if string(raw) != "null" {
			d.converted(raw, doc.line, metav1.TypeMeta{})
		}
	}
}

// yamlItems takes the items of one list. It is false, with nothing taken, when an item leans on an anchor
// outside of it, so that the list must be read as a whole.
func (d *decoder) yamlItems(items []chunk, implied metav1.TypeMeta) bool {
	type result struct {
		raw []byte
		err error
	}
	results := make([]result, len(items))
	for i, item := range items {
		raw, err := toJSON(item.text)
		if err != nil && strings.Contains(err.Error(), "unknown anchor") {
			return false
		}
		results[i] = result{raw, err}
	}
	for i, r := range results {
		if r.err != nil {
			d.badYAML(items[i], r.err)
			continue
		}
		d.converted(r.raw, items[i].line, implied)
	}
	return true
}

// converted takes JSON that was made of YAML at a line: it has no lines of its own.
func (d *decoder) converted(raw []byte, line int, implied metav1.TypeMeta) {
	at := &lines{data: raw, line: line}
	switch raw[0] {
	case '{':
		s := &scanner{data: raw}
		d.document(at, span{0, len(raw)}, s.header(false), implied, 0)
	case '[':
		s := &scanner{data: raw}
		items, _ := s.items()
		d.items(at, items, implied, 1)
	default:
		d.problem(line, "", false, "not a Kubernetes object: a value that is no object")
	}
}

func (d *decoder) badYAML(doc chunk, err error) {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	line := doc.line
	// The parser counts from the document's first line.
	if rest, ok := strings.CutPrefix(why, "line "); ok {
		number, text, found := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil && found && n > 0 && n <= bytes.Count(doc.text, []byte{'\n'})+1 {
			line, why = line+n-1, text
		}
	}
	d.problem(line, "", false, "broken YAML: %s", why)
}

// chunk is a part of the text with the line on which it begins.
type chunk struct {
	text []byte
	line int
}

// cutDocuments cuts at the markers "---" and "...".
func cutDocuments(data []byte) []chunk {
	var docs []chunk
	start, startLine, line := 0, 1, 1
	for pos := 0; pos < len(data); line++ {
		end := lineEnd(data, pos)
		if l := data[pos:end]; isMarker(l, "---") || isMarker(l, "...") {
			docs = append(docs, chunk{data[start:pos], startLine})
			start, startLine = end, line+1
			// "--- {kind: …}" carries content; "--- # comment" and "--- |" do not make objects.
			if rest := bytes.TrimSpace(l[3:]); l[0] == '-' && len(rest) > 0 && rest[0] != '#' {
				start, startLine = pos+3, line
			}
		}
		pos = end
	}
	return append(docs, chunk{data[start:], startLine})
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || rest[0] == '\n')
}

func lineEnd(data []byte, pos int) int {
	if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(data)
}

// hasContent is false for text of blank lines, comments and directives.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '#' && t[0] != '%' {
			return true
		}
	}
	return false
}

// cutItems cuts a list object as kubectl prints it: "items:" at the outermost level with a block sequence
// below, where every line that begins with "- " in the column of the first is an item. Each item comes
// with its dash made a blank, so that it is a document of its own; implied is the kind that a ServiceList
// and its like give to items that name none. It is false for any other document.
func cutItems(doc chunk) (items []chunk, implied metav1.TypeMeta, ok bool) {
	const before, first, within, behind = 0, 1, 2, 3
	var (
		state  = before
		column int // of the dashes
		start  int // of the current item
		at     int // its line
		kind   string
	)
	finish := func(end int) {
		text := slices.Clone(doc.text[start:end])
		text[column] = ' '
		items = append(items, chunk{text, at})
	}
	line := doc.line
	for pos := 0; pos < len(doc.text); line++ {
		end := lineEnd(doc.text, pos)
		l := bytes.TrimRight(doc.text[pos:end], " \t\r\n")
		indent := len(l) - len(bytes.TrimLeft(l, " "))
		if len(l) > 0 && l[indent] != '#' {
			switch dash := isItem(l[indent:]); {
			case state == first && !dash:
				return nil, implied, false
			case state == first:
				state, column, start, at = within, indent, pos, line
			case state == within && dash && indent == column:
				finish(pos)
				start, at = pos, line
			case state == within && indent <= column:
				if indent > 0 {
					return nil, implied, false // no YAML: let the parser say why
				}
				finish(pos)
				state = behind
			}
			if indent == 0 && (state == before || state == behind) {
				key, value, _ := strings.Cut(string(l), ":")
				value = strings.Trim(strings.TrimSpace(value), `"'`)
				switch key {
				case "items":
					if state == behind || value != "" {
						return nil, implied, false
					}
					state = first
				case "kind":
					kind = value
				case "apiVersion":
					implied.APIVersion = value
				}
			}
		}
		pos = end
	}
	if state == within {
		finish(len(doc.text))
	}
	itemKind, isList := strings.CutSuffix(kind, "List")
	if itemKind == "" {
		implied = metav1.TypeMeta{}
	}
	implied.Kind = itemKind
	return items, implied, len(items) > 0 && (isList || kind == "")
}

func isItem(l []byte) bool { return len(l) > 1 && l[0] == '-' && l[1] == ' ' }

// maxExpansion bounds how much larger than its text a document may become by its aliases.
const (
	maxExpansion = 16
	minExpansion = 1 << 20 // bytes that any document may become
)

var errExpansion = errors.New("its aliases make it many times larger than its text: refused")

// toJSON converts one YAML document. Aliases are followed as far as the result stays in proportion.
func toJSON(text []byte) (out []byte, err error) {
	defer func() {
		// The parser reports what it cannot read by panics of its own and catches them; input that makes it
		// fail otherwise must not take the program down.
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("not readable: %v", r)
		}
	}()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	w := &jsonWriter{limit: max(minExpansion, maxExpansion*len(text))}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.out, nil
}

// jsonWriter writes decoded YAML as JSON on one line.
type jsonWriter struct {
	out   []byte
	limit int
}

const maxDepth = 1000 // of values within values; objects of the API stay below 20

func (w *jsonWriter) value(v any, depth int) error {
	if len(w.out) > w.limit {
		return errExpansion
	}
	if depth > maxDepth {
		return fmt.Errorf("more than %d values within each other", maxDepth)
	}
	switch v := v.(type) {
	case map[any]any:
		return w.object(v, depth)
	case []any:
		w.out = append(w.out, '[')
		for i, e := range v {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			if err := w.value(e, depth+1); err != nil {
				return err
			}
		}
		w.out = append(w.out, ']')
		return nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return w.plain(nil)
		}
	}
	return w.plain(v)
}

func (w *jsonWriter) object(m map[any]any, depth int) error {
	type entry struct {
		key   string
		value any
	}
	entries := make([]entry, 0, len(m))
	for k, v := range m {
		key, err := keyText(k)
		if err != nil {
			return err
		}
		entries = append(entries, entry{key, v})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	w.out = append(w.out, '{')
	for i, e := range entries {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.plain(e.key); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.value(e.value, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *jsonWriter) plain(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.out = append(w.out, text...)
	return nil
}

// keyText is a YAML key as JSON knows them: scalars only.
func keyText(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(k), nil
	case nil:
		return "null", nil
	}
	return "", errors.New("a key that is no scalar")
}
