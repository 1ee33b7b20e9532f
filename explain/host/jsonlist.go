package host

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// isJSON tells whether a text is JSON as `ip -j` and `bridge -j` print it: one or more arrays.
func isJSON(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(text, "\ufeff"), " \t\r\n"), "[")
}

// eachObject decodes the objects of the arrays in a text one by one and hands each on with its evidence. An
// object that does not decode is a problem, and the others go on; empty objects, which older iproute2 prints
// for what a filter left out, are passed over.
func eachObject[T any](r *reading, text string, use func(o T, ev Evidence)) {
	text = strings.TrimPrefix(text, "\ufeff")
	dec := json.NewDecoder(strings.NewReader(text))
	line, counted := 1, 0
	lineAt := func(offset int) int {
		line += strings.Count(text[counted:offset], "\n")
		counted = offset
		return line
	}
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		r.seen++
		if d, ok := t.(json.Delim); err != nil || !ok || d != '[' {
			r.skip(lineAt(int(dec.InputOffset())), "", "not a list of JSON objects")
			return
		}
		for dec.More() {
			start := int(dec.InputOffset())
			start += len(text[start:]) - len(strings.TrimLeft(text[start:], ", \t\r\n"))
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				r.skip(lineAt(start), text[start:min(len(text), start+paste.Longest)], "the JSON breaks off: %v", err)
				return
			}
			r.seen++
			if len(raw) <= len("{}") {
				continue
			}
			n := lineAt(start)
			var o T
			if err := json.Unmarshal(raw, &o); err != nil {
				r.skip(n, string(raw[:min(len(raw), 2*paste.Longest)]), "%v", err)
				continue
			}
			use(o, r.at(n, string(raw)))
		}
		if _, err := dec.Token(); err != nil {
			r.skip(lineAt(int(dec.InputOffset())), "", "the JSON breaks off: %v", err)
			return
		}
	}
}
