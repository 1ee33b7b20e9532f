package traits

import (
	"strings"
	"testing"
)

const metrics = `# HELP kubernetes_build_info [BETA] A metric with a constant '1' value labeled by major, minor, git version.
# TYPE kubernetes_build_info gauge
kubernetes_build_info{build_date="2026-01-01T00:00:00Z",compiler="gc",git_commit="abc",git_tree_state="clean",git_version="v1.31.4+k3s1",go_version="go1.22.9",major="1",minor="31",platform="linux/amd64"} 1
# TYPE kubeproxy_sync_proxy_rules_no_local_endpoints_total gauge
kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external"} 0
kubeproxy_sync_full_proxy_rules_duration_seconds_bucket{le="0.001"} 0
`

func TestMetrics(t *testing.T) {
	p := Derive(Evidence{Metrics: []Source{{File: "m", Text: metrics}}})
	if p.Version != (Version{1, 31, 4}) || p.VersionFromRules || factOf(p, "version").Line != 3 {
		t.Errorf("%+v", p)
	}
	// Without the build information the names of the metrics tell.
	p = Derive(Evidence{Metrics: []Source{{File: "m", Text: metrics[strings.Index(metrics, "# TYPE kubeproxy"):]}}})
	if p.VersionText() != "1.28 or newer" || factOf(p, "version").Line != 3 {
		t.Errorf("%q %+v", p.VersionText(), p.Facts)
	}
}

func TestHealthz(t *testing.T) {
	for _, tt := range []struct{ body, text string }{
		{capture(t, "nodes/kube-proxy-1.36-iptables/healthz.json").Text, "1.33 or newer"},
		{`{"lastUpdated": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0","currentTime": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0", "nodeEligible": true}`, "1.28 to 1.32"},
		{`{"lastUpdated": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0","currentTime": "2021-05-30 13:37:32.534 +0000 UTC m=+1.0"}`, "1.32 or older"},
	} {
		p := Derive(Evidence{Healthz: []Source{{File: "h", Text: tt.body}}})
		if p.VersionText() != tt.text {
			t.Errorf("%s: %q", tt.body, p.VersionText())
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(metrics)
	f.Add(capture(f, "nodes/kube-proxy-1.36-iptables/healthz.json").Text)
	f.Fuzz(func(t *testing.T, text string) {
		src := []Source{{File: "m", Text: text}}
		p := Derive(Evidence{Metrics: src, Healthz: src})
		if v := p.Version; v != (Version{}) && v.Major < 1 {
			t.Errorf("version %v", v)
		}
	})
}
