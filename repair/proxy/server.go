package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Writer makes transactions happen in the kernel.
type Writer interface {
	// Write makes one happen, whole or not at all.
	Write(tx *table.Transaction) error
	// Has tells whether the table of a family is there.
	Has(family nft.Family) (bool, error)
	// Remove deletes the tables, whether they are there or not.
	Remove(families ...nft.Family) error
}

// Options are what a Server is told at its beginning.
type Options struct {
	Objects *Objects
	Writer  Writer
	// Proxy is what the server is like: the settings of the kube-proxy that it stands in for, in svcnet's own mode.
	Proxy traits.Proxy
	// Addrs are the node's own addresses; AddrsChanged tells of others, nil: they stay.
	Addrs        []netip.Addr
	AddrsChanged <-chan []netip.Addr
	// Owned tables end with the process.
	Owned bool
	// Flows forgets connections of UDP whose backend is gone; nil: nobody does.
	Flows func([]UDPService) (forgotten int, err error)
	// Health answers load balancers on the health check ports of Services; nil: nobody does.
	Health *HealthChecks
	// Started is called once, when all Services are in the kernel; Progress after each transaction. Either may be nil.
	Started, Progress func(Stats)
	// Log is told what a person ought to know, one line each.
	Log func(format string, args ...any)
}

// families are those of packets, each with a table.
var families = []nft.Family{nft.IP, nft.IP6}

// Server keeps the tables as the objects ask. It is used by one goroutine.
type Server struct {
	o      Options
	input  intent.Input
	states map[nft.Family]*table.State
	// udp are service ports of UDP whose connections are to be looked at.
	udp map[UDPService]bool
	// settled is when elements that nothing wants any more may go.
	settled time.Time
	// retry is when a transaction that the kernel did not take is tried again, after how long the next one is.
	retry time.Time
	pause time.Duration
	stats Stats
	// lost are frontends that two Services claim, as they were told last.
	lost map[string]bool
}

// Stats are what a Server has done.
type Stats struct {
	Services, Ports int
	// Transactions are those that the kernel took, Refused those that it did not; Elements are the elements that they added
	// and deleted, Whole how often a table was made anew.
	Transactions, Refused, Elements, Whole int
	// Flows are the connections of UDP that were forgotten.
	Flows int
}

// NewServer serves nothing yet.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	o.Proxy.Mode = Mode
	s := &Server{o: o, udp: map[UDPService]bool{}, lost: map[string]bool{}}
	s.input = intent.Input{SlicesRead: true, Node: o.Objects.Node(), Proxy: o.Proxy, NodeAddrs: o.Addrs}
	s.begin()
	return s
}

// Mode is what traits call a node that this proxy serves.
const Mode = "svcnet"

// begin has the tables made for the facts that are known by now.
func (s *Server) begin() {
	facts := s.facts()
	s.states = map[nft.Family]*table.State{nft.IP: table.NewState(nft.IP, facts), nft.IP6: table.NewState(nft.IP6, facts)}
}

func (s *Server) facts() table.Facts {
	f := table.FactsOf(&s.o.Proxy, intent.NodePortAddrs(s.input))
	f.Owned = s.o.Owned
	return f
}

// grace is how long elements stay that nothing wants any more: a packet that was led to them is gone by then.
const grace = 100 * time.Millisecond

// checkEvery is how often it is looked whether the tables are still there.
const checkEvery = 2 * time.Second

// Serve keeps the tables until ctx ends, with the objects that are known already. It leaves them as they are.
func (s *Server) Serve(ctx context.Context) error {
	for _, service := range s.o.Objects.All() {
		s.update(service)
	}
	_, _ = s.o.Objects.Take() // they are all in
	s.flush()
	s.clear()
	started := s.o.Started == nil
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		if !started && s.retry.IsZero() {
			s.o.Started(s.Stats())
			started = true
		}
		var due <-chan time.Time
		if d := s.due(); d >= 0 {
			due = time.After(d)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.o.Objects.Changed():
			s.take()
		case addrs, ok := <-s.o.AddrsChanged:
			if !ok {
				s.o.AddrsChanged = nil
				continue
			}
			s.readdress(addrs)
		case <-due:
		case <-check.C:
			s.check()
		}
		s.flush()
	}
}

// clear removes the table of a family that has no Services, which an earlier proxy may have left.
func (s *Server) clear() {
	for _, family := range families {
		if !s.states[family].Unneeded() {
			continue
		}
		if err := s.o.Writer.Remove(family); err != nil {
			s.o.Log("a table %s %s that an earlier proxy left stays: %v", family, table.Name, err)
		}
	}
}

// due is when something is to be done without a change: negative for never.
func (s *Server) due() time.Duration {
	if !s.retry.IsZero() {
		return max(time.Until(s.retry), 0)
	}
	for _, st := range s.states {
		if st.Retiring() > 0 {
			return max(time.Until(s.settled), 0)
		}
	}
	return -1
}

// take takes in what the API server told.
func (s *Server) take() {
	services, node := s.o.Objects.Take()
	if node && s.renode() {
		return
	}
	for _, service := range services {
		s.update(service)
	}
}

// update computes what a Service asks for by now.
func (s *Server) update(service table.Service) {
	before := map[nft.Family][]*table.Port{}
	for family, st := range s.states {
		before[family] = st.PortsOf(service)
	}
	ports := map[nft.Family][]*table.Port{}
	if svc, slices := s.o.Objects.Of(service); svc != nil {
		in := s.input
		in.Services, in.Slices = []*corev1.Service{svc}, slices
		for i, sp := range intent.Compute(in).Ports {
			family := nft.IP
			if sp.Family == 6 {
				family = nft.IP6
			}
			ports[family] = append(ports[family], table.PortOf(sp, svc.CreationTimestamp.Time, i))
		}
	}
	for family, st := range s.states {
		if len(before[family])+len(ports[family]) == 0 {
			continue
		}
		st.Update(service, ports[family])
		for _, p := range ports[family] {
			if p.Protocol == "UDP" && p.Usable && !slices.ContainsFunc(before[family], p.SameBackends) {
				s.udp[UDPService{family, service}] = true
			}
		}
	}
	if s.o.Health != nil {
		s.o.Health.Update(service, healthOf(ports))
	}
}

// healthOf is the port of a Service on which load balancers ask, with the number of backends that this node has.
func healthOf(ports map[nft.Family][]*table.Port) *table.Port {
	for _, family := range families {
		for _, p := range ports[family] {
			if p.HealthCheck != 0 {
				return p
			}
		}
	}
	return nil
}

// renode takes in another state of the node: where what the rules rest on changed, all Services are computed anew.
func (s *Server) renode() bool {
	was := s.input
	s.input.Node = s.o.Objects.Node()
	if sameNode(was.Node, s.input.Node) {
		return false
	}
	if was.Node != nil {
		s.o.Log("the Node object changed: computing all Services anew")
	}
	s.recompute()
	return true
}

func sameNode(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Status.Addresses, b.Status.Addresses) && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs)
}

// readdress takes in other addresses of the node.
func (s *Server) readdress(addrs []netip.Addr) {
	if slices.Equal(addrs, s.input.NodeAddrs) {
		return
	}
	s.input.NodeAddrs = addrs
	if s.o.Health != nil {
		s.o.Health.SetAddrs(s.NodePortIPs())
	}
	s.recompute()
}

func (s *Server) recompute() {
	facts := s.facts()
	for _, st := range s.states {
		st.SetNodePortIPs(facts)
	}
	known := map[table.Service]bool{}
	for _, service := range s.o.Objects.All() {
		known[service] = true
		s.update(service)
	}
	services, _ := s.o.Objects.Take()
	for _, service := range services {
		if !known[service] {
			s.update(service)
		}
	}
}

// check looks whether the tables are still there: `nft flush ruleset` of somebody else takes them away.
func (s *Server) check() {
	for _, family := range sortedFamilies(s.states) {
		st := s.states[family]
		if !st.Begun() {
			continue
		}
		there, err := s.o.Writer.Has(family)
		switch {
		case err != nil:
			s.o.Log("table %s %s cannot be looked at: %v", family, table.Name, err)
		case !there:
			s.o.Log("somebody deleted table %s %s: it is made anew", family, table.Name)
			st.Restart()
		}
	}
}

func sortedFamilies(m map[nft.Family]*table.State) []nft.Family {
	return slices.Sorted(maps.Keys(m))
}

// flush writes what changed.
func (s *Server) flush() {
	now := time.Now()
	if !s.retry.IsZero() && now.Before(s.retry) {
		return
	}
	aged := now.After(s.settled)
	wrote := false
	for _, family := range sortedFamilies(s.states) {
		st := s.states[family]
		if st.Unneeded() || !st.Pending() && !(aged && st.Retiring() > 0) {
			continue
		}
		tx := st.Plan(aged)
		if tx.Empty() {
			continue
		}
		begun := time.Now()
		if err := s.o.Writer.Write(tx); err != nil {
			s.refused(st, err)
			continue
		}
		wrote = true
		s.stats.Transactions++
		s.stats.Elements += len(tx.Add) + len(tx.Delete)
		if tx.Whole {
			s.stats.Whole++
			s.o.Log("table %s %s: %d service ports, %d elements, in %s", family, table.Name, st.Ports(), len(tx.Add), time.Since(begun).Round(100*time.Microsecond))
		}
	}
	if wrote {
		s.settled = time.Now().Add(grace)
		s.pause, s.retry = 0, time.Time{}
		s.tellLost()
		s.forgetFlows()
		if s.o.Progress != nil {
			s.o.Progress(s.Stats())
		}
	}
}

// refused notes that the kernel did not take a transaction: the table is made anew, after a while.
func (s *Server) refused(st *table.State, err error) {
	s.stats.Refused++
	s.pause = min(max(2*s.pause, time.Second), 30*time.Second)
	s.retry = time.Now().Add(s.pause)
	s.o.Log("the kernel does not take a change of table %s %s: %v; it is made anew in %s", st.Family(), table.Name, err, s.pause)
	st.Restart()
}

// tellLost tells once of each frontend that two Services claim.
func (s *Server) tellLost() {
	contested, changed := false, false
	for _, st := range s.states {
		is, other := st.Contested()
		contested, changed = contested || is, changed || other
	}
	if !changed {
		return
	}
	now := map[string]bool{}
	for _, family := range sortedFamilies(s.states) {
		if !contested {
			break
		}
		for _, l := range s.states[family].Lost() {
			text := fmt.Sprintf("%s is claimed by %s and by %s: the older keeps it, %s", l.Frontend, l.To.Key, l.Port.Key, l.To.Key)
			now[text] = true
			if !s.lost[text] {
				s.o.Log("%s", text)
			}
		}
	}
	s.lost = now
}

// forgetFlows has connections of UDP forgotten whose backend is gone: the kernel would send what belongs to them there as
// long as somebody sends.
func (s *Server) forgetFlows() {
	if len(s.udp) == 0 || s.o.Flows == nil {
		return
	}
	var all []UDPService
	for u := range s.udp {
		all = append(all, u)
	}
	clear(s.udp)
	n, err := s.o.Flows(all)
	s.stats.Flows += n
	if err != nil {
		s.o.Log("stale connections of UDP stay: %v", err)
	}
}

// UDPService is a Service in one family that has a port of UDP.
type UDPService struct {
	Family  nft.Family
	Service table.Service
}

// Ports are the service ports of a Service in one family, as they are served.
func (s *Server) Ports(u UDPService) []*table.Port { return s.states[u.Family].PortsOf(u.Service) }

// NodePortIPs are the addresses on which node ports are served.
func (s *Server) NodePortIPs() []netip.Addr { return intent.NodePortAddrs(s.input) }

// Stats are what the server has done so far.
func (s *Server) Stats() Stats {
	out := s.stats
	for _, st := range s.states {
		out.Ports += st.Ports()
		out.Services = max(out.Services, st.Services())
	}
	return out
}

// Tables are the tables as they are in the kernel, or as they would be, once what is known is written.
func (s *Server) Tables() []*nft.Table {
	var out []*nft.Table
	for _, family := range sortedFamilies(s.states) {
		if !s.states[family].Unneeded() {
			out = append(out, s.states[family].Table())
		}
	}
	return out
}

// Compute takes in all objects without writing anything: for who wants to see the tables before.
func (s *Server) Compute() {
	for _, service := range s.o.Objects.All() {
		s.update(service)
	}
}

// Remove deletes the tables.
func (s *Server) Remove() error {
	return s.o.Writer.Remove(families...)
}
