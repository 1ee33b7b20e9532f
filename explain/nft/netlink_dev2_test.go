package nft

import (
	"os"
	"testing"
	"time"
)

func TestDevBig(t *testing.T) {
	data, err := os.ReadFile("/tmp/w/zz.nl")
	if err != nil {
		t.Skip()
	}
	begin := time.Now()
	r, err := ParseNetlink(data, "x")
	t.Log(time.Since(begin), err, len(r.Problems))
	begin = time.Now()
	s := r.String()
	t.Log(time.Since(begin))
	want, _ := os.ReadFile("/tmp/w/k10.out")
	t.Log(s == string(want), len(s), len(want))
	os.WriteFile("/tmp/w/k10.our", []byte(s), 0o644)
}

func BenchmarkDevBig(b *testing.B) {
	data, _ := os.ReadFile("/tmp/w/zz.nl")
	b.ReportAllocs()
	for b.Loop() {
		ParseNetlink(data, "x")
	}
}
