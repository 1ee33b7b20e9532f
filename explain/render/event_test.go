package render

import (
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/report"
)

// TestEvent holds one line for each type of event, with foreign text escaped.
func TestEvent(t *testing.T) {
	writers := []report.Writer{{Time: "2026-07-01T12:00:01.000000Z", Process: "first"}, {Time: "2026-07-01T12:00:02.250000Z", Process: "ev\x1b[31mil", PID: 7}}
	finding := &report.Finding{ID: "x", Severity: "critical"}
	tests := []struct {
		event report.NodeEvent
		want  string
	}{
		{report.NodeEvent{Type: report.EventLag, Text: "web: 0.8 s", Lag: &report.Lag{}, Writers: writers}, "12:00:03.123  · lag web: 0.8 s"},
		{report.NodeEvent{Type: report.EventAppeared, Text: "critical x: so", Finding: finding, Writers: writers},
			"12:00:03.123  ✗ appeared critical x: so (rules were last written at 12:00:02.250 by ev\\x1b[31mil)"},
		{report.NodeEvent{Type: report.EventCleared, Text: "x cleared", Finding: finding}, "12:00:03.123  ✓ cleared x cleared"},
		{report.NodeEvent{Type: report.EventSource, Text: "source api is failed", Source: &report.Source{Status: "failed"}}, "12:00:03.123  ! source source api is failed"},
		{report.NodeEvent{Type: report.EventSource, Text: "source api is ok", Source: &report.Source{Status: "ok"}}, "12:00:03.123  ✓ source source api is ok"},
		{report.NodeEvent{Type: report.EventStarted, Text: "watching\nthis"}, "12:00:03.123  · started watching"},
	}
	for _, tt := range tests {
		tt.event.Time = "2026-07-01T12:00:03.123456Z"
		var b strings.Builder
		if err := Event(&b, &tt.event, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasPrefix(got, tt.want) || strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q, want %q", tt.event.Type, got, tt.want)
		}
	}
}
