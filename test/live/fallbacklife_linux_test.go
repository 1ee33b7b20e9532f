package live

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// TestFallbackLife goes through what may happen to a proxy: it is refused where it has no business, killed and started
// again, loses its tables to somebody, ends by itself, works from files without a server, and forgets connections of UDP.
func TestFallbackLife(t *testing.T) {
	s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("fl%d", os.Getpid()), Nodes: 3, NoProxy: true}))
	run := filepath.Join(s.n1.Dir(), "run")
	proxy := func(args ...string) (string, string, int) {
		t.Helper()
		return s.run(t, s.n1, append([]string{"proxy", "--runtime-folder", run}, args...)...)
	}
	tables := func() string {
		t.Helper()
		out, err := s.n1.Run(t.Context(), "", "nft", "list", "tables")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var many corev1.Service
	if err := s.Get(t.Context(), "Service", "store", "many", &many); err != nil {
		t.Fatal(err)
	}
	vip := netip.AddrPortFrom(netip.MustParseAddr(many.Spec.ClusterIP), 80)
	answers := func() bool {
		t.Helper()
		a, err := s.Dial(t.Context(), s.pods["client-1"], corev1.ProtocolTCP, vip, lab.DialOptions{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return a.Outcome == lab.Answered
	}
	must := func(ok bool, format string, args ...any) {
		t.Helper()
		if !ok {
			t.Fatalf(format, args...)
		}
	}
	kill := func(f *fallback) {
		t.Helper()
		if err := f.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-f.done
	}

	t.Run("a healthy kube-proxy is left alone", func(t *testing.T) {
		_, said, code := proxy("-A", "--apply")
		must(code == 1 && strings.Contains(said, "serves as it should"), "exit %d: %s", code, said)
		must(!strings.Contains(tables(), "svcnet"), "tables: %s", tables())
		out, _, code := proxy("-A")
		must(code == 0 && strings.Contains(out, "It would refuse"), "exit %d: %s", code, out)
	})
	if err := s.n1.StopProxy(); err != nil {
		t.Fatal(err)
	}
	flushed(t, s.n1)
	must(!answers(), "a Service answers without any rule")

	t.Run("nothing is written without --apply", func(t *testing.T) {
		out, said, code := proxy("-A")
		must(code == 0 && strings.Contains(out, "Nothing was changed"), "exit %d: %s%s", code, out, said)
		must(!strings.Contains(tables(), "svcnet"), "tables: %s", tables())
	})
	t.Run("one is enough", func(t *testing.T) {
		f := s.startFallback(t, s.n1)
		must(answers(), "nobody answers")
		_, said, code := proxy("-A", "--apply", "--force")
		must(code == 1 && strings.Contains(said, "runs on this node already"), "exit %d: %s", code, said)
		s.leavesNothing(t, f)
		must(!answers(), "a Service answers without any rule")
	})
	t.Run("killed, the tables serve until the next start", func(t *testing.T) {
		kill(s.startFallback(t, s.n1))
		must(strings.Contains(tables(), "svcnet") && answers(), "the tables are gone with the process: %s", tables())
		f := s.startFallback(t, s.n1)
		must(answers(), "nobody answers")
		s.leavesNothing(t, f)
	})
	t.Run("cleanup removes what a killed one left", func(t *testing.T) {
		kill(s.startFallback(t, s.n1))
		out, said, code := s.run(t, s.n1, "cleanup", "--runtime-folder", run)
		must(code == 0 && strings.Contains(out, "table ip svcnet removed"), "exit %d: %s%s", code, out, said)
		must(!strings.Contains(tables(), "svcnet"), "tables: %s", tables())
	})
	t.Run("temporary tables end with a killed process", func(t *testing.T) {
		f := s.startFallback(t, s.n1, "--temporary")
		must(answers(), "nobody answers")
		if _, err := s.n1.Run(t.Context(), "", "nft", "delete", "table", "ip", "svcnet"); err == nil {
			t.Error("somebody else deletes an owned table")
		}
		kill(f)
		end := time.Now().Add(5 * time.Second)
		for strings.Contains(tables(), "svcnet") && time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
		}
		must(!strings.Contains(tables(), "svcnet"), "tables stay: %s", tables())
	})
	t.Run("somebody flushes all rules", func(t *testing.T) {
		f := s.startFallback(t, s.n1)
		flushed(t, s.n1)
		f.wait(t, "it is made anew")
		end := time.Now().Add(5 * time.Second)
		for !answers() && time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
		}
		must(answers(), "nobody answers")
		s.leavesNothing(t, f)
	})
	t.Run("its time is over", func(t *testing.T) {
		f := s.startFallback(t, s.n1, "--ttl", "5s")
		select {
		case <-f.done:
		case <-time.After(30 * time.Second):
			t.Fatal("it does not end")
		}
		must(f.cmd.ProcessState.ExitCode() == 0 && strings.Contains(f.said(), "its time is over"), "exit %d: %s", f.cmd.ProcessState.ExitCode(), f.said())
		must(!strings.Contains(tables(), "svcnet"), "tables: %s", tables())
	})
	t.Run("a rule in the way is named, and removed when asked", func(t *testing.T) {
		drop := []string{"iptables", "-w", "-I", "FORWARD", "-d", s.pods["c1"].IPv4.String(), "-p", "tcp", "--dport", "8080", "-j", "DROP"}
		if _, err := s.n1.Run(t.Context(), "", drop...); err != nil {
			t.Fatal(err)
		}
		out, _, _ := proxy("-A")
		must(strings.Contains(out, "in the way") && strings.Contains(out, "-j DROP"), "the rule is not named: %s", out)
		_, said, code := proxy("-A", "--apply")
		must(code == 1 && strings.Contains(said, "--remove-obstacles"), "exit %d: %s", code, said)
		f := s.startFallback(t, s.n1, "--remove-obstacles", "--journal", filepath.Join(s.n1.Dir(), "journal"))
		f.wait(t, "removed what")
		rules, err := s.n1.Run(t.Context(), "", "iptables-save")
		must(err == nil && !strings.Contains(rules, "-j DROP"), "the rule stays: %s", rules)
		s.leavesNothing(t, f)
		if _, _, code := s.run(t, s.n1, "repair", "--rollback", "--journal", filepath.Join(s.n1.Dir(), "journal")); code != 0 {
			t.Errorf("rollback: exit %d", code)
		}
		rules, err = s.n1.Run(t.Context(), "", "iptables-save")
		must(err == nil && strings.Contains(rules, "-j DROP"), "the rule does not come back: %s", rules)
		drop[2] = "-D"
		if _, err := s.n1.Run(t.Context(), "", drop...); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("connections of UDP go to backends that are there", func(t *testing.T) { s.forgetsUDP(t) })
	t.Run("with objects of files and the API server gone", func(t *testing.T) { s.servesFiles(t, proxy, vip) })
}

// forgetsUDP has a client of UDP keep asking from one port while its backend is replaced: the answers come from the new one.
func (s *stage) forgetsUDP(t *testing.T) {
	t.Helper()
	var svc corev1.Service
	if err := s.Get(t.Context(), "Service", "store", "udp", &svc); err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), 53)
	var sc scene
	for _, x := range scenes() {
		if x.svc.Name == "udp" {
			sc = x
		}
	}
	give := func(pod string) {
		t.Helper()
		for _, sl := range sc.slices {
			only := *sl.DeepCopy()
			only.Endpoints = only.Endpoints[:0]
			only.Endpoints = append(only.Endpoints, end{pod: pod}.endpoint(corev1.IPFamily(sl.AddressType)))
			if err := s.Apply(t.Context(), only); err != nil {
				t.Fatal(err)
			}
		}
	}
	give("a1")
	f := s.startFallback(t, s.n1)
	c, a, err := s.Open(t.Context(), s.pods["client-1"], corev1.ProtocolUDP, to, lab.DialOptions{Timeout: time.Second})
	if err != nil || a.Pod != "a1" {
		t.Fatalf("the first answer: %v %v", a, err)
	}
	defer c.Close()
	give("c1")
	end := time.Now().Add(10 * time.Second)
	for a.Pod != "c1" && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
		if a, err = c.Ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if a.Pod != "c1" {
		t.Errorf("a client that keeps asking is answered by %s", a.Pod)
	}
	for _, sl := range sc.slices {
		if err := s.Apply(t.Context(), sl); err != nil {
			t.Fatal(err)
		}
	}
	s.leavesNothing(t, f)
}

// servesFiles serves objects of a file while nobody answers at the API server's address.
func (s *stage) servesFiles(t *testing.T, proxy func(...string) (string, string, int), vip netip.AddrPort) {
	t.Helper()
	dir := t.TempDir()
	for file, path := range map[string]string{
		"services.json": "/api/v1/services", "slices.json": "/apis/discovery.k8s.io/v1/endpointslices", "nodes.json": "/api/v1/nodes",
	} {
		body, err := s.Request(t.Context(), "GET", path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, said, code := proxy("-A", "--kubeconfig", filepath.Join(dir, "none")); code != 1 || !strings.Contains(said, "kubeconfig") {
		t.Errorf("without a server: exit %d: %s", code, said)
	}
	if err := s.n1.Netns().IP(t.Context(), "route add blackhole 172.30.0.10/32"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.n1.Netns().IP(t.Context(), "route del blackhole 172.30.0.10/32") }()
	f := s.startFallback(t, s.n1, "-f", dir)
	a, err := s.Dial(t.Context(), s.pods["client-1"], corev1.ProtocolTCP, vip, lab.DialOptions{Timeout: time.Second})
	if err != nil || a.Outcome != lab.Answered {
		t.Errorf("with objects of files: %v %v", a, err)
	}
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-f.done
}
