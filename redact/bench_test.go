package redact

import "testing"

// BenchmarkRedact redacts a recorded node of sixty Services and three proxies' worth of files.
func BenchmarkRedact(b *testing.B) {
	s := load(b, "../test/recorded/testdata/kube-proxy-1.36-ipvs")
	var size int64
	for _, e := range s.Evidence {
		size += int64(len(e.Data))
	}
	b.SetBytes(size)
	for b.Loop() {
		if _, err := Redact(s, testKey); err != nil {
			b.Fatal(err)
		}
	}
}
