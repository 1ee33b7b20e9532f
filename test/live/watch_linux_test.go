package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// A sentry is `audit --watch` on a node.
type sentry struct {
	command *exec.Cmd
	ended   chan error

	mu     sync.Mutex
	events []report.NodeEvent
	raw    []string
	said   strings.Builder
	more   chan bool
}

// post starts a sentry.
func post(t *testing.T, l *lab.Lab, n *lab.Node, launch []string, args ...string) *sentry {
	t.Helper()
	s := &sentry{ended: make(chan error, 1), more: make(chan bool, 1)}
	argv := slices.Concat(launch, []string{svcnet(t), "audit", "--watch", "--interval", "200ms"}, args)
	s.command = exec.Command(argv[0], argv[1:]...)
	s.command.Env = append(n.Env(), "HOME=/nonexistent", "KUBECONFIG="+l.Kubeconfig("admin"))
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.command.Stderr = &s.said
	if err := n.Netns().Do(s.command.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e report.NodeEvent
			err := json.Unmarshal(lines.Bytes(), &e)
			s.mu.Lock()
			if s.raw = append(s.raw, lines.Text()); err == nil {
				s.events = append(s.events, e)
			}
			s.mu.Unlock()
			select {
			case s.more <- true:
			default:
			}
		}
		s.ended <- s.command.Wait()
	}()
	return s
}

// seen are the events so far.
func (s *sentry) seen() []report.NodeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// await is the first event from the given one on that fits, and the number of the one behind it.
func (s *sentry) await(t *testing.T, what string, from int, fits func(*report.NodeEvent) bool) (report.NodeEvent, int) {
	t.Helper()
	deadline := time.After(8 * time.Minute) // machines have other work
	for {
		all := s.seen()
		for i := from; i < len(all); i++ {
			if fits(&all[i]) {
				return all[i], i + 1
			}
		}
		select {
		case <-s.more:
		case err := <-s.ended:
			t.Fatalf("waiting for %s: svcnet ended: %v: %s", what, err, s.said.String())
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("no %s in:\n%s", what, strings.Join(s.raw, "\n"))
		}
	}
}

func ofType(kind report.EventType) func(*report.NodeEvent) bool {
	return func(e *report.NodeEvent) bool { return e.Type == kind }
}

// TestWatch watches a node with a real kube-proxy: a change of a slice has a lag; a rule that is deleted by hand is a
// finding that appears with the program that did it, and clears when it is back; kube-proxy and the API server may go and
// come back; an interrupt ends it.
func TestWatch(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { watchOneNode(t, way.mode, way.backend) })
	}
}

func watchOneNode(t *testing.T, mode string, backend lab.Backend) {
	ctx := t.Context()
	l := labtest.Bring(t, lab.Options{Name: fmt.Sprintf("w%s%d", mode[:1], os.Getpid()), Nodes: 1, Mode: mode, Backend: backend, ProxyConfig: func(_ string, c map[string]any) {
		// What is deleted by hand stays deleted until somebody puts it back.
		lab.Section(c, "iptables")["syncPeriod"] = "1h"
		lab.Section(c, "nftables")["syncPeriod"] = "1h"
	}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n1 := l.Node("n1")
	must(l.Apply(ctx, corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "store"}}))
	var pods []*lab.Pod
	for i := range 3 {
		p, err := l.AddPod(ctx, lab.PodSpec{Name: fmt.Sprintf("web-%d", i), Namespace: "store", Node: "n1", Labels: map[string]string{"app": "web"}})
		must(err)
		_, err = p.Serve(corev1.ProtocolTCP, 8080)
		must(err)
		pods = append(pods, p)
	}
	must(l.Apply(ctx, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: store}
spec:
  selector: {app: web}
  clusterIP: 10.96.0.20
  ipFamilyPolicy: SingleStack
  ports: [{name: http, port: 80, targetPort: 8080}]
`, lab.EndpointSlices("store", "web", lab.Ports("http=TCP:8080"), lab.Ready(pods[:2]...)...)[0]))
	must(l.WaitSynced(ctx))

	s := post(t, l, n1, asInDaemonset(t), "--listen", metricsAt, "--root", "/", "--node", "n1")
	_, at := s.await(t, "start", 0, ofType(report.EventStarted))

	// A slice with a pod more.
	before := time.Now()
	must(l.Apply(ctx, lab.EndpointSlices("store", "web", lab.Ports("http=TCP:8080"), lab.Ready(pods...)...)[0]))
	e, at := s.await(t, "lag of the slice", at, func(e *report.NodeEvent) bool { return e.Lag != nil && e.Lag.Service == "web" })
	took := time.Since(before)
	if e.Lag.Kind != "EndpointSlice" || e.Lag.Namespace != "store" || e.Lag.Change != "updated" || e.Lag.From != "observed" || e.Lag.ResourceVersion == "" || e.Lag.Written == "" {
		t.Errorf("lag %+v", e.Lag)
	}
	if e.Lag.Seconds < 0 || e.Lag.AtLeast > e.Lag.Seconds || e.Lag.Seconds > took.Seconds() {
		t.Errorf("lag %+v, of a change that was told after %s", e.Lag, took)
	}
	if backend == lab.NFT && len(e.Writers) == 0 {
		t.Errorf("nobody wrote the rules: %+v", e)
	}
	t.Logf("%s", e.Text)

	// A change that asks for nothing has none.
	must(l.Patch(ctx, "EndpointSlice", "store", "web-ipv4", "", `{"metadata":{"annotations":{"a":"b"}}}`))
	// kube-proxy writes the Service anew all the same: that must be over before somebody else writes.
	must(l.WaitSynced(ctx))

	// Somebody deletes what leads to a backend.
	restore := damage(t, n1, mode)
	e, at = s.await(t, "finding of the damage", at, func(e *report.NodeEvent) bool {
		return e.Type == report.EventAppeared && e.Finding.Object.Name == "web" && e.Finding.Severity != "info"
	})
	if e.Finding.Pending != "" || e.Finding.Object.Namespace != "store" {
		t.Errorf("finding %+v", e.Finding)
	}
	if backend == lab.NFT && len(e.Writers) == 0 {
		t.Errorf("nobody did it: %+v", e)
	}
	t.Logf("%s, by %v", e.Text, e.Writers)
	id := e.Finding.ID
	restore()
	e, at = s.await(t, "all clear", at, func(e *report.NodeEvent) bool { return e.Type == report.EventCleared && e.Finding.ID == id })
	if e.Since == "" {
		t.Errorf("cleared %+v", e)
	}

	exporter(t, n1)

	// kube-proxy is started again.
	must(n1.StopProxy())
	must(n1.StartProxy(ctx))
	_, at = s.await(t, "kube-proxy's start", at, ofType(report.EventProxy))

	// The API server goes and comes back.
	must(l.RestartAPIServer(ctx, 15*time.Second))
	api := func(status string) func(*report.NodeEvent) bool {
		return func(e *report.NodeEvent) bool {
			return e.Type == report.EventSource && e.Source.Name == "api" && e.Source.Status == status
		}
	}
	_, at = s.await(t, "API's silence", at, api("failed"))
	_, at = s.await(t, "API's answer", at, api("ok"))
	must(l.Apply(ctx, lab.EndpointSlices("store", "web", lab.Ports("http=TCP:8080"), lab.Ready(pods[1:]...)...)[0]))
	_, _ = s.await(t, "lag after that", at, func(e *report.NodeEvent) bool { return e.Lag != nil && e.Lag.Service == "web" })

	// Each was told once, and nothing in between was taken for a finding.
	counts := map[string]int{}
	for _, e := range s.seen() {
		key := string(e.Type)
		switch {
		case e.Type == report.EventSource:
			key += " " + e.Source.Name + " " + e.Source.Status
		case e.Finding != nil && e.Finding.Severity != "info" && e.Finding.Severity != "warning":
			key += " " + e.Finding.ID
		case e.Lag != nil && e.Lag.Service != "web":
			key += " elsewhere"
		}
		counts[key]++
		if e.Node != "n1" || e.Kind != "NodeEvent" {
			t.Errorf("event %+v", e)
		}
	}
	for key, want := range map[string]int{
		"started": 1, "lag": 2, "proxy": 1, "source api failed": 1, "source api ok": 1, "appeared " + id: 1, "cleared " + id: 1,
	} {
		if counts[key] != want {
			t.Errorf("%d events %q, want %d", counts[key], key, want)
		}
	}
	if t.Failed() {
		s.mu.Lock()
		t.Log("all events:\n" + strings.Join(s.raw, "\n"))
		s.mu.Unlock()
	}
	s.interrupt(t)
}

// asInDaemonset starts a program as root with the capabilities of deploy/daemonset.yaml, without a way to get others.
func asInDaemonset(t *testing.T) []string {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := "-all"
	_, rest, _ := strings.Cut(string(manifest), "            add:\n")
	for line := range strings.Lines(rest) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !ok {
			break
		}
		name, _, _ = strings.Cut(name, " ")
		list += ",+" + strings.ToLower(name)
	}
	if list == "-all" {
		t.Fatal("the manifest lists no capabilities")
	}
	return []string{"setpriv", "--no-new-privs", "--inh-caps", list, "--bounding-set", list}
}

// metricsAt is where the exporter answers.
const metricsAt = "127.0.0.1:19420"

// exporter asks a sentry what Prometheus would: a healthy node has no source that could not be read, and what was told is
// counted.
func exporter(t *testing.T, n *lab.Node) {
	t.Helper()
	if _, err := n.Get(t.Context(), "http://"+metricsAt+"/healthz"); err != nil {
		t.Error(err)
	}
	text, err := n.Get(t.Context(), "http://"+metricsAt+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			value[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	for name, want := range map[string]string{
		`svcnet_events_total{type="started"}`: "1",
		"svcnet_api_up":                       "1", "svcnet_audits_failed_total": "0", `svcnet_findings{id="missing-endpoint-rule",severity="error"}`: "0",
	} {
		if value[name] != want {
			t.Errorf("%s is %q, want %s", name, value[name], want)
		}
	}
	// The lab's own Service changes too.
	if n := value["svcnet_programming_lag_seconds_count"]; n == "0" || n != value[`svcnet_events_total{type="lag"}`] {
		t.Errorf("%s lags, %s events", n, value[`svcnet_events_total{type="lag"}`])
	}
	if value["svcnet_last_sync_timestamp_seconds"] == "0" || value["svcnet_last_audit_timestamp_seconds"] == "0" {
		t.Error("no time of the last sync or audit")
	}
	for name, v := range value {
		if strings.HasPrefix(name, "svcnet_source_status{") && v == "1" {
			for _, status := range []string{"denied", "failed", "truncated", "unsupported"} {
				if strings.Contains(name, `"`+status+`"`) {
					t.Errorf("%s on a healthy node", name)
				}
			}
		}
		if strings.HasPrefix(name, "svcnet_unknown_checks{") {
			t.Logf("not known: %s", name)
		}
	}
}

// interrupt ends a sentry as Ctrl-C does.
func (s *sentry) interrupt(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("an interrupt does not end it")
	}
	if code := s.command.ProcessState.ExitCode(); code != 130 {
		t.Errorf("interrupted: exit %d, want 130: %s", code, s.said.String())
	}
	if said := s.said.String(); said != "" {
		t.Errorf("standard error: %s", said)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.raw) != len(s.events) {
		t.Errorf("%d lines and %d events", len(s.raw), len(s.events))
	}
}

// damage takes a backend away from Service web, and returns what puts it back.
func damage(t *testing.T, n *lab.Node, mode string) (restore func()) {
	t.Helper()
	run := func(stdin string, argv ...string) string {
		t.Helper()
		out, err := n.Run(context.WithoutCancel(t.Context()), stdin, argv...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if mode == "nftables" {
		// The element that leads from the ClusterIP to the Service.
		element := ""
		for line := range strings.Lines(run("", "nft", "list", "map", "ip", "kube-proxy", "service-ips")) {
			if i := strings.Index(line, "10.96.0.20 . tcp . 80 "); i >= 0 {
				element = strings.TrimRight(strings.TrimSpace(line[i:]), " ,}")
			}
		}
		key, _, ok := strings.Cut(element, " : ")
		if !ok {
			t.Fatalf("no element of the Service: %q", element)
		}
		// A comment stands between the key and the colon.
		key, _, _ = strings.Cut(key, " comment ")
		run("delete element ip kube-proxy service-ips { "+key+" }\n", "nft", "-f", "-")
		return func() { run("add element ip kube-proxy service-ips { "+element+" }\n", "nft", "-f", "-") }
	}
	rule := ""
	for line := range strings.Lines(run("", "iptables-save", "-t", "nat")) {
		if strings.HasPrefix(line, "-A KUBE-SEP-") && strings.Contains(line, "-j DNAT") && strings.Contains(line, `"store/web:http"`) {
			rule = strings.TrimSpace(line)
		}
	}
	if rule == "" {
		t.Fatal("no rule of a backend")
	}
	run("*nat\n-D "+strings.TrimPrefix(rule, "-A ")+"\nCOMMIT\n", "iptables-restore", "-w", "--noflush")
	return func() { run("*nat\n"+rule+"\nCOMMIT\n", "iptables-restore", "-w", "--noflush") }
}
