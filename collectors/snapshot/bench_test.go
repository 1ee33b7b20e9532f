package snapshot

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
)

// Loading looks at the head of a file and for places to cut; the rest of 25 MB of rules costs next to
// nothing.
func BenchmarkLoad(b *testing.B) {
	var text bytes.Buffer
	text.WriteString(strings.TrimSuffix(saveText, "COMMIT\n"))
	for text.Len() < 25<<20 {
		text.WriteString("[0:0] -A KUBE-SVC-4N57TFCL4MD7ZTDA -m comment --comment \"store/web:http -> 10.244.1.11:8080\" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-4N57TFCL4MD7ZTDA\n")
	}
	text.WriteString("COMMIT\n")
	files := fstest.MapFS{"iptables-save.txt": {Data: text.Bytes()}}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if s, err := LoadFS(files, "bench"); err != nil || s.Evidence[0].Format != IPTablesSave {
			b.Fatal(err)
		}
	}
}
