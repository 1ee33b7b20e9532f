package watch

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// proxyTimes is when the kube-proxy that answers was started and when it last wrote its rules, as its metrics say it; zero
// when they do not. With several families it is the one that is furthest behind.
type proxyTimes struct{ started, synced time.Time }

func proxyMetrics(s *snapshot.Snapshot) (p proxyTimes) {
	for _, e := range s.Of(snapshot.ProxyMetrics) {
		for line := range strings.Lines(string(e.Data)) {
			name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
			if !ok {
				continue
			}
			name, _, _ = strings.Cut(name, "{")
			switch name {
			case "process_start_time_seconds":
				if t := unixTime(rest); !t.IsZero() {
					p.started = t
				}
			case "kubeproxy_sync_proxy_rules_last_timestamp_seconds":
				if t := unixTime(rest); !t.IsZero() && (p.synced.IsZero() || t.Before(p.synced)) {
					p.synced = t
				}
			}
		}
	}
	return p
}

// unixTime reads seconds since 1970 as Prometheus writes them; zero for what is none.
func unixTime(text string) time.Time {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || seconds <= 0 || seconds > 1<<40 || math.IsNaN(seconds) {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}
