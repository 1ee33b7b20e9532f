package live

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// fallback is a running `svcnet proxy`.
type fallback struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	log []string
}

// startFallback starts the proxy on a node and waits until it serves.
func (s *stage) startFallback(t *testing.T, n *lab.Node, args ...string) *fallback {
	t.Helper()
	f := &fallback{done: make(chan struct{})}
	args = append([]string{"proxy", "-A", "--apply", "--runtime-folder", filepath.Join(n.Dir(), "run")}, args...)
	var said io.ReadCloser
	err := n.Netns().Do(func() error {
		f.cmd = exec.Command(svcnet(t), args...)
		f.cmd.Env = append(n.Env(), "HOME=/nonexistent", "KUBECONFIG="+s.Kubeconfig("admin"))
		var err error
		if said, err = f.cmd.StderrPipe(); err != nil {
			return err
		}
		return f.cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			f.mu.Lock()
			f.log = append(f.log, lines.Text())
			f.mu.Unlock()
		}
		_ = f.cmd.Wait() // the test looks at the state
	}()
	t.Cleanup(func() {
		_ = f.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-f.done:
		case <-time.After(10 * time.Second):
			_ = f.cmd.Process.Kill()
		}
		if t.Failed() {
			t.Logf("svcnet proxy said:\n%s", f.said())
		}
	})
	f.wait(t, "looked at the node")
	return f
}

func (f *fallback) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n")
}

// wait waits for a line with those words.
func (f *fallback) wait(t *testing.T, words string) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(f.said(), words) {
			return
		}
		select {
		case <-f.done:
			t.Fatalf("svcnet proxy ended before it said %q:\n%s", words, f.said())
		default:
		}
	}
	t.Fatalf("svcnet proxy did not say %q:\n%s", words, f.said())
}

// flushed takes away all rules of a node, as `kube-proxy --cleanup` and a reloaded firewall do.
func flushed(t *testing.T, n *lab.Node) {
	t.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			for _, what := range []string{"-F", "-X"} {
				if _, err := n.Run(t.Context(), "", program, "-w", "-t", table, what); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := n.Run(t.Context(), "", "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
}

// wrongObjects are the Services with other endpoints than they are to have: what a kube-proxy knows that has stopped to
// listen. Who has none has one then, and who has some has none.
func wrongObjects() []any {
	var out []any
	for _, sc := range scenes() {
		for _, sl := range sc.slices {
			wrong := *sl.DeepCopy()
			if len(sl.Endpoints) == 0 {
				wrong.Endpoints = append(wrong.Endpoints, end{pod: "c2"}.endpoint(corev1.IPFamily(sl.AddressType)))
			} else {
				wrong.Endpoints = wrong.Endpoints[:0]
			}
			out = append(out, wrong)
		}
	}
	return out
}

// TestFallback has kube-proxy stop on node n1, its rules gone or stale, and `svcnet proxy` serve in its place: connections
// for every frontend and source class go as svcnet says of its tables, and as the objects ask.
func TestFallback(t *testing.T) {
	for _, way := range []struct {
		name, mode string
		backend    lab.Backend
		stale      bool
	}{
		{"flushed", "iptables", lab.NFT, false},
		{"stale-iptables", "iptables", lab.Legacy, true},
		{"stale-nftables", "nftables", lab.NFT, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("f%s%d", way.name[len(way.name)-2:], os.Getpid()), Mode: way.mode, Backend: way.backend, NoProxy: true}))
			if way.stale {
				if err := s.Apply(t.Context(), wrongObjects()...); err != nil {
					t.Fatal(err)
				}
				if err := s.WaitSynced(t.Context(), s.n1, s.n3); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.n1.StopProxy(); err != nil {
				t.Fatal(err)
			}
			var force []string
			if way.stale {
				for _, sc := range scenes() {
					for _, sl := range sc.slices {
						if err := s.Apply(t.Context(), sl); err != nil {
							t.Fatal(err)
						}
					}
				}
				force = s.staleRefusals(t, way.mode)
			} else {
				flushed(t, s.n1)
			}
			f := s.startFallback(t, s.n1, force...)
			bundle := filepath.Join(t.TempDir(), "n1.tar.gz")
			if _, said, code := s.run(t, s.n1, "collect", "-o", bundle); code != 0 {
				t.Fatalf("collect: exit %d: %s", code, said)
			}
			snap, err := snapshot.Load([]string{bundle}, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.audits(t, snap)
			g := &grid{stage: s, seen: map[string]int{}}
			for _, sc := range scenes() {
				trace, err := explain.Trace(snap, explain.TraceOptions{Namespace: "store", Service: sc.svc.Name})
				if err != nil {
					t.Errorf("%s: %v", sc.svc.Name, err)
					continue
				}
				if trace.Proxy.Mode != "svcnet" {
					t.Fatalf("a trace takes the mode for %q", trace.Proxy.Mode)
				}
				g.service(t, sc, trace)
			}
			t.Logf("%d Services, %d cells, %d connections; outcomes: %v", len(scenes()), g.cells, g.connections, g.seen)
			for _, class := range []string{"local-pod", "hairpin", "remote-pod", "node", "remote-node", "external"} {
				if g.seen["class "+class] == 0 {
					t.Errorf("no cell of class %s", class)
				}
			}
			for _, kind := range []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalIP", "HealthCheck"} {
				if g.seen["kind "+kind] == 0 {
					t.Errorf("no cell of kind %s", kind)
				}
			}
			for _, outcome := range []string{"answered", "refused", "silent"} {
				if g.seen[outcome] == 0 {
					t.Errorf("nothing was predicted to be %s", outcome)
				}
			}
			s.leavesNothing(t, f)
		})
	}
}

// staleRefusals are what the proxy asks for where rules of kube-proxy refuse what it would serve: those of nftables mode
// that come before translation. It has to say which.
func (s *stage) staleRefusals(t *testing.T, mode string) []string {
	t.Helper()
	out, said, code := s.run(t, s.n1, "proxy", "-A")
	if code != 0 {
		t.Fatalf("proxy without --apply: exit %d: %s", code, said)
	}
	t.Logf("%s", out)
	if mode == "iptables" && strings.Contains(out, "in the way") {
		t.Errorf("stale rules of iptables mode are outrun, and some are said to be in the way")
	}
	if strings.Contains(out, "in the way") {
		return []string{"--force"}
	}
	return nil
}

// audits tells that an audit beside the proxy finds nothing that the objects do not deserve, but that kube-proxy is gone.
func (s *stage) audits(t *testing.T, snap *snapshot.Snapshot) {
	t.Helper()
	r, err := explain.Audit(snap, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Severity == "info" || f.ID == "proxy-not-running" || slices.Contains(deserved[f.Object.Name], f.ID) {
			continue
		}
		switch f.ID {
		case "service-without-endpoints", "pods-not-ready", "selector-matches-no-pods", "endpoint-without-pod", "topology-hints-absent":
			continue
		}
		t.Errorf("audit beside the proxy: %s %s %s: %s", f.Severity, f.ID, f.Object.Name, f.Message)
	}
}

// leavesNothing ends the proxy: its tables and its lock are gone.
func (s *stage) leavesNothing(t *testing.T, f *fallback) {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-f.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the proxy does not end")
	}
	if code := f.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("interrupted, the proxy ends with %d", code)
	}
	rules, err := s.n1.Run(t.Context(), "", "nft", "list", "tables")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(rules, "svcnet") {
		t.Errorf("tables stay: %s", rules)
	}
}

// Hand-over and hand-back: how many connections are made throughout, by how many at a time, and how many long-lived ones
// there are.
const (
	throughout = 12000
	dialers    = 6
	longLived  = 24
)

// TestHandBack makes connections without a pause while kube-proxy is stopped, svcnet takes over, kube-proxy comes back and
// svcnet hands back. Its rules are there when it stops, so that at no moment nobody serves: none may fail, and none of
// those that were made before, in between and throughout may break.
func TestHandBack(t *testing.T) {
	for _, way := range []struct {
		name, mode string
		backend    lab.Backend
	}{
		{"iptables", "iptables", lab.NFT},
		{"nftables", "nftables", lab.NFT},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("b%s%d", way.name[:2], os.Getpid()), Mode: way.mode, Backend: way.backend, NoProxy: true}))
			targets := s.handBackTargets(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var (
				made, failed atomic.Int64
				wait         sync.WaitGroup
				mu           sync.Mutex
				wrong        []string
			)
			complain := func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				failed.Add(1)
				if len(wrong) < 20 {
					wrong = append(wrong, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
				}
			}
			open := func() []*lab.Conn {
				var out []*lab.Conn
				for i := range longLived {
					x := targets[i%len(targets)]
					c, a, err := s.Open(ctx, x.from, x.proto, x.to, lab.DialOptions{Timeout: 10 * time.Second})
					if err != nil || a.Outcome != lab.Answered {
						t.Fatalf("open a connection to %s: %v %v", x.to, a, err)
					}
					out = append(out, c)
				}
				return out
			}
			ask := func(when string, conns []*lab.Conn) {
				for i, c := range conns {
					a, err := c.Ask(ctx)
					if err != nil || a.Outcome != lab.Answered {
						complain("%s: connection %d to %s breaks: %v %v", when, i, targets[i%len(targets)].to, a, err)
					}
				}
			}
			for d := range dialers {
				wait.Add(1)
				go func() {
					defer wait.Done()
					for i := d; ctx.Err() == nil; i++ {
						x := targets[i%len(targets)]
						a, err := s.Dial(ctx, x.from, x.proto, x.to, lab.DialOptions{Timeout: 10 * time.Second})
						if ctx.Err() != nil {
							return
						}
						made.Add(1)
						if err != nil || a.Outcome != lab.Answered {
							complain("connection to %s: %v %v", x.to, a, err)
						}
					}
				}()
			}
			before := open()
			if err := s.n1.StopProxy(); err != nil {
				t.Fatal(err)
			}
			// A kube-proxy that is gone is to be stood in for, be its rules right for now.
			f := s.startFallback(t, s.n1, "--until-kube-proxy-healthy", "--healthy-interval", "1s")
			ask("svcnet serves", before)
			between := open()
			for made.Load() < throughout/2 {
				time.Sleep(20 * time.Millisecond)
			}
			if err := s.n1.StartProxy(ctx); err != nil {
				t.Fatal(err)
			}
			f.wait(t, "kube-proxy serves again")
			select {
			case <-f.done:
			case <-time.After(20 * time.Second):
				t.Fatal("the proxy does not end")
			}
			if code := f.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("handed back, the proxy ends with %d", code)
			}
			ask("kube-proxy serves", before)
			ask("kube-proxy serves", between)
			for made.Load() < throughout {
				time.Sleep(20 * time.Millisecond)
			}
			stop()
			wait.Wait()
			for _, c := range append(before, between...) {
				c.Close()
			}
			t.Logf("%d connections, %d long-lived, %d failed", made.Load(), len(before)+len(between), failed.Load())
			for _, w := range wrong {
				t.Error(w)
			}
			if rules, err := s.n1.Run(t.Context(), "", "nft", "list", "tables"); err != nil || strings.Contains(rules, "svcnet") {
				t.Errorf("tables stay: %s %v", rules, err)
			}
		})
	}
}

// target is where connections go.
type target struct {
	from  lab.Place
	proto corev1.Protocol
	to    netip.AddrPort
}

// handBackTargets are a cluster IP, a node port and a load balancer address, from a pod, the node and outside, of both
// families, TCP and UDP.
func (s *stage) handBackTargets(t *testing.T) []target {
	t.Helper()
	var out []target
	for _, name := range []string{"many", "node-port", "balancer", "udp"} {
		var svc corev1.Service
		if err := s.Get(t.Context(), "Service", "store", name, &svc); err != nil {
			t.Fatal(err)
		}
		proto, port := svc.Spec.Ports[0].Protocol, uint16(svc.Spec.Ports[0].Port)
		for _, ip := range svc.Spec.ClusterIPs {
			to := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
			out = append(out, target{s.pods["client-1"], proto, to}, target{s.n1, proto, to})
		}
		if np := svc.Spec.Ports[0].NodePort; np != 0 && name == "node-port" {
			out = append(out, target{s.Client, proto, netip.AddrPortFrom(s.n1.IPv4, uint16(np))})
			if way := s.n1.IPv6; len(svc.Spec.ClusterIPs) > 1 {
				out = append(out, target{s.Client, proto, netip.AddrPortFrom(way, uint16(np))})
			}
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			out = append(out, target{s.Client, proto, netip.AddrPortFrom(netip.MustParseAddr(in.IP), port)})
		}
	}
	return out
}
