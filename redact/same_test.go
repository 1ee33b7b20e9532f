package redact

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/objects"
)

// sameness brings two documents, of a node and of the node redacted, into one form: that of the new names.
//
// What is not compared, and why:
//   - The order of arrays other than hops: it follows names and addresses, and these are others now.
//   - Addresses that stand in no evidence: svcnet picks them from a range as a client, the tenth host for example, and
//     the tenth host of the new range has another old address where the range is wider than /24.
//   - Between a word of a format and a name that is spelled like it ("legacy", a Service of a fixture): messages have
//     both, and nothing says which is which.
type sameness struct {
	r     *renaming
	known map[netip.Addr]bool // new addresses that stand in evidence, and the ranges around them
	done  map[string]string   // strings of the old document
}

func newSameness(r *renaming) *sameness {
	s := &sameness{r: r, known: map[netip.Addr]bool{}, done: map[string]string{}}
	for _, a := range r.addresses {
		s.known[a] = true
		for bits := 8; bits < a.BitLen(); bits++ {
			if p, err := a.Prefix(bits); err == nil {
				s.known[p.Addr()] = true
			}
		}
	}
	return s
}

var (
	docAddress = regexp.MustCompile(`[0-9a-fA-F]*(?::[0-9a-fA-F]*){2,}(?:\d{1,3}(?:\.\d{1,3}){3})?|\d{1,3}(?:\.\d{1,3}){3}`)
	docWord    = regexp.MustCompile(`(service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[A-Za-z0-9./_-]*|[A-Za-z0-9]+(-+[A-Za-z0-9]+)*`)
)

// text is a string of a document in the new names. old says that it is of the node as it was.
func (s *sameness) text(t string, old bool) string {
	key := t
	if !old {
		key = "new " + t
	}
	if out, ok := s.done[key]; ok {
		return out
	}
	out := s.renamed(t, old)
	s.done[key] = out
	return out
}

func (s *sameness) renamed(t string, old bool) string {
	var b strings.Builder
	at := 0
	for _, m := range docAddress.FindAllStringIndex(t, -1) {
		f := t[m[0]:m[1]]
		trail := ""
		a, err := netip.ParseAddr(f)
		if err != nil && strings.HasSuffix(f, ":") {
			trail = ":"
			a, err = netip.ParseAddr(strings.TrimSuffix(f, ":"))
		}
		if err != nil {
			continue
		}
		b.WriteString(s.words(t[at:m[0]], old))
		at = m[1]
		if old {
			if n, ok := s.r.addresses[a]; ok {
				rest := t[m[1]:]
				// A range: the bits behind its prefix are none of an address.
				if p, err := netip.ParsePrefix(f + prefixAfter(rest)); err == nil && trail == "" {
					n = s.r.prefix(p).Addr()
				}
				b.WriteString(n.String() + trail)
				continue
			}
		} else if s.known[a] {
			b.WriteString(a.String() + trail)
			continue
		}
		if stays(a) {
			b.WriteString(a.String() + trail)
			continue
		}
		b.WriteString("PICKED" + trail)
	}
	b.WriteString(s.words(t[at:], old))
	return b.String()
}

var digitsAfter = regexp.MustCompile(`^/\d+`)

func prefixAfter(rest string) string { return digitsAfter.FindString(rest) }

func (s *sameness) words(t string, old bool) string {
	return docWord.ReplaceAllStringFunc(t, func(w string) string {
		if m := nftName.FindString(w); m == w && old {
			if n := s.r.nftName(w); n != "" {
				return n
			}
		}
		if m := kubeChain.FindStringSubmatch(w); m != nil {
			if old {
				return m[1] + s.r.chainHash(m[2])
			}
			return w
		}
		if n, ok := s.r.names[w]; ok {
			return n
		}
		return w
	})
}

// canonical is a document with its strings in the new names and its arrays in an order of their own.
func (s *sameness) canonical(v any, key string, old bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if k == "line" {
				out[k] = x
				continue
			}
			out[s.text(k, old)] = s.canonical(x, k, old)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = s.canonical(x, key, old)
		}
		if key != "hops" {
			slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(asJSON(a), asJSON(b)) })
		}
		return out
	case string:
		return s.text(v, old)
	}
	return v
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *sameness) document(t *testing.T, doc any, old bool) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(asJSON(doc)), &v); err != nil {
		t.Fatal(err)
	}
	return s.canonical(v, "", old)
}

// compared are the nodes of TestSameAnswers: all of them, or those that -short leaves.
func nodeOf(t *testing.T, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "expected.json"))
	if err != nil {
		return ""
	}
	var e struct{ Node string }
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	return e.Node
}

// TestSameAnswers audits every node of the fixtures and traces every Service, before and after redaction.
func TestSameAnswers(t *testing.T) {
	for _, folder := range folders(t) {
		t.Run(strings.TrimPrefix(folder, "../"), func(t *testing.T) {
			s := load(t, folder)
			if n := nodeOf(t, folder); n != "" {
				s.Node = n
			}
			r := newRenaming(testKey)
			r.learn(s)
			r.forget()
			out := r.snapshot(s)
			same := newSameness(r)

			before, err := explain.Audit(s, explain.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := explain.Audit(out, explain.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(same.document(t, before, true), same.document(t, after, false)); d != "" {
				t.Errorf("audit: %s", shortened(d))
			}
			set := &objects.Set{}
			for _, e := range s.Of(snapshot.Objects) {
				objects.Decode(set, e.Data, e.File)
			}
			for _, svc := range set.Services {
				before, err1 := explain.Trace(s, explain.TraceOptions{Namespace: svc.Namespace, Service: svc.Name})
				after, err2 := explain.Trace(out, explain.TraceOptions{Namespace: r.text(svc.Namespace, name), Service: r.text(svc.Name, name)})
				if (err1 == nil) != (err2 == nil) {
					t.Fatalf("trace of %s/%s: %v, and redacted: %v", svc.Namespace, svc.Name, err1, err2)
				}
				if err1 != nil {
					continue
				}
				if d := cmp.Diff(same.document(t, before, true), same.document(t, after, false)); d != "" {
					t.Errorf("trace of %s/%s: %s", svc.Namespace, svc.Name, shortened(d))
				}
			}
		})
	}
}

func shortened(d string) string {
	var out []string
	for line := range strings.Lines(d) {
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			if len(line) > 420 {
				line = line[:420] + "…\n"
			}
			out = append(out, line)
		}
	}
	return "\n" + strings.Join(out[:min(len(out), 12)], "")
}
