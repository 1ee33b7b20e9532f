package audit

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/test/lab"
)

// How many connections show what. On a node as it should be a cell is watched until a backend with a third of the
// traffic would have been missed once in ten million cells. Afterwards fewer do at first: what seems to be gone is
// looked for as long as before, and what seems to be new must show twice.
//
// In a guest every connection takes its time. Virtual servers there serve in turn, so that fewer show everything.
var (
	connectionsBefore  = here(40, 16)
	connectionsAfter   = here(8, 4)
	connectionsSampled = here(3, 2)
	// quick is for what is not answered; patient confirms that nothing answers, on a machine that is busy.
	quick   = here(200*time.Millisecond, time.Second)
	patient = here(1200*time.Millisecond, 4*time.Second)
	// atOnce is how many cells are looked at at a time.
	atOnce = here(48, 8)
)

// here is one of two, the second in a guest.
func here[T any](machine, guest T) T {
	if os.Getenv(insideFlag) != "" {
		return guest
	}
	return machine
}

// A cell is one kind of client and one address of a Service.
type cell struct {
	service string
	kind    string // of the frontend
	class   string // of the client
	from    lab.Place
	source  netip.Addr // not valid: the kernel chooses
	proto   corev1.Protocol
	to      netip.AddrPort
	sticky  bool
	// unserved: no Service has the address, and nobody should answer.
	unserved bool
	// fates are what connections met while the node was as it should be.
	fates map[string]bool
	// unsteady says how they changed by themselves.
	unsteady string
}

func (c *cell) String() string {
	return fmt.Sprintf("%s: %s %s/%s from %s (%s)", c.service, c.kind, c.to, c.proto, c.from, c.class)
}

// cells are all that are looked at.
func (s *stage) cells() []*cell {
	var out []*cell
	for _, a := range s.acts {
		spec := a.svc.Spec
		p := spec.Ports[0]
		for _, ipv6 := range []bool{false, true} {
			at := func(kind string, addr netip.Addr, port int32, classes ...string) {
				for _, class := range classes {
					c := &cell{service: a.svc.Name, kind: kind, class: class, proto: p.Protocol, to: netip.AddrPortFrom(addr, uint16(port)),
						sticky: spec.SessionAffinity == corev1.ServiceAffinityClientIP}
					c.from, c.source = s.client(class, ipv6)
					switch {
					case class == "hairpin" && !a.lists("a1"), class == "hairpin-b" && !a.lists("a2"), class == "backend-of-another" && a.lists("a1"):
					case class == "remote-pod" && c.sticky: // its answers come back another way or not at all, one after the other
					default:
						out = append(out, c)
					}
				}
			}
			all := []string{"local-pod", "local-pod-b", "hairpin", "remote-pod", "node", "remote-node", "external"}
			family := 0
			if ipv6 {
				family = 1
			}
			at("ClusterIP", netip.MustParseAddr(spec.ClusterIPs[family]), p.Port, append(all, "backend-of-another", "hairpin-b")...)
			if len(spec.ExternalIPs) > 0 {
				at("ExternalIP", netip.MustParseAddr(spec.ExternalIPs[family]), p.Port, all...)
			}
			if in := a.svc.Status.LoadBalancer.Ingress; len(in) > 0 {
				at("LoadBalancer", netip.MustParseAddr(in[family].IP), p.Port, all...)
			}
			if p.NodePort == 0 {
				continue
			}
			own, gateway := s.n1.IPv4, s.n1.PodCIDRIPv4.Addr().Next()
			if ipv6 {
				own, gateway = s.n1.IPv6, s.n1.PodCIDRIPv6.Addr().Next()
			}
			at("NodePort", own, p.NodePort, all...)
			served := len(out)
			at("NodePort", gateway, p.NodePort, "local-pod", "node", "remote-node")
			for _, c := range out[served:] {
				c.unserved = s.primaryOnly
			}
			if !ipv6 {
				at("NodePort", netip.MustParseAddr("127.0.0.1"), p.NodePort, "node")
				out[len(out)-1].unserved = s.primaryOnly || s.ipvs
			}
		}
	}
	return out
}

// spread tells whether there are ready endpoints on a node and elsewhere.
func (a *act) spread(node string) bool {
	here, elsewhere := false, false
	for _, sl := range a.slices {
		for _, e := range sl.Endpoints {
			if *e.Conditions.Ready {
				here, elsewhere = here || *e.NodeName == node, elsewhere || *e.NodeName != node
			}
		}
	}
	return here && elsewhere
}

func (a *act) lists(pod string) bool {
	for _, sl := range a.slices {
		for _, e := range sl.Endpoints {
			if e.TargetRef.Name == pod && *e.Conditions.Ready {
				return true
			}
		}
	}
	return false
}

func (s *stage) client(class string, ipv6 bool) (lab.Place, netip.Addr) {
	pods := map[string]string{"local-pod": "client-1", "local-pod-b": "client-1b", "hairpin": "a1", "hairpin-b": "a2", "backend-of-another": "a1", "remote-pod": "client-2"}
	if name := pods[class]; name != "" {
		return s.pods[name], s.pods[name].Addr(ipv6)
	}
	switch class {
	case "node":
		return s.n1, netip.Addr{}
	case "remote-node":
		return s.n2, netip.Addr{}
	}
	return s.Client, netip.Addr{}
}

// dial connects n times and counts fates.
func (s *stage) dial(ctx context.Context, c *cell, n int, wait time.Duration) (map[string]int, error) {
	if c.sticky {
		return s.dialSticky(ctx, c, n, wait)
	}
	answers, err := s.Many(ctx, n, c.from, c.proto, c.to, lab.DialOptions{SourceIP: c.source, Timeout: wait})
	out := map[string]int{}
	for _, a := range answers {
		out[fateOf(a)]++
	}
	if c.proto == corev1.ProtocolUDP && len(out) > 1 {
		// Nobody sends a datagram again that was lost. A backend that does not answer is one that is not met.
		delete(out, silence)
	}
	return out, err
}

// silence is the fate of a connection that nobody answers.
const silence = "no answer"

func fateOf(a lab.Answer) string {
	switch a.Outcome {
	case lab.Answered:
		return fmt.Sprintf("%s:%d saw %s", a.Pod, a.Port, a.Client.Addr())
	case lab.TimedOut:
		return silence
	}
	return string(a.Outcome)
}

// dialSticky has the kernel forget its clients, and connects twice: the second connection is for the first's backend.
func (s *stage) dialSticky(ctx context.Context, c *cell, n int, wait time.Duration) (map[string]int, error) {
	out := map[string]int{}
	answered := false
	for i := range n {
		if !answered && i >= max(2, n/4) {
			break // these are made one after the other: nobody waits for more of the same
		}
		if err := s.forget(ctx); err != nil {
			return nil, err
		}
		var first string
		for i := range 2 {
			answers, err := s.Many(ctx, 1, c.from, c.proto, c.to, lab.DialOptions{SourceIP: c.source, Timeout: wait})
			if err != nil {
				return nil, err
			}
			fate := fateOf(answers[0])
			out[fate]++
			answered = answered || answers[0].Outcome == lab.Answered
			if i == 0 {
				first = fate
			} else if fate != first {
				out["another backend at once"]++
			}
		}
	}
	return out, nil
}

// forget empties the lists of clients that session affinity goes by.
func (s *stage) forget(ctx context.Context) error {
	if len(s.affinities) > 0 {
		script := "flush set " + strings.Join(s.affinities, "\nflush set ") + "\n"
		// A table that a change took away holds nobody.
		if _, err := s.n1.Netns().Run(ctx, script, "nft", "-f", "-"); err != nil && !strings.Contains(err.Error(), "No such file or directory") {
			return err
		}
	}
	if s.ipvs {
		return forgetClients(s.n1, func(v *virtualServer) bool { return v.persistent > 0 })
	}
	return s.n1.Netns().Do(func() error {
		lists, err := filepath.Glob("/proc/thread-self/net/xt_recent/KUBE-SEP-*")
		for _, list := range lists {
			// One that is gone meanwhile holds nobody.
			_ = os.WriteFile(list, []byte("/"), 0o600)
		}
		return err
	})
}

// each runs f for cells, several at a time; those with session affinity one after the other, because they share its
// lists, and of UDP as many as the sockets of the backends can hold. The first error ends it.
func each(cells []*cell, f func(c *cell) error) error {
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		first  error
		slot   = make(chan bool, atOnce)
		sticky = make(chan bool, 1)
		udp    = make(chan bool, here(4, 1))
	)
	for _, c := range cells {
		in := slot
		switch {
		case c.sticky:
			in = sticky
		case c.proto == corev1.ProtocolUDP:
			in = udp
		}
		wait.Go(func() {
			in <- true
			defer func() { <-in }()
			mu.Lock()
			failed := first != nil
			mu.Unlock()
			if failed {
				return
			}
			if err := f(c); err != nil {
				mu.Lock()
				first = fmt.Errorf("%s: %w", c, err)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return first
}

// learn sees what connections meet while the node is as it should be, twice. Cells in which the two differ say nothing
// of what comes after; it returns those.
func (s *stage) learn(ctx context.Context, cells []*cell) ([]*cell, error) {
	for pass := range 2 {
		err := each(cells, func(c *cell) error {
			got, err := s.dial(ctx, c, connectionsBefore, patient)
			if n := got[silence]; err == nil && n > 0 && (n < connectionsBefore/4 || c.proto == corev1.ProtocolUDP) {
				// A machine that is busy answers late, and the sockets of backends lose datagrams that come all at once.
				delete(got, silence)
				var again map[string]int
				again, err = s.dial(ctx, c, connectionsBefore/2, 3*patient)
				for fate := range again {
					got[fate]++
				}
			}
			if pass > 0 && (c.fresh(got) != "" || c.lacks(got) != "") {
				c.unsteady = fmt.Sprintf("first %s, then %s", names(c.fates), names(got))
			}
			c.fates = map[string]bool{}
			for fate := range got {
				c.fates[fate] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := s.forgetFlows(ctx); err != nil {
			return nil, err
		}
	}
	for _, c := range cells {
		if c.unsteady == "" && c.proto == corev1.ProtocolUDP && c.fates[silence] && len(c.fates) > 1 {
			c.unsteady = "answered at some times only: " + names(c.fates) // datagrams that a busy machine loses
		}
	}
	return slices.DeleteFunc(slices.Clone(cells), func(c *cell) bool { return c.unsteady == "" }), nil
}

// forgetFlows has the node forget all connections, or the next UDP flow with ports of an old one would go its way.
func (s *stage) forgetFlows(ctx context.Context) error {
	if s.ipvs {
		if err := forgetClients(s.n1, func(*virtualServer) bool { return true }); err != nil {
			return err
		}
	}
	_, err := s.n1.Netns().Run(ctx, "", "conntrack", "-F")
	return err
}

// a move is a cell that fares otherwise than before.
type move struct {
	cell *cell
	how  string
}

func (m move) String() string { return fmt.Sprintf("%s: %s", m.cell, m.how) }

// enoughMoves of one Service show that it is affected: what is not answered takes time.
var enoughMoves = here(4, 2)

// moved are the cells that fare otherwise. Those that the change is about are looked at closely, of the others some.
func (s *stage) moved(ctx context.Context, cells []*cell, near func(c *cell) bool, dice *rand.Rand) ([]move, error) {
	var chosen []*cell
	for _, c := range cells {
		if near(c) || dice.IntN(4) == 0 {
			chosen = append(chosen, c)
		}
	}
	var (
		mu  sync.Mutex
		out []move
	)
	of := map[string]int{}
	err := each(chosen, func(c *cell) error {
		mu.Lock()
		enough := of[c.service] >= enoughMoves
		mu.Unlock()
		if enough {
			return nil
		}
		how, err := s.differs(ctx, c, near(c))
		if how != "" {
			mu.Lock()
			out = append(out, move{c, how})
			of[c.service]++
			mu.Unlock()
		}
		return err
	})
	slices.SortFunc(out, func(a, b move) int { return strings.Compare(a.String(), b.String()) })
	return out, err
}

// differs says how a cell fares otherwise, empty when it does not.
func (s *stage) differs(ctx context.Context, c *cell, near bool) (string, error) {
	n := connectionsSampled
	if near {
		n = connectionsAfter
	}
	if c.fates[silence] && len(c.fates) == 1 {
		n = 2
	}
	if c.unserved {
		near = false // in what way nobody answers is no matter of a Service
	}
	got, err := s.dial(ctx, c, n, quick)
	if err != nil {
		return "", err
	}
	if fresh := c.fresh(got); fresh != "" {
		again, err := s.dial(ctx, c, 8, patient)
		if err != nil {
			return "", err
		}
		if also := c.fresh(again); also != "" {
			return fmt.Sprintf("met %s and not only %s", also, names(c.fates)), nil
		}
		got = again
	}
	if !near || c.lacks(got) == "" {
		return "", nil
	}
	more, err := s.dial(ctx, c, connectionsBefore, quick)
	if err != nil {
		return "", err
	}
	if c.fresh(more) != "" { // a machine that is busy answers late
		if more, err = s.dial(ctx, c, connectionsBefore, patient); err != nil {
			return "", err
		}
		if fresh := c.fresh(more); fresh != "" {
			return fmt.Sprintf("met %s and not only %s", fresh, names(c.fates)), nil
		}
	}
	maps.Copy(got, more)
	if lacks := c.lacks(got); lacks != "" {
		return fmt.Sprintf("%s is not met any more, only %s", lacks, names(got)), nil
	}
	return "", nil
}

// fresh are the fates that were not met before.
func (c *cell) fresh(got map[string]int) string {
	var out []string
	for _, fate := range slices.Sorted(maps.Keys(got)) {
		if !c.fates[fate] && (!c.unserved || strings.Contains(fate, " saw ")) {
			out = append(out, fate)
		}
	}
	return strings.Join(out, ", ")
}

// lacks are the fates that are not met any more.
func (c *cell) lacks(got map[string]int) string {
	var out []string
	for _, fate := range slices.Sorted(maps.Keys(c.fates)) {
		if got[fate] == 0 {
			out = append(out, fate)
		}
	}
	return strings.Join(out, ", ")
}

func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
