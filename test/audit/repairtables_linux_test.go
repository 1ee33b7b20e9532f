package audit

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/repair/plan"
	"github.com/svcnet/svcnet/test/lab"
)

// TestRepairThenSync has kube-proxy in nftables mode hang while objects change, writes by hand what it would have written,
// and lets it go on: it takes over what it finds, whatever it remembers, and nothing is found any more.
func TestRepairThenSync(t *testing.T) {
	q := quarry{name: "nftables", mode: "nftables", backend: lab.NFT, plane: newNFTables}
	c := newClinic(t, q.bring(t, fmt.Sprintf("s%d", os.Getpid())), newNFTables)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// The tables of the node were loaded by hand, and are what kube-proxy remembers.
	must(c.n1.SignalProxy(syscall.SIGCONT))
	must(c.WaitSynced(ctx, c.n1))
	first := func(b *act, change func(e *discoveryv1.Endpoint)) {
		for _, sl := range b.slices {
			change(&sl.Endpoints[0])
		}
	}
	for _, tt := range []struct {
		service, what string
		change        func(b *act)
	}{
		{"plain", "another port: entries go and come", func(b *act) { b.svc.Spec.Ports[0].Port = 8000 }},
		{"one", "no endpoints any more: another map", func(b *act) {
			for _, sl := range b.slices {
				sl.Endpoints = []discoveryv1.Endpoint{}
			}
		}},
		{"sticky", "no session affinity any more: chains that nothing leads to", func(b *act) {
			b.svc.Spec.SessionAffinity, b.svc.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		}},
		{"port", "session affinity: chains and sets that were not there", func(b *act) { b.svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
		{"internal-local", "the local endpoint is not ready: refused", func(b *act) {
			first(b, func(e *discoveryv1.Endpoint) { e.Conditions.Ready, e.Conditions.Serving = new(false), new(false) })
		}},
		{"balanced", "another node port", func(b *act) { b.svc.Spec.Ports[0].NodePort += 200 }},
	} {
		t.Run(tt.service, func(t *testing.T) {
			a := c.actOf(tt.service)
			must(c.n1.SignalProxy(syscall.SIGSTOP))
			u := c.objects(a, tt.what, tt.change)
			must(u.do(ctx))
			r, snap, err := c.look(ctx)
			must(err)
			found := asked(u, c.fresh(r.Report))
			if len(found) == 0 {
				t.Errorf("nothing is found of %s", u.what)
			}
			p := plan.Make(r, plan.Options{})
			for _, s := range p.Steps {
				if s.Kind != "nftables" {
					continue
				}
				_, err := c.n1.Run(ctx, s.Do.Input, s.Do.Command...)
				must(err)
			}
			r, _, err = c.look(ctx)
			must(err)
			if left := asked(u, c.fresh(r.Report)); len(left) > 0 {
				t.Errorf("%s: mended by\n%s\nand found:\n%s\nof:\n%s", u.what, describe(p), strings.Join(left, "\n"), strings.Join(found, "\n"))
				keep(t, "sync-"+tt.service, snap)
			}
			must(c.n1.SignalProxy(syscall.SIGCONT))
			must(c.WaitSynced(ctx, c.n1))
			if d, _, err := tablesDiffer(snapOf(t, c)); err != nil || d != "" {
				t.Errorf("%s: error %v; kube-proxy went on, and its tables are not what it keeps:\n%s", u.what, err, d)
			}
			must(u.undo(ctx))
			must(c.WaitSynced(ctx, c.n1))
		})
	}
	log, err := os.ReadFile(c.n1.ProxyLog())
	must(err)
	t.Logf("%d syncs of kube-proxy failed on the way", strings.Count(string(log), "Sync failed"))
}

// snapOf reads the node.
func snapOf(t *testing.T, c *clinic) *snapshot.Snapshot {
	t.Helper()
	s, err := c.reader.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
