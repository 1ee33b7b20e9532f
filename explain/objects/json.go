package objects

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// json takes a stream of JSON documents: objects, lists, bare arrays of objects. It is false, with nothing
// taken, when the text is no JSON from its beginning on.
func (d *decoder) json(data []byte) bool {
	s := &scanner{data: data}
	at := &lines{data: data, line: 1}
	for first := true; ; first = false {
		start := 0
		switch s.next() {
		case 0:
			return true
		case '{':
			start = s.pos
			h := s.header(false)
			if first && h.broken && h.keys == 0 {
				return false
			}
			if !h.broken || h.list {
				d.document(at, span{start, s.pos}, h, metav1.TypeMeta{}, 0)
			}
			if h.broken {
				d.broken(at, s)
				return true
			}
		case '[':
			items, ok := s.items()
			if first && !ok && len(items) == 0 {
				return false
			}
			d.items(at, items, metav1.TypeMeta{}, 1)
			if !ok {
				d.broken(at, s)
				return true
			}
		default:
			if first {
				return false
			}
			d.broken(at, s)
			return true
		}
	}
}

func (d *decoder) broken(at *lines, s *scanner) {
	why := "what follows was not read"
	if s.next() == 0 {
		why = "the text ends too early; copy it again"
	}
	d.problem(at.at(s.pos), "", false, "broken JSON: %s", why)
}

// header is what can be told of an object without decoding it.
type header struct {
	meta   metav1.TypeMeta
	items  []span
	list   bool // it has items
	keys   int
	broken bool // the text ends within it, or is no JSON; what was found before that stands
}

// header reads one object. With glance it stops as soon as the type is known, unless that is a list's:
// most writers put the type first, but kubectl, which sorts keys, puts a list's kind behind its items.
func (s *scanner) header(glance bool) (h header) {
	if !s.take('{') {
		h.broken = true
		return h
	}
	if s.take('}') {
		return h
	}
	for {
		key, ok := s.text()
		if !ok || !s.take(':') {
			h.broken = true
			return h
		}
		h.keys++
		switch string(key) {
		case `"items"`:
			if s.next() == '[' {
				h.list = true
				h.items, ok = s.items()
				break
			}
			_, ok = s.value()
		case `"apiVersion"`, `"kind"`:
			var v span
			if v, ok = s.value(); !ok {
				break
			}
			into := &h.meta.Kind
			if string(key) == `"apiVersion"` {
				into = &h.meta.APIVersion
			}
			if json.Unmarshal(s.data[v.start:v.end], into) != nil {
				*into = ""
			}
		default:
			_, ok = s.value()
		}
		switch {
		case !ok:
			h.broken = true
			return h
		case glance && h.meta.Kind != "" && h.meta.APIVersion != "" && !strings.HasSuffix(h.meta.Kind, "List"):
			return h
		case s.take('}'):
			return h
		case !s.take(','):
			h.broken = true
			return h
		}
	}
}

// items reads an array. It is false when the text ends within it or is broken; what came before stands.
func (s *scanner) items() (items []span, ok bool) {
	if !s.take('[') {
		return nil, false
	}
	if s.take(']') {
		return nil, true
	}
	for {
		v, ok := s.value()
		if !ok {
			return items, false
		}
		items = append(items, v)
		if s.take(']') {
			return items, true
		}
		if !s.take(',') {
			return items, false
		}
	}
}

// items takes the elements of a list. The kind that the list implies holds for those that name none, as in
// the API server's own answers.
func (d *decoder) items(at *lines, items []span, implied metav1.TypeMeta, depth int) {
	looked := d.aheadOf(at.data, items, implied)
	for i, v := range items {
		if at.data[v.start] != '{' {
			d.problem(at.at(v.start), "", false, "not a Kubernetes object: a value that is no object")
			continue
		}
		var h header
		if looked != nil {
			h, d.ahead = looked[i].header, looked[i]
		} else {
			s := &scanner{data: at.data[:v.end], pos: v.start}
			h = s.header(true)
		}
		if h.broken {
			d.problem(at.at(v.start), h.meta.Kind, false, "broken JSON within this object")
			continue
		}
		d.document(at, v, h, implied, depth)
		d.ahead = ahead{}
	}
}

// document takes one JSON object whose header is h.
func (d *decoder) document(at *lines, v span, h header, implied metav1.TypeMeta, depth int) {
	if h.meta.Kind == "" && !h.list {
		h.meta = implied
	}
	kind, isList := strings.CutSuffix(h.meta.Kind, "List")
	switch {
	case isList || h.list && h.meta.Kind == "":
		if depth >= maxNesting {
			d.problem(at.at(v.start), h.meta.Kind, false, "more than %d lists within each other", maxNesting)
			return
		}
		if kind != "" {
			implied = metav1.TypeMeta{APIVersion: h.meta.APIVersion, Kind: kind}
		}
		d.items(at, h.items, implied, depth+1)
	default:
		d.object(at.data[v.start:v.end], at.at(v.start), h.meta)
	}
}
