package watch

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt")

func get(t *testing.T, m *Metrics, path string) (int, string) {
	t.Helper()
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	resp, err := http.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestMetrics holds what Prometheus sees of a state.
func TestMetrics(t *testing.T) {
	m := NewMetrics("svcnet v1", time.Minute)
	if code, body := get(t, m, "/healthz"); code != http.StatusServiceUnavailable || body != "no audit yet\n" {
		t.Errorf("before the first audit: %d %s", code, body)
	}
	// An audit of 1970 would be an old one.
	if _, text := get(t, m, "/metrics"); strings.Contains(text, "svcnet_last_audit_timestamp_seconds 0") {
		t.Error("an audit before the first one")
	}
	var st State
	now := time.Now()
	r := readingAt(0, "a", finding(hazard, "error", ""), unknown("proxy-not-running"))
	r.Report.Sources = []report.Source{
		{Name: "iptables-save", File: "v4", Status: "ok"}, {Name: "iptables-save", File: "v6", Status: "denied"}, {Name: "ipvsadm", File: "x", Status: "absent"},
	}
	r.Report.Services = report.ServiceCount{OK: 3, Differ: 1}
	r.Begun, r.Ended, r.ProxySynced = now, now, time.Unix(1782907200, 0)
	st.Read(r)
	r.Begun, r.Ended = now.Add(2*time.Second), now.Add(2*time.Second)
	for _, e := range st.Read(r) {
		m.event(&e)
	}
	m.state(&st, r)
	m.read(100*time.Millisecond, nil)
	m.read(0, errors.New("x"))
	m.api(true, false)
	m.event(&report.NodeEvent{Type: report.EventLag, Lag: &report.Lag{Seconds: 0.8}})
	if code, body := get(t, m, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("after an audit: %d %s", code, body)
	}
	_, text := get(t, m, "/metrics")
	for _, line := range []string{
		`svcnet_findings{id="ip-forward-off",severity="error"} 1`,
		`svcnet_findings{id="missing-endpoint-rule",severity="error"} 0`,
		`svcnet_unknown_checks{id="proxy-not-running"} 1`,
		`svcnet_programming_lag_seconds_bucket{le="0.5"} 0`,
		`svcnet_programming_lag_seconds_bucket{le="1"} 1`,
		`svcnet_programming_lag_seconds_count 1`,
		`svcnet_source_status{source="iptables-save",status="denied"} 1`,
		`svcnet_source_status{source="iptables-save",status="ok"} 0`,
		`svcnet_source_status{source="ipvsadm",status="absent"} 1`,
		`svcnet_last_sync_timestamp_seconds 1.7829072e+09`,
		`svcnet_services{result="differ"} 1`,
		`svcnet_events_total{type="appeared"} 1`,
		`svcnet_audits_failed_total 1`,
		`svcnet_audit_duration_seconds_count 1`,
		`svcnet_api_up 1`,
		`svcnet_build_info{version="svcnet v1"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if !strings.Contains(text, "svcnet_last_audit_timestamp_seconds ") {
		t.Error("when was the last audit?")
	}
	// Prometheus' own rules for names and helps.
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// What is gone reads 0, and does not stay.
	r.Begun, r.Ended = now.Add(3*time.Second), now.Add(3*time.Second)
	r.Report.Findings, r.Report.Unknown, r.ProxySynced = nil, nil, time.Time{}
	st.Read(r)
	st.Unmeasured.Unknown = 2
	m.state(&st, r)
	_, text = get(t, m, "/metrics")
	if !strings.Contains(text, "\nsvcnet_last_sync_timestamp_seconds 0\n") {
		t.Error("kube-proxy does not say any more when it last wrote its rules, and it is told")
	}
	if !strings.Contains(text, `svcnet_changes_unmeasured_total{reason="unknown"} 2`) {
		t.Error("changes that nobody could look at are not counted")
	}
	if strings.Contains(text, `svcnet_findings{id="ip-forward-off",severity="error"} 1`) || strings.Contains(text, "svcnet_unknown_checks{") {
		t.Error("a finding that cleared, or a check that was answered, is still there")
	}
	// Bounded, whatever is on the node.
	if n := strings.Count(text, "\nsvcnet_"); n > 1000 {
		t.Errorf("%d series", n)
	}
}

// TestScrape: whoever asks while an audit is taken over gets what stood before or what stands now, and nothing between.
func TestScrape(t *testing.T) {
	m := NewMetrics("v", time.Minute)
	var st State
	for _, s := range []float64{0, 2} {
		r := readingAt(s, "a", finding(hazard, "error", ""))
		st.Read(r)
		m.state(&st, r)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 200 {
			m.state(&st, st.last)
		}
	}()
	h := m.Handler()
	for {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(w.Body.String(), `svcnet_findings{id="ip-forward-off",severity="error"} 1`) {
			t.Error("a finding that stands is not there")
			break
		}
		select {
		case <-ended:
			return
		default:
		}
	}
	<-ended
}

// TestMetricNames holds the list of metrics, which deploy's rules and dashboard are checked against: its name, type and
// labels on a line each.
func TestMetricNames(t *testing.T) {
	m := NewMetrics("v", time.Minute)
	var st State
	r := readingAt(0, "a", unknown("proxy-not-running"))
	st.Read(r)
	m.state(&st, r)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintf(&b, "%s %s", f.GetName(), strings.ToLower(f.GetType().String()))
		for _, l := range f.GetMetric()[0].GetLabel() {
			fmt.Fprintf(&b, " %s", l.GetName())
		}
		b.WriteByte('\n')
	}
	const file = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("run go test ./watch -update, and look at deploy:\n%s", diff)
	}
}

// TestHealthOld: an audit that is too old is no health.
func TestHealthOld(t *testing.T) {
	m := NewMetrics("v", time.Minute)
	var st State
	r := readingAt(0, "a")
	r.Ended = time.Now().Add(-2 * time.Minute)
	st.Read(r)
	m.state(&st, r)
	if code, body := get(t, m, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "s ago") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, m, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("something else is answered: %d", code)
	}
}

// TestProxyMetrics reads a real kube-proxy's metrics, and odd ones.
func TestProxyMetrics(t *testing.T) {
	of := func(text string) proxyTimes {
		return proxyMetrics(&snapshot.Snapshot{Evidence: []snapshot.Evidence{{Format: snapshot.ProxyMetrics, Status: snapshot.OK, Data: []byte(text)}}})
	}
	p := of("# HELP process_start_time_seconds x\nprocess_start_time_seconds 1.7829072005e+09\n" +
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.782907300e+09\n" +
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 1.782907290e+09\n")
	if p.started.UnixMilli() != 1782907200500 || p.synced.Unix() != 1782907290 {
		t.Errorf("%+v", p)
	}
	for _, text := range []string{"", "process_start_time_seconds", "process_start_time_seconds NaN\n", "process_start_time_seconds 1e300\n", "process_start_time_seconds -1\n"} {
		if p := of(text); !p.started.IsZero() || !p.synced.IsZero() {
			t.Errorf("%q: %+v", text, p)
		}
	}
}
