package traits

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Health is what the proxy's HTTP ports say of how it is doing. Its zero value says nothing.
type Health struct {
	// Word is "healthy" or "unhealthy" as /healthz has it; empty when it was not asked. Unhealthy is a proxy that has
	// never synced, or in which a change waits for longer than twice the sync period.
	Word string
	// At is the proxy's clock when it answered.
	At time.Time
	// Draining is true when load balancers are told to leave the node: its Node object is gone or about to be removed.
	Draining bool
	// Evidence is the answer that Word rests on.
	Evidence Fact
	// Syncs are those of each family, or of both together.
	Syncs []Sync
}

// Sync is what the proxy's ports say of its syncs of one family.
type Sync struct {
	// Family is IPv4, IPv6, or empty for both together (before 1.33).
	Family string
	// Last is the end of the last complete sync, Queued when a change last asked for one; zero where nothing says.
	Last, Queued time.Time
	// Failures is how often the kernel refused a sync since the proxy started.
	Failures int
	// Mean is the average time that a sync takes, 0 where nothing says.
	Mean time.Duration
	// Evidence is the line or field that Last was read in, FailureEvidence and MeanEvidence those of the others.
	Evidence, FailureEvidence, MeanEvidence Fact
}

// The words of Health.Word.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// Waiting is how long a change has waited for a sync at a moment; 0 when none waits.
func (s Sync) Waiting(at time.Time) time.Duration {
	if s.Queued.IsZero() || !s.Queued.After(s.Last) || at.Before(s.Queued) {
		return 0
	}
	return at.Sub(s.Queued)
}

// sync returns the entry of a family, which it makes at need.
func (h *Health) sync(family string) *Sync {
	for i := range h.Syncs {
		if h.Syncs[i].Family == family {
			return &h.Syncs[i]
		}
	}
	h.Syncs = append(h.Syncs, Sync{Family: family})
	return &h.Syncs[len(h.Syncs)-1]
}

// stale is the age from which a "last updated" of /healthz is not simply the moment of the question: a healthy proxy
// before 1.33 gives the current time for it, and reads its clock twice.
const stale = time.Second

// readHealth reads an answer of /healthz or /livez. What does not decode was reported by readHealthz.
func (h *Health) readHealth(src Source) {
	if len(src.Text) > maxConfig {
		return
	}
	var body struct {
		LastUpdated, CurrentTime string
		NodeEligible, Healthy    *bool
		Status                   map[string]struct {
			LastUpdated string
			Healthy     *bool
		}
	}
	if json.Unmarshal([]byte(strings.TrimPrefix(src.Text, "\ufeff")), &body) != nil {
		return
	}
	last, knowsLast := goTime(body.LastUpdated)
	now, knowsNow := goTime(body.CurrentTime)
	switch {
	case body.Healthy != nil && *body.Healthy, body.Healthy == nil && knowsLast && knowsNow && now.Sub(last) < stale:
		h.Word = Healthy
	case body.Healthy != nil, knowsLast && knowsNow:
		h.Word = Unhealthy
	default:
		return
	}
	at := func(text string) Fact {
		return Fact{Name: "health", Value: h.Word, File: src.File, Line: max(src.Line, 1), Text: clip(text)}
	}
	h.Evidence = at(fmt.Sprintf(`"lastUpdated":%q,"currentTime":%q`, body.LastUpdated, body.CurrentTime))
	if body.Healthy != nil {
		h.Evidence = at(fmt.Sprintf(`"healthy":%t`, *body.Healthy))
	}
	h.At = now
	h.Draining = body.NodeEligible != nil && !*body.NodeEligible
	for _, family := range [...]string{"IPv4", "IPv6"} {
		if s, ok := body.Status[family]; ok {
			if t, ok := goTime(s.LastUpdated); ok {
				h.claimLast(family, t, at(fmt.Sprintf(`%q:{"lastUpdated":%q}`, family, s.LastUpdated)))
			}
		}
	}
	if h.Word == Unhealthy && len(body.Status) == 0 && knowsLast {
		// Only an unhealthy proxy says here when it really synced.
		h.claimLast("", last, h.Evidence)
	}
}

// claimLast takes over the end of a sync if none that is later is known.
func (h *Health) claimLast(family string, t time.Time, at Fact) {
	s := h.sync(family)
	if t.Year() > 1 && t.After(s.Last) {
		s.Last, s.Evidence = t, at
	}
	if s.Evidence.File == "" {
		s.Evidence = at
	}
}

// goTime reads a time in RFC 3339 or as Go prints one for people, "2021-05-30 13:37:32.534 +0000 UTC m=+1.0".
func goTime(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, true
	}
	s, _, _ = strings.Cut(s, " m=")
	t, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", s)
	return t, err == nil
}

// The metrics of syncs. Each has the label ip_family since 1.33.
const (
	metricLast     = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	metricQueued   = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	metricDuration = "kubeproxy_sync_proxy_rules_duration_seconds"
)

// metricFailures count syncs that were refused. Partial ones are followed by a full one and do not count.
var metricFailures = map[string]bool{
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total": true,
	"kubeproxy_sync_proxy_rules_nftables_sync_failures_total":    true,
}

// readSyncMetrics reads the metrics of syncs out of an answer of /metrics.
func (h *Health) readSyncMetrics(src Source) {
	type total struct {
		seconds, count float64
		at             Fact
	}
	durations := make(map[string]*total)
	src.lines(func(n int, line string) bool {
		if !strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_") {
			return true
		}
		name, family, value, ok := sample(line)
		if !ok {
			return true
		}
		at := Fact{Name: "lastSync", Value: family, File: src.File, Line: n, Text: clip(line)}
		switch {
		case name == metricLast:
			h.claimLast(family, unixTime(value), at)
		case name == metricQueued:
			h.sync(family).Queued = unixTime(value)
		case metricFailures[name] && value > 0 && value < 1<<31:
			s := h.sync(family)
			s.Failures += int(value)
			s.FailureEvidence = at
		case name == metricDuration+"_sum", name == metricDuration+"_count":
			d := durations[family]
			if d == nil {
				d = &total{}
				durations[family] = d
			}
			if strings.HasSuffix(name, "_sum") {
				d.seconds, d.at = value, at
			} else {
				d.count = value
			}
		}
		return true
	})
	for _, family := range [...]string{"", "IPv4", "IPv6"} {
		if d := durations[family]; d != nil && d.count >= 1 && d.seconds/d.count < maxMean {
			s := h.sync(family)
			s.Mean, s.MeanEvidence = time.Duration(d.seconds/d.count*float64(time.Second)), d.at
		}
	}
}

// maxMean is more seconds than any sync takes; what a number of hours means need not be told from what overflows.
const maxMean = 1 << 20

// sample reads a line of metrics: its name, the label ip_family, and its value.
func sample(line string) (name, family string, value float64, ok bool) {
	name, rest := line, ""
	if i := strings.IndexAny(line, "{ \t"); i >= 0 {
		name, rest = line[:i], line[i:]
	}
	if strings.HasPrefix(rest, "{") {
		family = label(rest, "ip_family")
		_, rest, ok = strings.Cut(rest, "}")
		if !ok {
			return "", "", 0, false
		}
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return "", "", 0, false
	}
	value, err := strconv.ParseFloat(words[0], 64)
	if family != "" && family != "IPv4" && family != "IPv6" {
		return "", "", 0, false
	}
	return name, family, value, err == nil
}

// unixTime is a number of seconds as a time; zero for 0 and for what is no time.
func unixTime(seconds float64) time.Time {
	if !(seconds > 0 && seconds < 1<<40) {
		return time.Time{}
	}
	return time.Unix(0, 0).UTC().Add(time.Duration(seconds) * time.Second)
}
