package netfilter_test

import (
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/test/scale"
)

// BenchmarkParse reads 10,000 Services with 5 endpoints each: 230,000 lines, 25 MB.
func BenchmarkParse(b *testing.B) {
	text := string(scale.IPTablesSave(10000, 5))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		rs, err := netfilter.ParseSave(text, "iptables-save.txt", netfilter.Hint{})
		if err != nil || len(rs) != 1 || len(rs[0].Problems) != 0 {
			b.Fatal(err, len(rs))
		}
	}
}
