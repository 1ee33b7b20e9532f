package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/relay"
)

// How changes are put together: a change waits for others that come with it, and after one the next waits longer, and ten
// times as long as that took, so that much of them costs little. What could not be served is tried again.
const (
	together = 20 * time.Millisecond
	between  = 200 * time.Millisecond
	again    = 10 * time.Second
)

// Run serves until ctx ends, the time is over or kube-proxy serves again.
func Run(ctx context.Context, c Config) (proxy.Ending, error) {
	addrs, err := proxy.NodeAddrs()
	if err != nil {
		return "", err
	}
	within, stop := context.WithCancel(ctx)
	defer stop()
	changed, err := proxy.FollowAddrs(within)
	if err != nil {
		return "", err
	}
	c.Relay.Log = func(line string) { c.Log("%s", line) }
	r, err := relay.New(c.Relay)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if c.Running != nil {
		c.Running(r)
	}
	w := newWanted(&c, addrs)
	w.health = proxy.NewHealthChecks(intent.NodePortAddrs(w.input), c.Log)
	go w.health.Run(within)
	s := &server{c: c, relay: r, wanted: w}
	w.updateAll(c.Objects)
	_, _ = c.Objects.Take() // they are all in
	if err := s.serve(); err != nil {
		return "", err
	}
	if c.Started != nil {
		c.Started(proxy.Stats{Services: len(w.services), Ports: s.ports})
	}
	ended := make(chan proxy.Ending, 1)
	go func() { ended <- c.End(within) }()
	retry := time.NewTicker(again)
	defer retry.Stop()
	for {
		var due <-chan time.Time
		if !s.due.IsZero() {
			due = time.After(time.Until(s.due))
		}
		select {
		case ending := <-ended:
			s.drain()
			return ending, nil
		case <-c.Objects.Changed():
			s.take()
		case addrs, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			s.readdress(addrs)
		case <-retry.C:
			if len(s.unserved) > 0 || r.Lingering() > 0 {
				s.soon()
			}
		case <-due:
			if err := s.serve(); err != nil {
				return "", err
			}
		}
	}
}

// server keeps a relay as the objects ask.
type server struct {
	c      Config
	relay  *relay.Relay
	wanted *wanted
	// due is when the relay is to be told; zero: nothing changed.
	due, told time.Time
	took      time.Duration
	ports     int
	unserved  []relay.Unserved
}

// soon has the relay told of changes.
func (s *server) soon() {
	if s.due.IsZero() {
		s.due = time.Now().Add(together)
		if t := s.told.Add(max(between, 10*s.took)); t.After(s.due) {
			s.due = t
		}
	}
}

// take takes in what the API server told.
func (s *server) take() {
	services, node := s.c.Objects.Take()
	if len(services) == 0 && !node {
		return
	}
	s.soon()
	if node {
		s.wanted.input.Node = s.c.Objects.Node()
		s.wanted.health.SetAddrs(intent.NodePortAddrs(s.wanted.input))
		s.wanted.updateAll(s.c.Objects)
	}
	for _, service := range services {
		s.wanted.update(s.c.Objects, service)
	}
}

// readdress takes in other addresses of the node.
func (s *server) readdress(addrs []netip.Addr) {
	if slices.Equal(addrs, s.wanted.input.NodeAddrs) {
		return
	}
	s.wanted.input.NodeAddrs = addrs
	s.wanted.health.SetAddrs(intent.NodePortAddrs(s.wanted.input))
	s.wanted.updateAll(s.c.Objects)
	s.soon()
}

// serve tells the relay, and people what of it cannot be served.
func (s *server) serve() error {
	begun := time.Now()
	want := s.wanted.want()
	unserved, err := s.relay.Update(want)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	// Health checks are answered here, not by the relay.
	unserved = slices.DeleteFunc(unserved, func(u relay.Unserved) bool { return u.Kind == intent.HealthCheck })
	for _, u := range unserved {
		if !slices.Contains(s.unserved, u) {
			s.c.Log("not served: %s", u)
		}
	}
	for _, u := range s.unserved {
		if !slices.Contains(unserved, u) {
			s.c.Log("served, or not wanted any more: %s %s of %s", u.Protocol, u.Listen, u.ServicePort)
		}
	}
	s.unserved, s.ports = unserved, len(want.Ports)
	s.due, s.told, s.took = time.Time{}, time.Now(), time.Since(begun)
	return nil
}

// drain lets connections end.
func (s *server) drain() {
	n, _ := s.relay.Active()
	if n == 0 || s.c.Drain <= 0 {
		return
	}
	s.c.Log("%d connections may go on for %s at most; no new ones are taken", n, s.c.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), s.c.Drain)
	defer cancel()
	s.relay.Drain(ctx)
	if n, _ := s.relay.Active(); n > 0 {
		s.c.Log("%d connections are broken off", n)
	}
}
