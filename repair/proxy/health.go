package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/svcnet/svcnet/repair/proxy/table"
)

// HealthChecks answers load balancers that ask, on the healthCheckNodePort of a Service, whether this node has backends of
// its own for it: 200 where it has, 503 where not, in the form in which kube-proxy answers since 1.28. A port that another
// process listens on, kube-proxy as a rule, is left to it and tried again.
type HealthChecks struct {
	log func(string, ...any)

	mu sync.Mutex
	// addrs are the node's addresses on which health checks are answered.
	addrs []netip.Addr
	ports map[table.Service]*healthCheck
}

// healthCheck is that of one Service.
type healthCheck struct {
	port    uint16
	service table.Service
	ready   int
	servers []*http.Server
	// open are the addresses that are listened on; taken says that some could not be had.
	open  []netip.Addr
	taken bool
}

// retryListen is how often a port that was taken is tried again.
const retryListen = 10 * time.Second

// NewHealthChecks answers nothing yet.
func NewHealthChecks(addrs []netip.Addr, log func(string, ...any)) *HealthChecks {
	return &HealthChecks{log: log, addrs: slices.Clone(addrs), ports: map[table.Service]*healthCheck{}}
}

// Run tries ports again that were taken, until ctx ends; then nothing is answered any more.
func (h *HealthChecks) Run(ctx context.Context) {
	again := time.NewTicker(retryListen)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			h.mu.Lock()
			for _, c := range h.ports {
				c.close()
			}
			clear(h.ports)
			h.mu.Unlock()
			return
		case <-again.C:
			h.mu.Lock()
			for _, c := range h.ports {
				if c.taken {
					h.listen(c)
				}
			}
			h.mu.Unlock()
		}
	}
}

// SetAddrs changes the addresses on which health checks are answered.
func (h *HealthChecks) SetAddrs(addrs []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(h.addrs, addrs) {
		return
	}
	h.addrs = slices.Clone(addrs)
	for _, c := range h.ports {
		c.close()
		h.listen(c)
	}
}

// Update takes in what a Service asks for; nil: nothing.
func (h *HealthChecks) Update(s table.Service, p *table.Port) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.ports[s]
	if c != nil && (p == nil || p.HealthCheck != c.port) {
		c.close()
		delete(h.ports, s)
		c = nil
	}
	if p == nil {
		return
	}
	if c != nil {
		c.ready = p.Ready
		return
	}
	c = &healthCheck{port: p.HealthCheck, service: s, ready: p.Ready}
	h.ports[s] = c
	h.listen(c)
}

// listen opens what is not open yet.
func (h *HealthChecks) listen(c *healthCheck) {
	before := c.taken
	c.taken = false
	for _, a := range h.addrs {
		if slices.Contains(c.open, a) {
			continue
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, c.port).String())
		if err != nil {
			c.taken = true
			if !before {
				h.log("health checks of %s/%s on %s are left to who answers there: %v", c.service.Namespace, c.service.Name, netip.AddrPortFrom(a, c.port), err)
			}
			continue
		}
		server := &http.Server{Handler: h.handler(c), ReadHeaderTimeout: 5 * time.Second}
		c.servers, c.open = append(c.servers, server), append(c.open, a)
		go func() {
			if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				h.log("health checks on %s end: %v", l.Addr(), err)
			}
		}()
	}
}

func (c *healthCheck) close() {
	for _, s := range c.servers {
		_ = s.Close() // nobody waits for an answer
	}
	c.servers, c.open = nil, nil
}

// answer is the body of an answer.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

func (h *HealthChecks) handler(c *healthCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		a := answer{LocalEndpoints: c.ready, ServiceProxyHealthy: true}
		a.Service.Namespace, a.Service.Name = c.service.Namespace, c.service.Name
		h.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
		if a.LocalEndpoints == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(a) // the client is gone, else
	})
}
