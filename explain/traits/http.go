package traits

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// readProxyMode claims the answer of /proxyMode: one word.
func (l *ledger) readProxyMode(src Source) {
	mode := strings.TrimSpace(src.Text)
	switch mode {
	case modeIPTables, modeIPVS, modeNFTables, modeUserspace, modeKernelspace:
		l.add("mode", asked, Fact{Name: "mode", Value: mode, File: src.File, Line: max(src.Line, 1), Text: mode})
	}
}

// readHealthz says what the shape of an answer of /healthz says of the version. The answer of /livez has the
// same shape without nodeEligible, so that a field that is not there tells nothing.
func readHealthz(src Source, live *span) error {
	if len(src.Text) > maxConfig {
		return fmt.Errorf("read /healthz: %d bytes is more than the %d that are read", len(src.Text), maxConfig)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(src.Text, "\ufeff")), &body); err != nil {
		return fmt.Errorf("read /healthz: %w", err)
	}
	at := func(sign, text string) {
		if t, ok := tellOf(healthzTells, sign); ok {
			live.narrow(t, Fact{File: src.File, Line: max(src.Line, 1), Text: text, Note: "by the form of the answer: " + sign})
		}
	}
	for _, field := range [...]string{"healthy", "nodeEligible"} {
		if v, ok := body[field].(bool); ok {
			at(field, fmt.Sprintf("%q:%t", field, v))
		}
	}
	if s, ok := body["currentTime"].(string); ok {
		// Up to 1.32 the time is as Go prints one for people.
		if _, err := time.Parse(time.RFC3339Nano, s); err != nil && strings.Contains(s, "-") {
			at("time not in RFC 3339", fmt.Sprintf("%q:%q", "currentTime", s))
		}
	}
	return nil
}

// readMetrics claims the version that kubernetes_build_info gives, and reads what the names of the metrics say
// of it: metrics come and stay.
func (l *ledger) readMetrics(src Source, live *span) {
	src.lines(func(n int, line string) bool {
		if line == "" || line[0] == '#' {
			return true
		}
		name := line
		if i := strings.IndexAny(line, "{ \t"); i >= 0 {
			name = line[:i]
		}
		if name == "kubernetes_build_info" {
			if v, ok := ParseVersion(label(line[len(name):], "git_version")); ok {
				l.add("version", asked, Fact{Name: "version", Value: v.String(), File: src.File, Line: n, Text: line})
			}
			return true
		}
		for _, suffix := range [...]string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if t, ok := tellOf(metricTells, name); ok {
			live.narrow(t, Fact{File: src.File, Line: n, Text: line, Note: "by the name of a metric"})
		}
		return true
	})
}

// label returns the value of a label in `{a="1",b="2"} 3`, "" when there is none. Versions need no escapes.
func label(labels, name string) string {
	for _, before := range [...]string{"{", ","} {
		if _, rest, ok := strings.Cut(labels, before+name+`="`); ok {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	return ""
}
