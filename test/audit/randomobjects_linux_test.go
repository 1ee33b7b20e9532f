package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// sampleSets is how many sets of objects CI looks at: less than four minutes.
const sampleSets = 30

// worldSeed begins the dice. SVCNET_AUDIT_SEED replaces it.
const worldSeed = 20261128

// TestRandomObjects changes what the API holds at random, lets the kube-proxies of three nodes program it, two in
// iptables mode through one backend each and one in nftables mode, and audits all: what is found is what the objects deserve.
func TestRandomObjects(t *testing.T) {
	l := labtest.Bring(t, lab.Options{
		Name: fmt.Sprintf("a%d", os.Getpid()), NoProxy: true, NodeBackend: map[string]lab.Backend{"n2": lab.Legacy},
		ProxyConfig: func(node string, config map[string]any) {
			if node == "n3" {
				config["mode"] = "nftables"
			}
		},
	})
	randomObjects(t, l, l.Nodes, false, sampleSets)
}

// randomObjects is TestRandomObjects on some nodes of a lab without objects. ipvs says that kube-proxy is in that mode there.
func randomObjects(t *testing.T, l *lab.Lab, nodes []*lab.Node, ipvs bool, sample int) {
	t.Helper()
	sets, seed := setting(t, "SVCNET_AUDIT_SETS", sample), setting(t, "SVCNET_AUDIT_SEED", worldSeed)
	w := &world{lab: l, dice: rand.New(rand.NewPCG(uint64(seed), 0)), services: map[string]*worldService{}, ipvs: ipvs}
	w.begin(t)
	var readers []*reader
	for _, n := range nodes {
		if !n.ProxyRunning() {
			if err := n.StartProxy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := newReader(l, n)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	var synced, audited time.Duration
	counts := map[string]int{}
	for set := range sets {
		if set > 0 {
			if err := w.step(t.Context()); err != nil {
				t.Fatalf("set %d of seed %d: %v", set, seed, err)
			}
		}
		begun := time.Now()
		if err := l.WaitSynced(t.Context(), nodes...); err != nil {
			t.Fatalf("set %d of seed %d: %v", set, seed, err)
		}
		synced += time.Since(begun)
		for _, r := range readers {
			begun := time.Now()
			a, snap, err := r.audit(t.Context())
			if err != nil {
				t.Fatalf("set %d of seed %d: %v", set, seed, err)
			}
			audited += time.Since(begun)
			if wrong := w.compare(r.node.Name, a, counts); wrong != "" {
				t.Errorf("set %d of seed %d, node %s (%s):\n%s", set, seed, r.node, r.node.Backend(), wrong)
				keep(t, fmt.Sprintf("set-%d-%s", set, r.node), snap)
			}
			if a.Proxy.Mode == "ipvs" {
				if d, err := generatedServersDiffer(snap); err != nil || d != "" {
					t.Errorf("set %d of seed %d, node %s: %s %v", set, seed, r.node, d, err)
				}
			}
			if a.Proxy.Mode == "iptables" {
				if d, err := generatedDiffers(snap); err != nil || d != "" {
					t.Errorf("set %d of seed %d, node %s (%s), rules: %s %v", set, seed, r.node, r.node.Backend(), d, err)
				}
			}
		}
	}
	t.Logf("%d sets; the last has %d Services and %d pods; %d changes were refused by the API server; %v waiting for kube-proxy, %v auditing", sets, len(w.services), len(w.pods), w.refused, synced.Round(time.Second), audited.Round(time.Second))
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%5d %s", counts[id], id)
	}
}

// compare holds an audit against what is deserved, both ways. counts counts findings that were right.
func (w *world) compare(node string, a *report.Report, counts map[string]int) string {
	var wrong strings.Builder
	want := w.deserved(node)
	got := map[verdict]bool{}
	about := map[string]bool{}
	for _, f := range a.Findings {
		if f.Severity == "info" {
			continue
		}
		v := verdict{f.ID, f.Object.Name}
		got[v] = true
		if _, deserved := want[v]; deserved && f.Object.Kind == "Service" && f.Object.Namespace == namespace {
			counts[f.ID]++
			continue
		}
		about[f.Object.Name] = true
		fmt.Fprintf(&wrong, "undeserved %s %s: %s %s/%s: %s; want %s; got %s\n", f.Severity, f.ID, f.Object.Kind, f.Object.Namespace, f.Object.Name, f.Message, f.Want, f.Got)
		for _, e := range f.Evidence {
			fmt.Fprintf(&wrong, "    %s:%d %.300s\n", e.File, e.Line, e.Text)
		}
	}
	for v, must := range want {
		if must && !got[v] {
			about[v.service] = true
			fmt.Fprintf(&wrong, "missing %s of Service %s\n", v.id, v.service)
		}
	}
	for _, u := range a.Unknown {
		fmt.Fprintf(&wrong, "unknown %s: %s\n", u.ID, u.Text)
	}
	if wrong.Len() == 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(about)) {
		if s := w.services[name]; s != nil {
			fmt.Fprintf(&wrong, "%s on %s:\n", name, node)
			text, _ := json.Marshal(s.Service) // objects of k8s.io/api always are JSON
			fmt.Fprintf(&wrong, "  %s\n", text)
			for _, slice := range slices.Sorted(maps.Keys(s.slices)) {
				text, _ := json.Marshal(s.slices[slice])
				fmt.Fprintf(&wrong, "  %s\n", text)
			}
		}
	}
	return wrong.String()
}
