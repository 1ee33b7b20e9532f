package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
)

var update = flag.Bool("update", false, "write the golden files")

func load(t *testing.T, name string) *report.Trace {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Trace
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &doc
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// documents are the traces in testdata.
func documents() []string {
	return []string{"affinity", "etp-local", "headless", "hostile", "inside", "packet", "reject", "uncertain", "web"}
}

func TestGolden(t *testing.T) {
	for _, name := range documents() {
		for _, f := range Formats() {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				var out bytes.Buffer
				if err := f.Trace(&out, load(t, name), Options{}); err != nil {
					t.Fatal(err)
				}
				golden(t, name+"."+f.Name+".golden", out.Bytes())
			})
		}
	}
}

func TestGoldenTreeOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"narrow": {Width: 80},
		"ascii":  {Width: 100, ASCII: true},
		"color":  {Width: 120, Color: true},
	} {
		for _, doc := range []string{"web", "uncertain"} {
			t.Run(doc+"/"+name, func(t *testing.T) {
				var out bytes.Buffer
				if err := Tree(&out, load(t, doc), o); err != nil {
					t.Fatal(err)
				}
				golden(t, doc+".tree."+name+".golden", out.Bytes())
			})
		}
	}
}
