package snapshot

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf16"
)

// Every form in which HNS shows its load balancers and endpoints is recognised, whatever the file is called, and in the
// encoding in which Windows PowerShell writes what is redirected to a file.
func TestRecogniseHNS(t *testing.T) {
	files, err := filepath.Glob("../../explain/hns/testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if filepath.Base(file) == "README.md" {
			continue
		}
		n++
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"x", "output.txt", "endpoints.json"} {
			if format, _, _, note := Recognise(name, text); format != WindowsHNS {
				t.Errorf("%s as %s: %q (%s)", file, name, format, note)
			}
		}
		if format, _, _, note := Recognise("x", utf16LE(string(text))); format != WindowsHNS {
			t.Errorf("%s in UTF-16: %q (%s)", file, format, note)
		}
	}
	if n < 7 {
		t.Errorf("%d files", n)
	}
	for _, tt := range []struct {
		name, text string
		want       Format
	}{
		{"x", "ID                                   | Virtual IPs      | Direct IP IDs\n", WindowsHNS},
		{"x", "PS C:\\k> hnsdiag list loadbalancers\nID                                   | Virtual IPs      | Direct IP IDs\n326f84d7-35ec-4355-a60a-e82e2b05ec24 |  10.96.0.1       | ba06178e-11e9-4ba3-931d-7c2989b51dd7\n", WindowsHNS},
		{"x", `{"ID":"A","IPAddress":"10.244.1.11","IsRemoteEndpoint":true}`, WindowsHNS},
		{"x", "{\"value\":[{\"ActivityId\":\"B\",\"ID\":\"A\",\"References\":[],\"Policies\":[]}],\"Count\":1}", WindowsHNS},
		{"hns-loadbalancers.json", "[]\n", WindowsHNS},
		// An empty list may be anything.
		{"loadbalancers.json", "[]\n", Unrecognised},
		{"x", `{"ID":"A","Name":"b"}`, Unrecognised},
	} {
		if format, _, _, note := Recognise(tt.name, []byte(tt.text)); format != tt.want {
			t.Errorf("%s %q: %q (%s)", tt.name, tt.text, format, note)
		}
	}
	if why := NotEvaluated(WindowsHNS); why != "" {
		t.Errorf("not evaluated: %s", why)
	}
}

func utf16LE(s string) []byte {
	out := []byte{0xff, 0xfe}
	for _, c := range utf16.Encode([]rune(s)) {
		out = binary.LittleEndian.AppendUint16(out, c)
	}
	return out
}
