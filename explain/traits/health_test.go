package traits

import (
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		name, body, word string
		at               string
		last             map[string]string
		draining         bool
	}{
		{
			name: "1.36", body: capture(t, "nodes/kube-proxy-1.36-nftables/healthz.json").Text, word: Healthy, at: "2026-11-27T22:46:59.583120766Z",
			last: map[string]string{"IPv4": "2026-11-27T22:46:59.581045495Z", "IPv6": "2026-11-27T22:46:49.921945125Z"},
		},
		{
			name: "1.36, one family hangs", word: Unhealthy, at: "2026-01-05T10:00:00Z", draining: true,
			body: `{"lastUpdated":"2026-01-05T09:00:00Z","currentTime":"2026-01-05T10:00:00Z","nodeEligible":false,"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-01-05T09:00:00Z","healthy":false}}}`,
			last: map[string]string{"IPv4": "2026-01-05T09:00:00Z"},
		},
		{
			// A healthy one gives the current time, so that nothing is known of the last sync.
			name: "1.27", word: Healthy, at: "2021-05-30T13:37:32.534Z",
			body: `{"lastUpdated": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0","currentTime": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0"}`,
		},
		{
			name: "1.27, hangs", word: Unhealthy, at: "2021-05-30T13:40:00Z", last: map[string]string{"": "2021-05-30T13:37:32.534Z"},
			body: `{"lastUpdated": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0","currentTime": "2021-05-30 13:40:00 +0000 UTC m=+2.0"}`,
		},
		{
			name: "never synced", word: Unhealthy, at: "2021-05-30T13:40:00Z", last: map[string]string{"": ""},
			body: `{"lastUpdated": "0001-01-01 00:00:00 +0000 UTC","currentTime": "2021-05-30 13:40:00 +0000 UTC m=+2.0"}`,
		},
		{name: "another program's", body: `{"status":"ok"}`},
		{name: "no JSON", body: `ok`},
	} {
		h := Derive(Evidence{Healthz: []Source{{File: "h", Text: tt.body}}}).Health
		if h.Word != tt.word || h.Draining != tt.draining || len(h.Syncs) != len(tt.last) {
			t.Errorf("%s: %+v", tt.name, h)
			continue
		}
		if tt.at != "" && h.At.UTC().Format(time.RFC3339Nano) != tt.at {
			t.Errorf("%s: at %v", tt.name, h.At)
		}
		for family, last := range tt.last {
			s := h.sync(family)
			if last == "" != s.Last.IsZero() || last != "" && s.Last.UTC().Format(time.RFC3339Nano) != last || s.Evidence.File != "h" {
				t.Errorf("%s: %+v", tt.name, s)
			}
		}
	}
}

func TestSyncMetrics(t *testing.T) {
	text := `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.7676e+09
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 1.7676036e+09
kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 12
kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"} 3
kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.001"} 0
kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 90
kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"} 1.7676e+09 1767600000000
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} NaN
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv9"} 1
`
	h := Derive(Evidence{Metrics: []Source{{File: "m", Text: text}}}).Health
	if len(h.Syncs) != 2 || h.Word != "" {
		t.Fatalf("%+v", h)
	}
	s := h.Syncs[0]
	if s.Failures != 12 || s.FailureEvidence.Line != 3 || s.Mean != 45*time.Second || s.Evidence.Line != 1 {
		t.Errorf("%+v", s)
	}
	if w := s.Waiting(s.Queued.Add(time.Minute)); w != time.Minute {
		t.Errorf("waiting %v", w)
	}
	if s := h.Syncs[1]; s.Waiting(s.Last.Add(time.Hour)) != 0 || s.Last.Unix() != 1767600000 {
		t.Errorf("nothing waits: %+v", s)
	}
	// Before 1.33 the metrics have no family.
	h = Derive(Evidence{Metrics: []Source{{File: "m", Text: strings.ReplaceAll(text[:strings.Index(text, "\n")], `{ip_family="IPv4"}`, "")}}}).Health
	if len(h.Syncs) != 1 || h.Syncs[0].Family != "" || h.Syncs[0].Last.IsZero() {
		t.Errorf("%+v", h)
	}
}

func TestKubeconfig(t *testing.T) {
	own := "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: https://192.168.10.20:6443\ncontexts:\n- name: default\n  context: {cluster: default, user: default}\ncurrent-context: default\n"
	p := Derive(Evidence{Kubeconfigs: []Source{{File: "k", Text: own}}})
	if f := factOf(p, "server"); p.Server != "https://192.168.10.20:6443" || f.Line != 6 || f.Text != "server: https://192.168.10.20:6443" {
		t.Errorf("%q %+v", p.Server, f)
	}
	// Of several clusters that of the current context counts.
	text := "clusters:\n- {name: a, cluster: {server: https://a}}\n- {name: b, cluster: {server: https://b}}\ncontexts:\n- {name: x, context: {cluster: b}}\ncurrent-context: x\n"
	if p := Derive(Evidence{Kubeconfigs: []Source{{File: "k", Text: text}}}); p.Server != "https://b" || factOf(p, "server").Line != 3 {
		t.Errorf("%q", p.Server)
	}
	// What does not parse is not quoted: it holds credentials.
	p = Derive(Evidence{Kubeconfigs: []Source{{File: "k", Text: "users: {token: [secret"}}})
	if f := factOf(p, "unreadable"); f.Note == "" || strings.Contains(f.Note, "secret") {
		t.Errorf("%+v", f)
	}
}

func TestPresence(t *testing.T) {
	src := func(text string) []Source { return []Source{{File: "f", Text: text}} }
	for _, tt := range []struct {
		name string
		in   Evidence
		want string
	}{
		{"nobody looked", Evidence{}, ""},
		{"neither", Evidence{NoProcess: src("none"), NoListener: src("none")}, Gone},
		{"a process under another name may answer elsewhere", Evidence{NoListener: src("none")}, ""},
		{"no process, and its ports were not asked", Evidence{NoProcess: src("none")}, ""},
		{"k3s", Evidence{NoProcess: src("none"), Healthz: src(`{"healthy":true}`)}, Running},
		{"ports turned off", Evidence{Args: src("kube-proxy --v=2"), NoListener: src("none")}, Running},
	} {
		if p := Derive(tt.in); p.Presence != tt.want || (tt.name != "nobody looked") != (len(p.PresenceEvidence) > 0) {
			t.Errorf("%s: %q %+v", tt.name, p.Presence, p.PresenceEvidence)
		}
	}
}

func TestSyncPeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"kind: KubeProxyConfiguration\nmode: nftables\nnftables: {syncPeriod: 2m0s}\niptables: {syncPeriod: 1m0s}\n": 2 * time.Minute,
		"kind: KubeProxyConfiguration\nmode: nftables\n":                                                             30 * time.Second,
		"kind: KubeProxyConfiguration\nmode: nftables\nnftables: {syncPeriod: 0s}\n":                                 30 * time.Second,
	} {
		if p := Derive(Evidence{Configs: []Source{{File: "c", Text: text}}}); p.SyncPeriod != want {
			t.Errorf("%s: %v", text, p.SyncPeriod)
		}
	}
}

func TestReasons(t *testing.T) {
	for _, tt := range []struct{ line, server, reason, subject string }{
		{
			`E0105 08:00:02.1 1 reflector.go:178] k8s.io/client-go/informers/factory.go:135: Failed to list *v1.Service: Get "https://192.168.10.20:6443/api/v1/services?resourceVersion=1": dial tcp 192.168.10.20:6443: connect: no route to host`,
			"https://192.168.10.20:6443", "dial tcp 192.168.10.20:6443: connect: no route to host", "*v1.Service",
		},
		{
			`E0105 08:00:02.1 1 reflector.go:126] k8s.io/client-go/informers/factory.go:133: Failed to list *v1.Service: Get https://[fd00::1]:6443/api/v1/services?limit=500: dial tcp: i/o timeout`,
			"https://[fd00::1]:6443", "dial tcp: i/o timeout", "*v1.Service",
		},
		{
			`E0105 08:00:02.1 1 reflector.go:205] "Failed to watch" err="failed to list *v1.EndpointSlice: Get \"https://k8s.example:443/apis?x=1\": EOF" logger="x" type="*v1.EndpointSlice"`,
			"https://k8s.example:443", "EOF", "*v1.EndpointSlice",
		},
		{
			`E0105 08:00:02.1 1 reflector.go:205] "Failed to watch" err="failed to list *v1.Service: Unauthorized" type="*v1.Service"`,
			"", "Unauthorized", "*v1.Service",
		},
		{
			`E0105 08:00:02.1 1 proxier.go:1] "Failed to execute iptables-restore" err="exit status 4: Another app" ipFamily="IPv6"`,
			"", "exit status 4: Another app", "IPv6",
		},
		{
			"E0105 08:00:02.1 1 proxier.go:1] \"nftables sync failed\" err=<\n\tfailed to run nft: /dev/stdin:3:1-2: Error: Could not process rule: No space left on device\n > ipFamily=\"IPv4\"",
			"", "nft: Could not process rule: No space left on device", "IPv4",
		},
	} {
		p := Derive(Evidence{Logs: []Source{{File: "l", Text: tt.line + "\n"}}})
		if len(p.Events) != 1 {
			t.Errorf("%s\n%+v", tt.line, p.Events)
			continue
		}
		if e := p.Events[0]; e.Server != tt.server || e.Reason != tt.reason || e.Subject != tt.subject {
			t.Errorf("%s\n%+v", tt.line, e)
		}
	}
}

func TestWhen(t *testing.T) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"0105 09:46:26.462441": "2026-01-05T09:46:26Z",
		"1231 23:59:59.000000": "2025-12-31T23:59:59Z",
		"0106 02:00:00.000000": "2026-01-06T02:00:00Z", // another zone
		"0229 00:00:00.000000": "",
		"":                     "",
	} {
		got, ok := Event{Time: text}.When(at)
		if ok != (want != "") || ok && got.Format(time.RFC3339) != want {
			t.Errorf("%q: %v %v", text, got, ok)
		}
	}
}

// A log of a sync that runs: its size belongs to it, and that of the one before to that.
func TestSizes(t *testing.T) {
	p := Derive(Evidence{Logs: []Source{capture(t, "cases/59/kube-proxy.log")}})
	if e := p.Events; len(e) != 2 || e[0].Services != 5006 || e[0].Endpoints != 250011 || e[1].Services != 5007 || p.LogEnds != "0105 09:46:41.115090" {
		t.Errorf("%+v", p)
	}
	p = Derive(Evidence{Logs: []Source{capture(t, "nodes/kube-proxy-1.36-nftables/kube-proxy.log")}})
	listed := 0
	for _, e := range p.Events {
		if e.Kind == Listed && e.Subject == "*v1.EndpointSlice" {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("%+v", p.Events)
	}
}
