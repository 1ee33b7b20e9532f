package plan

import (
	"bytes"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/test/scale"
)

// largeNode is a node of a cluster with many Services in nftables mode. One of them has an empty chain.
func largeNode(tb testing.TB, services, endpoints int) *snapshot.Snapshot {
	tb.Helper()
	_, files := scale.NewFleet(services, endpoints).Node(0)
	delete(files, "iptables-nft-save.txt")
	table := scale.NFTables(services, endpoints)
	at := bytes.Index(table, []byte("\tchain service-"))
	end := bytes.Index(table[at:], []byte("\t}\n"))
	head := bytes.Index(table[at:], []byte("{\n"))
	files["nft.txt"] = append(bytes.Clone(table[:at+head+2]), table[at+end:]...)
	files["kube-proxy-config.yaml"] = []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.128.0.0/9\nhostnameOverride: node-1\n")
	files["kube-proxy.log"] = []byte("I0105 10:00:00.000000       1 server.go:249] \"Version info\" version=\"v1.36.3\"\n")
	dir := tb.TempDir()
	if err := scale.Write(dir, files); err != nil {
		tb.Fatal(err)
	}
	s, err := snapshot.Load([]string{dir}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	s.Node = "node-1"
	return s
}

// BenchmarkNFTables is a plan for all of 10,000 Services with 5 endpoints, of which one has an empty chain: what it takes
// beside the audit that it rests on.
func BenchmarkNFTables(b *testing.B) {
	s := largeNode(b, 10000, 5)
	var r *explain.Reading
	b.Run("audit", func(b *testing.B) {
		for b.Loop() {
			var err error
			if r, err = explain.Read(s, explain.AuditOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			p := Make(r, Options{})
			wrong := ""
			for _, step := range p.Steps {
				if step.Kind == kindNFTables {
					wrong += step.Do.Input
				}
			}
			if strings.Count(wrong, "\n") != 2 {
				b.Fatalf("the transaction is %q, of %d findings", wrong, len(p.Findings))
			}
		}
	})
}
