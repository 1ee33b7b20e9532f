package cmd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/svcnet/svcnet/repair/proxy"
)

// proxyMetrics are what a fallback proxy in kernel mode tells Prometheus, of its last state.
type proxyMetrics struct{ last atomic.Pointer[proxy.Stats] }

// proxyMetric is one of them.
type proxyMetric struct {
	name, help string
	kind       prometheus.ValueType
	of         func(*proxy.Stats) int
}

var proxyMetricsOf = [...]proxyMetric{
	{"services", "Services that are served or refused.", prometheus.GaugeValue, func(s *proxy.Stats) int { return s.Services }},
	{"service_ports", "Service ports that are served or refused, by family.", prometheus.GaugeValue, func(s *proxy.Stats) int { return s.Ports }},
	{"transactions_total", "Transactions that the kernel took.", prometheus.CounterValue, func(s *proxy.Stats) int { return s.Transactions }},
	{"transactions_refused_total", "Transactions that the kernel did not take.", prometheus.CounterValue, func(s *proxy.Stats) int { return s.Refused }},
	{"elements_total", "Elements of sets and maps that were added or deleted.", prometheus.CounterValue, func(s *proxy.Stats) int { return s.Elements }},
	{"tables_made_total", "Times that a table was made as a whole.", prometheus.CounterValue, func(s *proxy.Stats) int { return s.Whole }},
	{"flows_forgotten_total", "Connections of UDP that were forgotten because their backend is gone.", prometheus.CounterValue, func(s *proxy.Stats) int { return s.Flows }},
}

func (m *proxyMetric) describe() *prometheus.Desc {
	return prometheus.NewDesc("svcnet_proxy_"+m.name, m.help, nil, nil)
}

// Describe implements prometheus.Collector.
func (p *proxyMetrics) Describe(to chan<- *prometheus.Desc) {
	for i := range proxyMetricsOf {
		to <- proxyMetricsOf[i].describe()
	}
}

// Collect implements prometheus.Collector.
func (p *proxyMetrics) Collect(to chan<- prometheus.Metric) {
	s := p.last.Load()
	if s == nil {
		s = &proxy.Stats{}
	}
	for i := range proxyMetricsOf {
		m := &proxyMetricsOf[i]
		to <- prometheus.MustNewConstMetric(m.describe(), m.kind, float64(m.of(s)))
	}
}

// listen answers Prometheus until ctx ends.
func (p *proxyMetrics) listen(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("answer Prometheus: %w (give another address with --metrics)", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 1 << 16}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // it ends with ctx
	return nil
}
