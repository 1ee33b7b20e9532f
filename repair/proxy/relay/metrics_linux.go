package relay

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metric is one that is read from counts.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*counts) float64
	// udp is true for those that only UDP has.
	udp bool
}

// collector reads the counts of a relay when Prometheus asks.
type collector struct {
	relay    *Relay
	services bool
	metrics  []metric
	refused  *prometheus.Desc
	limit    *prometheus.Desc
	fronts   *prometheus.Desc
	resting  *prometheus.Desc
	clients  *prometheus.Desc
}

// Collector gives the metrics of the relay, in sums by protocol. With services they are of each service port instead, by
// namespace, service, port and family: some dozen series for each.
func (r *Relay) Collector(services bool) prometheus.Collector {
	labels := []string{"protocol"}
	if services {
		labels = append(labels, "namespace", "service", "port", "family")
	}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("svcnet_relay_"+name, help, append(append([]string{}, labels...), more...), nil)
	}
	c := &collector{relay: r, services: services,
		refused: desc("refused_total", "Connections (TCP) and datagrams (UDP) that got no backend: by policy, over a limit, because no backend took them, for want of files or memory.", "reason"),
		limit:   prometheus.NewDesc("svcnet_relay_limit", "The most connections (TCP) and sessions (UDP) at one time.", []string{"protocol"}, nil),
		fronts:  prometheus.NewDesc("svcnet_relay_frontends", "Addresses that are listened on.", nil, nil),
		resting: prometheus.NewDesc("svcnet_relay_backends_resting", "Backends that did not answer lately and are left alone.", []string{"protocol"}, nil),
		clients: prometheus.NewDesc("svcnet_relay_affinity_clients", "Clients whose backend is remembered (sessionAffinity).", nil, nil),
	}
	integer := func(get func(*counts) int64) func(*counts) float64 {
		return func(n *counts) float64 { return float64(get(n)) }
	}
	c.metrics = []metric{
		{desc("active", "Connections (TCP) and sessions (UDP) that are open."), prometheus.GaugeValue, integer(func(n *counts) int64 { return n.active.Load() }), false},
		{desc("opened_total", "Connections and sessions that were begun."), prometheus.CounterValue, integer(func(n *counts) int64 { return n.opened.Load() }), false},
		{desc("reset_total", "Connections that an end broke off, or that were idle for too long."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.reset.Load()) }), false},
		{desc("retries_total", "Attempts at another backend after one that failed."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.retried.Load()) }), false},
		{desc("bytes_to_backends_total", "Bytes of clients that were passed on; those of open connections come in now and then."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.toBackends.Load()) }), false},
		{desc("bytes_to_clients_total", "Bytes of backends that were passed on."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.toClients.Load()) }), false},
		{desc("datagrams_to_backends_total", "Datagrams of clients that were passed on."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.datagramsToBackends.Load()) }), true},
		{desc("datagrams_to_clients_total", "Datagrams of backends that were passed on."), prometheus.CounterValue, integer(func(n *counts) int64 { return int64(n.datagramsToClients.Load()) }), true},
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
	for _, d := range []*prometheus.Desc{c.refused, c.limit, c.fronts, c.resting, c.clients} {
		ch <- d
	}
}

// protocolNames are the values of the label protocol.
var protocolNames = [protocols]string{"TCP", "UDP"}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	give := func(n *counts, udp bool, labels ...string) {
		for _, m := range c.metrics {
			if m.udp && !udp {
				continue
			}
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(n), labels...)
		}
		for i, reason := range refusalNames {
			ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(n.refused[i].Load()), append(append([]string{}, labels...), reason)...)
		}
	}
	r := c.relay
	r.mu.Lock()
	var services []*service
	for _, s := range r.table.services {
		services = append(services, s)
	}
	var backends []*backend
	for _, b := range r.table.backends {
		backends = append(backends, b)
	}
	fronts := len(r.fronts)
	r.mu.Unlock()
	if c.services {
		for _, s := range services {
			give(&s.counts, s.key.protocol == "UDP", s.key.protocol, s.key.namespace, s.key.name, s.key.port, []string{4: "IPv4", 6: "IPv6"}[s.key.family])
		}
	} else {
		for i, name := range protocolNames {
			give(&r.totals[i], i == protocolUDP, name)
		}
	}
	ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(r.limits.Connections), protocolNames[protocolTCP])
	ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(r.limits.Sessions), protocolNames[protocolUDP])
	ch <- prometheus.MustNewConstMetric(c.fronts, prometheus.GaugeValue, float64(fronts))
	var resting [protocols]int
	for _, b := range backends {
		if b.resting() {
			if b.udp {
				resting[protocolUDP]++
			} else {
				resting[protocolTCP]++
			}
		}
	}
	for i, n := range resting {
		ch <- prometheus.MustNewConstMetric(c.resting, prometheus.GaugeValue, float64(n), protocolNames[i])
	}
	remembered := 0
	for _, s := range services {
		remembered += s.affinity.size()
	}
	ch <- prometheus.MustNewConstMetric(c.clients, prometheus.GaugeValue, float64(remembered))
}
