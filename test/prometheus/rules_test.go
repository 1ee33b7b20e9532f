// Package prometheus holds what is deployed for Prometheus against Prometheus' own code: the rules file as `promtool check
// rules` reads it, each alert on made-up series, the dashboard's queries, and that every metric they name is one of the
// exporter's (watch/testdata/metrics.txt, which package watch holds against the exporter). It is a module of its own, so
// that nothing of it is part of the program.
package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"
)

// groups are the rules of deploy/prometheus-rules.yaml, read and checked as Prometheus does.
func groups(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	data, err := os.ReadFile("../../deploy/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc struct {
			Kind string
			Spec yaml.Node
		}
		if err := d.Decode(&doc); err != nil {
			t.Fatalf("no PrometheusRule: %v", err)
		}
		if doc.Kind != "PrometheusRule" {
			continue
		}
		spec, err := yaml.Marshal(&doc.Spec)
		if err != nil {
			t.Fatal(err)
		}
		out, errs := rulefmt.Parse(spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		for _, err := range errs {
			t.Error(err)
		}
		if out == nil || len(errs) > 0 {
			t.FailNow()
		}
		return out
	}
}

// exported are the names of the exporter's metrics with those that a histogram has besides.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("../../watch/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{"up": true}
	for line := range strings.Lines(string(data)) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(kind, "histogram") {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				out[name+suffix] = true
			}
			continue
		}
		out[name] = true
	}
	return out
}

// known checks that a query parses and names metrics of the exporter only.
func known(t *testing.T, where, query string, names map[string]bool) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = true
			if !names[s.Name] {
				t.Errorf("%s: no metric %s: %s", where, s.Name, query)
			}
		}
		return nil
	})
	if !found {
		t.Errorf("%s asks for nothing: %s", where, query)
	}
}

// TestRules holds the rules file.
func TestRules(t *testing.T) {
	names := exported(t)
	for _, g := range groups(t).Groups {
		for _, r := range g.Rules {
			known(t, r.Alert, r.Expr, names)
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s lacks severity, summary or description", r.Alert)
			}
		}
	}
	// The check bites.
	for _, query := range []string{`svcnet_no_such_metric > 0`, `sum(`} {
		var failed testing.T
		known(&failed, "", query, names)
		if !failed.Failed() {
			t.Errorf("%s is accepted", query)
		}
	}
}

// TestAlerts gives every alert series that fire it and series that come close. A minute lies between two samples; an alert
// fires at a time when its expression held at every minute of its "for" before that.
func TestAlerts(t *testing.T) {
	rules := make(map[string]rulefmt.Rule)
	for _, g := range groups(t).Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	const node = `instance="10.0.0.1:19420",node="n1",job="svcnet"`
	tests := []struct {
		alert, name, series string
		minute              int
		fires               bool
	}{
		{"SvcnetCriticalFinding", "stands", `svcnet_findings{id="kube-jump-missing",severity="critical",` + node + `} 0 1+0x10`, 5, true},
		{"SvcnetCriticalFinding", "just appeared", `svcnet_findings{id="kube-jump-missing",severity="critical",` + node + `} 0x3 1 1`, 5, false},
		{"SvcnetCriticalFinding", "none", `svcnet_findings{id="kube-jump-missing",severity="critical",` + node + `} 0x10`, 5, false},
		{"SvcnetCriticalFinding", "only an error", `svcnet_findings{id="missing-endpoint-rule",severity="error",` + node + `} 1x10`, 5, false},
		{"SvcnetErrorFinding", "stands", `svcnet_findings{id="missing-endpoint-rule",severity="error",` + node + `} 1x20`, 15, true},
		{"SvcnetErrorFinding", "went away", `svcnet_findings{id="missing-endpoint-rule",severity="error",` + node + `} 1x9 0 1x20`, 15, false},
		{"SvcnetProgrammingLagHigh", "slow", lagSeries(node, 0, 6), 25, true},
		{"SvcnetProgrammingLagHigh", "fast", lagSeries(node, 6, 6), 25, false},
		{"SvcnetProgrammingLagHigh", "one slow change in ten minutes", `svcnet_programming_lag_seconds_bucket{le="10",` + node + `} 0x30
			svcnet_programming_lag_seconds_bucket{le="30",` + node + `} 0x12 1x20
			svcnet_programming_lag_seconds_bucket{le="+Inf",` + node + `} 0x12 1x20
			svcnet_programming_lag_seconds_count{` + node + `} 0x12 1x20`, 25, false},
		{"SvcnetChangesNotProgrammed", "given up", `svcnet_changes_unmeasured_total{reason="given-up",` + node + `} 0x5 2x20`, 20, true},
		{"SvcnetChangesNotProgrammed", "asked for nothing", `svcnet_changes_unmeasured_total{reason="nothing-asked",` + node + `} 0+1x20`, 20, false},
		{"SvcnetSourceNotAnswered", "denied", `svcnet_source_status{source="iptables-save",status="denied",` + node + `} 1x30`, 20, true},
		{"SvcnetSourceNotAnswered", "absent is an answer", `svcnet_source_status{source="iptables-save",status="absent",` + node + `} 1x30`, 20, false},
		{"SvcnetSourceNotAnswered", "another status", `svcnet_source_status{source="iptables-save",status="denied",` + node + `} 0x30`, 20, false},
		{"SvcnetAPINotAnswered", "gone", `svcnet_api_up{` + node + `} 0x30`, 20, true},
		{"SvcnetAPINotAnswered", "there", `svcnet_api_up{` + node + `} 1x30`, 20, false},
		{"SvcnetAuditStale", "old", `svcnet_last_audit_timestamp_seconds{` + node + `} 60x30`, 20, true},
		{"SvcnetAuditStale", "never", `svcnet_build_info{` + node + `} 1x40`, 20, true},
		{"SvcnetAuditStale", "just begun", `svcnet_build_info{` + node + `} 1x40`, 10, false},
		{"SvcnetChangesNotProgrammed", "nobody could look", `svcnet_changes_unmeasured_total{reason="unknown",` + node + `} 0x5 2x20`, 20, false},
		{"SvcnetAuditStale", "young", `svcnet_last_audit_timestamp_seconds{` + node + `} 0+60x30`, 20, false},
		{"SvcnetAbsent", "nothing at all", `up{job="other"} 1x30`, 20, true},
		{"SvcnetAbsent", "one node", `svcnet_build_info{version="v",` + node + `} 1x30
			up{` + node + `} 1x30`, 20, false},
		{"SvcnetDown", "down", `up{` + node + `} 0x30`, 20, true},
		{"SvcnetDown", "up", `up{` + node + `} 1x30`, 20, false},
		{"SvcnetDown", "another job", `up{job="other",instance="x"} 0x30`, 20, false},
	}
	tried := make(map[string][2]bool)
	for _, tt := range tests {
		t.Run(tt.alert+"/"+tt.name, func(t *testing.T) {
			r, ok := rules[tt.alert]
			if !ok {
				t.Fatal("no such alert")
			}
			storage := promqltest.LoadedStorage(t, "load 1m\n"+indented(tt.series))
			engine := promqltest.NewTestEngine(t, false, 0, 100000)
			end := time.Unix(0, 0).Add(time.Duration(tt.minute) * time.Minute)
			fires := true
			for at := end.Add(-time.Duration(r.For)); !at.After(end); at = at.Add(time.Minute) {
				q, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, at)
				if err != nil {
					t.Fatal(err)
				}
				result := q.Exec(context.Background())
				if result.Err != nil {
					t.Fatal(result.Err)
				}
				vector, ok := result.Value.(promql.Vector)
				if !ok {
					t.Fatalf("the expression is a %s", result.Value.Type())
				}
				fires = fires && len(vector) > 0
			}
			if fires != tt.fires {
				t.Errorf("fires: %v, want %v", fires, tt.fires)
			}
		})
		seen := tried[tt.alert]
		seen[0], seen[1] = seen[0] || tt.fires, seen[1] || !tt.fires
		tried[tt.alert] = seen
	}
	for _, alert := range slices.Sorted(maps.Keys(rules)) {
		if tried[alert] != [2]bool{true, true} {
			t.Errorf("%s needs series that fire it and some that do not", alert)
		}
	}
}

// lagSeries are those of changes each minute, so many of them within 10 seconds and all within 30.
func lagSeries(labels string, fast, all int) string {
	step := func(n int) string { return " 0+" + string(rune('0'+n)) + "x30\n" }
	return `svcnet_programming_lag_seconds_bucket{le="10",` + labels + `}` + step(fast) +
		`svcnet_programming_lag_seconds_bucket{le="30",` + labels + `}` + step(all) +
		`svcnet_programming_lag_seconds_bucket{le="+Inf",` + labels + `}` + step(all) +
		`svcnet_programming_lag_seconds_count{` + labels + `}` + step(all)
}

// indented are the series as a load statement has them.
func indented(series string) string {
	var b strings.Builder
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

// TestDashboard holds the dashboard: every query parses and asks for what there is.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../deploy/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Templating struct {
			List []struct {
				Name  string
				Query json.RawMessage
			}
		}
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
		t.Error("no dashboard")
	}
	names := exported(t)
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	ids := make(map[int]bool)
	asked := make(map[string]bool)
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			query := variables.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: a variable that nobody sets: %s", p.Title, query)
			}
			known(t, p.Title, query, names)
			for name := range names {
				asked[name] = asked[name] || strings.Contains(query, name)
			}
		}
	}
	// What the exporter has, the dashboard shows.
	for _, name := range slices.Sorted(maps.Keys(names)) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		shown := slices.ContainsFunc(slices.Collect(maps.Keys(asked)), func(n string) bool { return asked[n] && strings.HasPrefix(n, base) })
		if name != "up" && !shown {
			t.Errorf("no panel shows %s", name)
		}
	}
}
