package render

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/svcnet/svcnet/explain/report"
)

// statuses are the documents in testdata/status.
var statuses = []string{"healthy", "not-healthy", "not-programmed"}

func loadStatus(t *testing.T, name string) *report.NodeStatus {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "status", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc report.NodeStatus
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &doc
}

func TestStatusGolden(t *testing.T) {
	for _, name := range statuses {
		for suffix, o := range map[string]Options{"": {}, ".narrow": {Width: 80, ASCII: true}} {
			t.Run(name+suffix, func(t *testing.T) {
				var out bytes.Buffer
				if err := Status(&out, loadStatus(t, name), o); err != nil {
					t.Fatal(err)
				}
				golden(t, filepath.Join("status", name+suffix+".golden"), out.Bytes())
			})
		}
	}
}

// TestStatusForeignText: what strangers wrote does not reach the terminal as it is.
func TestStatusForeignText(t *testing.T) {
	for _, s := range []string{"\x1b[2J", "a\nb", "\u202e\u2066", "\xff\xfe", ""} {
		doc := loadStatus(t, "not-programmed")
		fill(reflect.ValueOf(doc).Elem(), s)
		for _, o := range []Options{{}, {Width: 60, ASCII: true}} {
			var out bytes.Buffer
			if err := Status(&out, doc, o); err != nil {
				t.Fatal(err)
			}
			checkSafe(t, out.String(), o)
		}
	}
}
