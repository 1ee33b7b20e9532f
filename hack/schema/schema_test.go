package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const root = "../.."

// TestChecked compares what is checked in with what the types say today.
func TestChecked(t *testing.T) {
	for _, d := range documents() {
		want, err := generate(root, d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, d.file))
		if err != nil {
			t.Fatalf("%v (make it with: make schema)", err)
		}
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("%s is not what the types of package report say (mend it with: make schema)\n%s", d.file, diff)
		}
	}
}

// TestEveryKind: every type of package report that is a document of its own has a schema.
func TestEveryKind(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "explain/report/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				typ, ok := field.Type.(*ast.SelectorExpr)
				if !ok || len(field.Names) > 0 || typ.Sel.Name != "TypeMeta" {
					continue
				}
				if !slices.ContainsFunc(documents(), func(d document) bool { return reflect.TypeOf(d.value).Name() == spec.Name.Name }) {
					t.Errorf("%s is a document without a schema: add it to documents", spec.Name.Name)
				}
			}
			return true
		})
	}
}

// TestStable: the same types give the same bytes.
func TestStable(t *testing.T) {
	for _, d := range documents() {
		first, err := generate(root, d)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			next, err := generate(root, d)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, next) {
				t.Fatalf("the schema of %s differs from one run to the next", d.kind)
			}
		}
	}
}

// minimal is the smallest trace that the contract allows.
const minimal = `{
 "apiVersion": "svcnet.dev/v1alpha1", "kind": "Trace", "metadata": {"name": "web"}, "node": "",
 "proxy": {"mode": "", "backend": "", "version": "", "evidence": []},
 "paths": [PATHS], "findings": [], "sources": [], "summary": {"text": ""}
}`

const path = `{
 "frontend": {"kind": "ClusterIP", "address": "10.96.0.1", "port": 443, "protocol": "TCP", "portName": "https"},
 "sourceClass": "local-pod", "source": "10.244.1.2", "origin": "pod", "result": "dnat", "translatedBy": "",
 "table": "nat", "chain": "KUBE-SEP-X", "probability": 1, "uncertain": [], "masquerade": null,
 "backends": [{"address": "10.244.1.3", "port": 6443, "probability": 1, "intended": null, "state": "ok",
  "result": "dnat", "masquerade": false, "snatTo": "", "node": "", "pod": "", "hops": []}],
 "hops": [], "notEvaluated": []
}`

// TestStrict gives the schema one document that holds and many that break one rule each.
func TestStrict(t *testing.T) {
	schema := compiled(t)
	base := strings.Replace(minimal, "PATHS", path, 1)
	tests := []struct {
		name, old, new string
		ok             bool
	}{
		{"the document itself", "", "", true},
		{"no paths", path, "", true},
		{"intended share", `"intended": null`, `"intended": 0.5`, true},
		{"excluded backend", `"state": "ok"`, `"state": "excluded"`, true},
		{"null array", `"findings": []`, `"findings": null`, false},
		{"missing array", `"findings": [], `, ``, false},
		{"missing summary", `, "summary": {"text": ""}`, ``, false},
		{"property of another program", `"node": "",`, `"node": "", "took": 3,`, false},
		{"property of a backend that does not exist", `"snatTo": ""`, `"snatTo": "", "weight": 1`, false},
		{"other kind", `"kind": "Trace"`, `"kind": "Report"`, false},
		{"other version", `v1alpha1`, `v1`, false},
		{"unknown result", `"result": "dnat", "translatedBy"`, `"result": "maybe", "translatedBy"`, false},
		{"unknown result of a backend", `"result": "dnat", "masquerade"`, `"result": "", "masquerade"`, false},
		{"unknown class", `"local-pod"`, `"pod"`, false},
		{"unknown origin", `"origin": "pod"`, `"origin": "host"`, false},
		{"unknown state", `"state": "ok"`, `"state": "fine"`, false},
		{"unknown kind of frontend", `"ClusterIP"`, `"clusterip"`, false},
		{"protocol in lower case", `"TCP"`, `"tcp"`, false},
		{"share above 1", `"probability": 1, "uncertain"`, `"probability": 1.5, "uncertain"`, false},
		{"port out of range", `"port": 6443`, `"port": 70000`, false},
		{"port as text", `"port": 6443`, `"port": "6443"`, false},
		{"source without status", `"sources": []`, `"sources": [{"name": "x", "file": "", "error": ""}]`, false},
		{"source with an unknown status", `"sources": []`, `"sources": [{"name": "x", "status": "gone", "file": "", "error": ""}]`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := base
			if tt.old != "" {
				if text = strings.Replace(base, tt.old, tt.new, 1); text == base {
					t.Fatalf("the document does not hold %q", tt.old)
				}
			}
			var doc any
			if err := json.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			err := schema.Validate(doc)
			if (err == nil) != tt.ok {
				t.Errorf("accepted: %v, want %v (%v)", err == nil, tt.ok, err)
			}
		})
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	docs := documents()
	text, err := generate(root, docs[slices.IndexFunc(docs, func(d document) bool { return d.kind == "Trace" })])
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("trace.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("trace.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
