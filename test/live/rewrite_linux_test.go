package live

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// TestReadWhileRewriting reads a node whose kube-proxy rewrites all of its rules several times a second, while the
// endpoints of another Service come and go: every reading is right, or says that it could not be made.
func TestReadWhileRewriting(t *testing.T) {
	const reads = 100 // for each backend
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			l := labtest.Bring(t, lab.Options{
				Name: fmt.Sprintf("w%s%d", backend[:1], os.Getpid()), Backend: backend, NoProxy: true,
				ProxyConfig: func(_ string, config map[string]any) {
					config["iptables"] = map[string]any{"syncPeriod": "100ms", "minSyncPeriod": "1ms"}
				},
			})
			s := set(t, l)
			if err := s.n3.StopProxy(); err != nil { // it would only take time
				t.Fatal(err)
			}
			stop, stopped := make(chan bool), make(chan error, 1)
			flips := 0
			go func() {
				on := service("comes-and-goes", tcp())
				for {
					select {
					case <-stop:
						stopped <- nil
						return
					case <-time.After(250 * time.Millisecond):
					}
					ends := ready("a1", "c1")
					if flips%2 == 1 {
						ends = nil
					}
					objects := []any{on}
					for _, sl := range slices4and6(on, "", ends) {
						objects = append(objects, sl)
					}
					if err := l.Apply(t.Context(), objects...); err != nil {
						stopped <- err
						return
					}
					flips++
					// A kube-proxy that finds its canaries gone takes it that somebody flushed everything, and
					// writes all anew; else it writes what changed.
					for _, program := range []string{"iptables", "ip6tables"} {
						for _, table := range []string{"mangle", "nat", "filter"} {
							_, _ = s.n1.Run(t.Context(), "", program, "-w", "-t", table, "-X", "KUBE-PROXY-CANARY")
						}
					}
				}
			}()
			before := rewritten(t, s.n1)
			marked := 0
			for range reads {
				out, said, code := s.run(t, s.n1, "trace", "svc/many", "-n", "store", "-o", "json")
				var d report.Trace
				if err := json.Unmarshal([]byte(out), &d); err != nil {
					t.Fatalf("exit %d: %v: %s", code, err, said)
				}
				inconsistent := false
				for _, src := range d.Sources {
					inconsistent = inconsistent || src.Status == "failed" && strings.Contains(src.Error, "inconsistent")
				}
				switch {
				case len(d.Findings) > 0:
					t.Errorf("a false mismatch: %s: %s", d.Findings[0].ID, d.Findings[0].Message)
				case inconsistent && code == 4:
					marked++
				case code != 0 || !whole(&d):
					t.Errorf("exit %d, and neither right nor marked: %s %.300s", code, said, out)
				}
			}
			close(stop)
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
			after := rewritten(t, s.n1)
			t.Logf("%d reads, %d of them marked as inconsistent; kube-proxy wrote all rules anew %d times meanwhile, endpoints changed %d times", reads, marked, after-before, flips)
			if after-before < reads/2 {
				t.Errorf("kube-proxy wrote all rules anew %d times only: nothing was put to the test", after-before)
			}
			if marked > reads/4 {
				t.Errorf("%d of %d readings were given up", marked, reads)
			}
		})
	}
}

// whole tells that every cell reaches all four backends.
func whole(d *report.Trace) bool {
	for i := range d.Paths {
		p := &d.Paths[i]
		if p.Result != report.ResultDNAT || len(p.Backends) != 4 || p.Probability != 1 {
			return false
		}
		for _, b := range p.Backends {
			if b.State != "ok" || b.Probability != 0.25 {
				return false
			}
		}
	}
	return len(d.Paths) > 0
}

// rewritten is how often kube-proxy has written all of its rules.
func rewritten(t *testing.T, n *lab.Node) int {
	t.Helper()
	body, err := n.Get(t.Context(), "http://127.0.0.1:10249/metrics")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "kubeproxy_sync_full_proxy_rules_duration_seconds_count") {
			var n float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
				t.Fatal(err)
			}
			total += int(n)
		}
	}
	return total
}
