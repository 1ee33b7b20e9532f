package plan

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/scale"
)

// oneChain takes the rules of one Service's chain away, portals those of KUBE-SERVICES, everything all of kube-proxy's.
func oneChain() func(chain string) bool {
	emptied := ""
	return func(chain string) bool {
		if emptied == "" && strings.HasPrefix(chain, "KUBE-SVC-") {
			emptied = chain
		}
		return chain == emptied
	}
}

func portals(chain string) bool    { return chain == "KUBE-SERVICES" }
func everything(chain string) bool { return true }

// largeIPTablesNode is a node of a cluster with many Services in iptables mode, without the rules of some chains.
func largeIPTablesNode(tb testing.TB, services, endpoints int, gone func(chain string) bool) *snapshot.Snapshot {
	tb.Helper()
	_, files := scale.NewFleet(services, endpoints).Node(0)
	var save bytes.Buffer
	for line := range bytes.Lines(files["iptables-nft-save.txt"]) {
		if w := bytes.Fields(line); len(w) < 3 || string(w[1]) != "-A" || !gone(string(w[2])) {
			save.Write(line)
		}
	}
	files["iptables-nft-save.txt"] = save.Bytes()
	files["kube-proxy-config.yaml"] = []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.128.0.0/9\nhostnameOverride: node-1\n")
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

// What is written is the one chain, whatever the size.
func TestLargeIPTables(t *testing.T) {
	r, err := explain.Read(largeIPTablesNode(t, 300, 5, oneChain()), explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := Make(r, Options{})
	var inputs []string
	for _, step := range p.Steps {
		if step.Kind == kindIPTables {
			inputs = append(inputs, step.Do.Input)
			if len(step.Edits) != 1 {
				t.Errorf("edits %+v", step.Edits)
			}
		}
	}
	if len(inputs) != 1 || strings.Count(inputs[0], "\n") != 3+6 {
		t.Errorf("%d findings; the transactions are %q", len(p.Findings), inputs)
	}
}

// BenchmarkIPTables is a plan for all of 10,000 Services with 5 endpoints, of which one has an empty chain: what it takes
// beside the audit that it rests on.
func BenchmarkIPTables(b *testing.B) {
	s := largeIPTablesNode(b, 10000, 5, oneChain())
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
		b.ReportAllocs()
		for b.Loop() {
			p := Make(r, Options{})
			lines := 0
			for _, step := range p.Steps {
				if step.Kind == kindIPTables {
					lines += strings.Count(step.Do.Input, "\n")
				}
			}
			if lines != 3+6 {
				b.Fatalf("%d lines of transactions, of %d findings", lines, len(p.Findings))
			}
		}
	})
}

// BenchmarkIPTablesRestored is a plan for all of 10,000 Services with 5 endpoints where nothing leads to them any more, and
// where all rules are gone.
func BenchmarkIPTablesRestored(b *testing.B) {
	for _, c := range []struct {
		name string
		gone func(chain string) bool
	}{{"portals", portals}, {"everything", everything}} {
		r, err := explain.Read(largeIPTablesNode(b, 10000, 5, c.gone), explain.AuditOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p := Make(r, Options{})
				if !slices.ContainsFunc(p.Steps, func(s report.RepairStep) bool { return len(s.Edits) > 10000 }) {
					b.Fatalf("%d steps of %d findings", len(p.Steps), len(p.Findings))
				}
			}
		})
	}
}
