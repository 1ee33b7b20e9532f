package watch

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// Metrics are what Prometheus gets to see of a node that is watched. No label holds a name of the cluster's: the finding
// ids and the sources of evidence are those of this program, so that a node has some hundreds of series at most.
type Metrics struct {
	registry *prometheus.Registry

	findings   *prometheus.GaugeVec
	unknown    *prometheus.GaugeVec
	lag        prometheus.Histogram
	unmeasured *prometheus.CounterVec
	sources    *prometheus.GaugeVec
	events     *prometheus.CounterVec
	services   *prometheus.GaugeVec
	lastSync   prometheus.Gauge
	lastAudit  *prometheus.GaugeVec // of no labels: not there before the first audit
	auditTime  prometheus.Histogram
	failed     prometheus.Counter
	apiAnswers prometheus.Gauge
	before     struct{ nothingAsked, givenUp, unknown int }
	// mu is held while metrics are asked for, and while what an audit says takes the place of what the last one said.
	mu          sync.Mutex
	audited     time.Time
	auditWithin time.Duration
}

// sourceStatuses are the statuses of a source.
var sourceStatuses = []string{"ok", "empty", "absent", "not-collected", "unsupported", "denied", "failed", "truncated"}

// NewMetrics makes the metrics. version is that of the program. within is how old the last audit may be before /healthz
// says that this does not work any more.
func NewMetrics(version string, within time.Duration) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), auditWithin: within,
		findings: gauge("svcnet_findings", "Findings that stand on this node, by id and severity.", "id", "severity"),
		unknown:  gauge("svcnet_unknown_checks", "Checks that could not be answered at the last audit, by id of the finding.", "id"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "svcnet_programming_lag_seconds",
			Help: "Time from a change of a Service or EndpointSlice to the first rules in the kernel that show it.",
			// From a tenth of a second to some minutes: kube-proxy writes once a second, and takes minutes where it is lost.
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600},
		}),
		unmeasured: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svcnet_changes_unmeasured_total",
			Help: "Changes of objects without a lag: they ask for no other rules on this node, no rules showed them within 15 minutes, or nobody could look whether rules do.",
		}, []string{"reason"}),
		sources: gauge("svcnet_source_status", "1 for the status that a source of evidence has, 0 for those that it has not; the worst, where it is read from several places.", "source", "status"),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svcnet_events_total", Help: "Events that were told, by type.",
		}, []string{"type"}),
		services: gauge("svcnet_services", "Services on this node by what the last audit says of them.", "result"),
		lastSync: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "svcnet_last_sync_timestamp_seconds", Help: "When kube-proxy last wrote its rules, by its own metrics; of two families the older. 0: it does not say.",
		}),
		lastAudit: gauge("svcnet_last_audit_timestamp_seconds", "When the node was last audited."),
		auditTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "svcnet_audit_duration_seconds", Help: "How long reading and auditing the node took.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "svcnet_audits_failed_total", Help: "Audits of which nothing came.",
		}),
		apiAnswers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "svcnet_api_up", Help: "1 while the API server answers lists and watches, 0 while it does not and objects are those known before.",
		}),
	}
	build := gauge("svcnet_build_info", "1, with the version of the program.", "version")
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.findings, m.unknown, m.lag, m.unmeasured, m.sources, m.events, m.services, m.lastSync, m.lastAudit, m.auditTime, m.failed, m.apiAnswers, build)
	// Every severity is there from the start, so that a rule tells 0 from nothing known.
	for _, reason := range []string{"nothing-asked", "given-up", "unknown"} {
		m.unmeasured.WithLabelValues(reason)
	}
	for _, t := range []report.EventType{report.EventLag, report.EventAppeared, report.EventCleared, report.EventSource, report.EventProxy} {
		m.events.WithLabelValues(string(t))
	}
	return m
}

// Handler answers /metrics, /healthz and nothing else.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	// An audit is taken over metric by metric, and nobody is to see half of it: a finding that stands would be gone.
	whole := prometheus.GathererFunc(holding(&m.mu, m.registry.Gather))
	mux.Handle("GET /metrics", promhttp.HandlerFor(whole, promhttp.HandlerOpts{Registry: m.registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		age, first := time.Since(m.audited), m.audited.IsZero()
		m.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		switch {
		case first:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("no audit yet\n"))
		case age > m.auditWithin:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("the last audit is of " + strconv.Itoa(int(age.Seconds())) + " s ago\n"))
		default:
			_, _ = w.Write([]byte("ok\n"))
		}
	})
	return mux
}

// holding is a function that holds a lock.
func holding[T any](mu sync.Locker, f func() (T, error)) func() (T, error) {
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// read notes that the node was read.
func (m *Metrics) read(took time.Duration, err error) {
	if err != nil {
		m.failed.Inc()
		return
	}
	m.auditTime.Observe(took.Seconds())
}

// event counts an event.
func (m *Metrics) event(e *report.NodeEvent) {
	m.events.WithLabelValues(string(e.Type)).Inc()
	if e.Lag != nil {
		m.lag.Observe(e.Lag.Seconds)
	}
}

// api notes whether the API server answers.
func (m *Metrics) api(read, failing bool) {
	up := 0.0
	if read && !failing {
		up = 1
	}
	m.apiAnswers.Set(up)
}

// state takes over what stands after a reading.
func (m *Metrics) state(s *State, r Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.findings.Reset()
	// The checks of this program with their severities: a rule about a finding that nobody has found yet reads 0.
	for i := range check.Catalogue {
		m.findings.WithLabelValues(check.Catalogue[i].ID, check.Catalogue[i].Severity).Set(0)
	}
	for _, f := range s.Open() {
		m.findings.WithLabelValues(f.ID, f.Severity).Inc()
	}
	m.unknown.Reset()
	for _, u := range r.Report.Unknown {
		m.unknown.WithLabelValues(u.ID).Set(1)
	}
	m.sources.Reset()
	for name, status := range worstStatus(s.Sources()) {
		for _, other := range sourceStatuses {
			value := 0.0
			if other == status {
				value = 1
			}
			m.sources.WithLabelValues(name, other).Set(value)
		}
	}
	c := r.Report.Services
	for result, n := range map[string]int{"ok": c.OK, "differ": c.Differ, "unknown": c.Unknown, "skipped": c.Skipped} {
		m.services.WithLabelValues(result).Set(float64(n))
	}
	m.unmeasured.WithLabelValues("nothing-asked").Add(float64(s.Unmeasured.NothingAsked - m.before.nothingAsked))
	m.unmeasured.WithLabelValues("given-up").Add(float64(s.Unmeasured.GivenUp - m.before.givenUp))
	m.unmeasured.WithLabelValues("unknown").Add(float64(s.Unmeasured.Unknown - m.before.unknown))
	m.before.nothingAsked, m.before.givenUp, m.before.unknown = s.Unmeasured.NothingAsked, s.Unmeasured.GivenUp, s.Unmeasured.Unknown
	synced := 0.0
	if !r.ProxySynced.IsZero() {
		synced = float64(r.ProxySynced.UnixMicro()) / 1e6
	}
	m.lastSync.Set(synced)
	m.lastAudit.WithLabelValues().Set(float64(r.Ended.UnixMicro()) / 1e6)
	m.audited = r.Ended
}

// worstStatus is one status for each source: that of its files which says least. A source has a file for each family and
// each place.
func worstStatus(sources []report.Source) map[string]string {
	out := make(map[string]string)
	for _, src := range sources {
		was, ok := out[src.Name]
		if !ok || rank(src.Status) > rank(was) {
			out[src.Name] = src.Status
		}
	}
	return out
}

// rank orders statuses: answers first, where what was read beats what is not there.
func rank(status string) int {
	order := []string{"absent", "empty", "ok", "unsupported", "not-collected", "truncated", "failed", "denied"}
	return slices.Index(order, status)
}
