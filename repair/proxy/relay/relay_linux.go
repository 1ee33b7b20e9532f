package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Relay serves frontends. Its methods may be called from any goroutine.
type Relay struct {
	o      Options
	limits Limits
	start  time.Time
	loops  []*loop
	totals [protocols]counts
	hungry atomic.Int64

	// mu is held while what is served changes.
	mu         sync.Mutex
	table      table
	fronts     map[frontKey]*front
	reacher    reacher
	free       []uint32
	indexes    uint32 // given out until now
	generation uint32
	lingering  int
	closed     bool
}

const (
	protocolTCP = iota
	protocolUDP
	protocols
)

// Limits are how much a relay takes on.
type Limits struct {
	// Files is how many files the process may have open.
	Files int
	// Connections and Sessions are the most TCP connections and UDP sessions at one time.
	Connections, Sessions int

	connections, sessions, pipes int
}

// New starts a relay that serves nothing yet. Close ends it.
func New(o Options) (*Relay, error) {
	o = o.withDefaults()
	if o.Loops <= 0 {
		o.Loops = min(runtime.GOMAXPROCS(0), maxLoops)
	}
	r := &Relay{o: o, start: time.Now(), fronts: make(map[frontKey]*front)}
	r.reacher = reacher{mode: o.Reach, log: o.Log, ours: make(map[netip.Addr]Reach)}
	if err := r.limit(); err != nil {
		return nil, err
	}
	for range o.Loops {
		l, err := newLoop(r)
		if err != nil {
			for _, l := range r.loops {
				unix.Close(l.ep)
				unix.Close(l.waker)
			}
			return nil, fmt.Errorf("start an event loop: %w", err)
		}
		l.starved.reserve = reserve()
		r.loops = append(r.loops, l)
	}
	for _, l := range r.loops {
		go l.run()
	}
	return r, nil
}

// limit derives the limits from that of open files.
func (r *Relay) limit() error {
	var nofile unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	const others, fewest = 128, 256
	files := int(min(nofile.Cur, 1<<24))
	if files < fewest {
		return fmt.Errorf("the limit of open files is %d: a relay needs %d at least (ulimit -n)", files, fewest)
	}
	left := files - others
	r.limits = Limits{Files: files, connections: left / 2 / 2, sessions: left / 4, pipes: min(256, left/16/2/r.o.Loops)}
	if m := r.o.MaxConnections; m > 0 {
		r.limits.connections, r.limits.sessions = min(m, r.limits.connections), min(m, r.limits.sessions)
	}
	r.limits.Connections, r.limits.Sessions = r.limits.connections, r.limits.sessions
	return nil
}

// Limits are those that hold, with MaxConnections and the limit of open files taken into account.
func (r *Relay) Limits() Limits { return r.limits }

// clock is in nanoseconds since the relay began, and never 0.
func (r *Relay) clock() int64 { return int64(time.Since(r.start)) + 1 }

// starving says, now and then, that connections are refused for want of files.
func (r *Relay) starving(e unix.Errno) {
	now := r.clock()
	if last := r.hungry.Load(); last == 0 || now-last > int64(10*time.Second) {
		if r.hungry.CompareAndSwap(last, now) {
			r.o.Log(fmt.Sprintf("connections are refused: %s (%d files may be open)", e, r.limits.Files))
		}
	}
}

// Update serves what is wanted from now on. Connections stay as they are, whatever becomes of their Service; sessions of
// UDP whose backend is not listed any more end. What cannot be served is said, and is tried again with every update.
func (r *Relay) Update(w Want) ([]Unserved, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("the relay is closed")
	}
	routes, unserved := r.table.routes(w, r.o, Taken(w.Ports))
	refuse := func(k frontKey, to *route, reason string) {
		unserved = append(unserved, Unserved{ServicePort: to.port.Key(), Protocol: k.protocol(), Kind: to.front.Kind, Listen: k.addr, Reason: reason})
	}
	places := r.reacher.reach(addressesOf(routes), sources(w), r.vacant(routes))
	var gone, come []*front
	var missing []frontKey
	for k, f := range r.fronts {
		to := routes[k]
		if p := places[k.addr.Addr()]; to == nil || to.refusal() != "" || p.room != f.room || p.err != nil {
			gone = append(gone, f)
			delete(r.fronts, k)
		} else {
			f.route.Store(to)
		}
	}
	for k, to := range routes {
		p := places[k.addr.Addr()]
		switch {
		case p.err != nil:
			refuse(k, to, p.err.Error())
		case to.port.EndpointsUnknown:
			refuse(k, to, to.refusal())
		case to.refusal() == "" && r.fronts[k] == nil:
			missing = append(missing, k)
		}
	}
	for k, made := range r.open(missing, places) {
		if made.err != nil {
			refuse(k, routes[k], listenReason(k, made.err))
			continue
		}
		made.front.route.Store(routes[k])
		r.fronts[k] = made.front
		come = append(come, made.front)
	}
	var failed atomic.Pointer[unix.Errno]
	used := make([]map[netip.Addr]bool, len(r.loops))
	r.everyLoop(func(l *loop) {
		n := l.number()
		for _, f := range gone {
			l.unlisten(f.listeners[n])
		}
		for _, f := range come {
			if e := l.watch(f.listeners[n]); e != noError {
				failed.Store(&e)
			}
		}
		l.revise()
		used[n] = l.dialled()
	})
	for _, f := range gone {
		r.free = append(r.free, f.index)
	}
	r.lingering = r.reacher.release(func(a netip.Addr) bool {
		p, ok := places[a]
		return ok && p.err == nil
	}, func(a netip.Addr) bool {
		return slices.ContainsFunc(used, func(in map[netip.Addr]bool) bool { return in[a] })
	})
	slices.SortFunc(unserved, compareUnserved)
	if e := failed.Load(); e != nil {
		return unserved, fmt.Errorf("watch a listening socket: %w", *e)
	}
	return unserved, nil
}

// vacant says of addresses whether nobody else has a port of them that is not listened on yet.
func (r *Relay) vacant(routes map[frontKey]*route) func(netip.Addr) error {
	of := make(map[netip.Addr][]frontKey)
	for k := range routes {
		of[k.addr.Addr()] = append(of[k.addr.Addr()], k)
	}
	return func(a netip.Addr) error {
		for _, k := range of[a] {
			if r.fronts[k] != nil {
				continue
			}
			fd, err := listen(k)
			if errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("a process of this node has port %d of %s on all addresses: clients of %s would get to that, so the address is left alone (another --reach, or another port for the process)", k.addr.Port(), k.protocol(), a)
			}
			if err == nil {
				closeFD(fd)
			}
		}
		return nil
	}
}

// addressesOf are those of all frontends, sorted.
func addressesOf(routes map[frontKey]*route) []netip.Addr {
	var out []netip.Addr
	for k := range routes {
		out = append(out, k.addr.Addr())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// sources are the addresses from which the node itself is to send to service addresses.
func sources(w Want) map[int]netip.Addr {
	out := make(map[int]netip.Addr)
	for _, sp := range w.Ports {
		if sp.NodeIP.IsValid() && !out[sp.Family].IsValid() {
			out[sp.Family] = sp.NodeIP
		}
	}
	return out
}

// opened is a frontend with its sockets, or why it has none.
type opened struct {
	front *front
	err   error
}

// open makes the sockets of frontends, each where its address is.
func (r *Relay) open(keys []frontKey, places map[netip.Addr]place) map[frontKey]opened {
	out := make(map[frontKey]opened, len(keys))
	one := func(k frontKey, in *room) {
		f := &front{key: k, room: in}
		for _, l := range r.loops {
			fd, err := listen(k)
			if err != nil {
				for _, x := range f.listeners {
					closeFD(x.fd)
				}
				out[k] = opened{err: err}
				return
			}
			f.listeners = append(f.listeners, &listener{front: f, fd: fd, loop: l})
		}
		if n := len(r.free); n > 0 {
			f.index = r.free[n-1]
			r.free = r.free[:n-1]
		} else {
			f.index = r.indexes
			r.indexes++
		}
		r.generation++
		for _, x := range f.listeners {
			x.generation = r.generation
		}
		out[k] = opened{front: f}
	}
	var inside []frontKey
	var in *room
	for _, k := range keys {
		if p := places[k.addr.Addr()]; p.room != nil {
			inside, in = append(inside, k), p.room
			continue
		}
		one(k, nil)
	}
	if len(inside) == 0 {
		return out
	}
	if err := in.do(func() error {
		for _, k := range inside {
			one(k, in)
		}
		return nil
	}); err != nil {
		for _, k := range inside {
			out[k] = opened{err: err}
		}
	}
	return out
}

// everyLoop runs something in all loops and waits until all have done it.
func (r *Relay) everyLoop(f func(*loop)) {
	var all sync.WaitGroup
	for _, l := range r.loops {
		all.Go(func() { l.ask(func() { f(l) }) })
	}
	all.Wait()
}

// Lingering is the number of addresses that nobody wants any more and that are kept for connections that still use them.
// An update lets those go that are not used by then.
func (r *Relay) Lingering() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lingering
}

// number is the loop's place among those of the relay.
func (l *loop) number() int { return slices.Index(l.relay.loops, l) }

// Active is the number of TCP connections and UDP sessions at this moment.
func (r *Relay) Active() (connections, sessions int) {
	return int(r.totals[protocolTCP].active.Load()), int(r.totals[protocolUDP].active.Load())
}

// Drain stops to take new clients and waits until the last connection has ended, or ctx is done. Sessions of UDP have
// no end of their own; they are not waited for.
func (r *Relay) Drain(ctx context.Context) {
	r.mu.Lock()
	gone := r.fronts
	r.fronts = make(map[frontKey]*front)
	r.everyLoop(func(l *loop) {
		for _, f := range gone {
			l.unlisten(f.listeners[l.number()])
		}
		l.revise()
	})
	r.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, _ := r.Active(); n == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close ends all connections and the relay.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	gone := r.fronts
	r.fronts = make(map[frontKey]*front)
	r.everyLoop(func(l *loop) {
		for _, f := range gone {
			l.unlisten(f.listeners[l.number()])
		}
		l.conns.each(0, len(l.conns.blocks), func(c *conn) { l.finish(c, c.state == dialling) })
		l.open.each(0, len(l.open.blocks), func(s *session) { l.endSession(s) })
		if l.starved.reserve > 0 {
			closeFD(l.starved.reserve)
		}
		l.stopped = true
	})
	for _, l := range r.loops {
		<-l.done
	}
	r.reacher.close()
}
