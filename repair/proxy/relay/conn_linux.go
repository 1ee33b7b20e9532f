package relay

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a TCP connection: that of a client and that to a backend.
type conn struct {
	half              [2]half
	index, generation uint32
	state             connState
	// waits: the client is asked whether it takes more. keptAlive: the backend is asked whether it is still there.
	waits, keptAlive bool
	service          *service
	backend          *backend
	client           netip.AddrPort
	dialled          netip.Addr // by the client
	// route and verdict are there until the connection opens: they hold much that an update replaces.
	route   *route
	verdict *verdict
	tried   []*backend
	// since is when the backend was dialled or the connection opened, moved when data last went through.
	since, moved int64
	// bytes by direction that are not in the counts yet.
	bytes [2]uint64
	list  links[conn]
}

func (c *conn) links() *links[conn] { return &c.list }

type connState uint8

const (
	dialling connState = iota
	open
)

// The two ends of a connection.
const (
	client = 0
	server = 1
)

// half is one end of a connection, with what was read from it and is not at the other end yet.
type half struct {
	fd int32
	// readable: there may be something to read. over: the end or an error is behind what can be read. eof: it was read.
	readable, over, eof bool
	// shut: this end was told that nothing more comes. blocked: it takes nothing at the moment. dead: it will take nothing
	// any more; what it sent before is still passed on.
	shut, blocked, dead bool
	splices             bool
	// full counts reads in a row that filled the buffer; when splicing, thin counts those that were small.
	full, thin uint8
	held       []byte // part of whole
	whole      []byte
	pipe       *pipe
}

// What is waited for. A client that takes everything is never asked whether it takes more: every state that an end is in
// comes with every event, and each event costs.
const (
	clientEvents  = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	backendEvents = clientEvents | unix.EPOLLOUT
)

const (
	// acceptsAtOnce is how many connections one event takes before others get their turn.
	acceptsAtOnce = 32
	// turnBytes is what one direction of a connection moves before others get their turn.
	turnBytes = 1 << 20
	// After fullReads reads that filled the buffer data is spliced, after thinSplices that moved less than thinSplice it
	// is copied again.
	fullReads, thinSplices, thinSplice = 2, 16, 8 << 10
)

// accept takes connections that wait at a listener. It says whether there may be more.
func (l *loop) accept(f *listener) bool {
	var from sockaddr
	for range acceptsAtOnce {
		fd, e := accept4(f.fd, &from)
		switch e {
		case noError:
			l.begin(f, fd, from.addrPort())
		case unix.EAGAIN:
			return false
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.starve(f, e)
			return false
		default:
			// The connection is gone already, or the network is: ECONNABORTED, EINTR, EPROTO, ENETDOWN, EPERM…
		}
	}
	return true
}

// begin takes a connection on.
func (l *loop) begin(f *listener, fd int, from netip.AddrPort) {
	r := f.route.Load()
	total, service := &l.relay.totals[protocolTCP], &r.service.counts
	refuse := func(why refusal) {
		resetFD(fd)
		total.refused[why].Add(1)
		service.refused[why].Add(1)
	}
	v := r.verdict(from.Addr())
	if len(v.targets) == 0 {
		refuse(refusedByPolicy)
		return
	}
	if !admit(total, service, int64(l.relay.limits.connections), int64(l.relay.o.MaxPerService)) {
		refuse(refusedOverLimit)
		return
	}
	c, index, generation := l.conns.take()
	if c == nil || epollAdd(l.ep, fd, clientEvents, tag(tagClient, index, generation)) != noError {
		if c != nil {
			l.conns.give(index)
		}
		total.active.Add(-1)
		service.active.Add(-1)
		refuse(refusedNoSocket)
		return
	}
	total.opened.Add(1)
	service.opened.Add(1)
	c.index, c.generation = index, generation
	c.service, c.route, c.verdict, c.client, c.dialled = r.service, r, v, from, r.front.Addr
	c.half[client].fd, c.half[server].fd = int32(fd), -1
	c.half[client].readable = true
	l.dial(c)
}

// admit counts a connection or session as active, unless there are too many.
func admit(total, service *counts, most, mostOfService int64) bool {
	if total.active.Add(1) > most {
		total.active.Add(-1)
		return false
	}
	if n := service.active.Add(1); mostOfService > 0 && n > mostOfService {
		service.active.Add(-1)
		total.active.Add(-1)
		return false
	}
	return true
}

// dial begins a connection to a backend, the next one where one was tried. Where none is left the client is reset.
func (l *loop) dial(c *conn) {
	c.state = dialling
	for len(c.tried) < l.relay.o.Attempts {
		b := c.route.choose(c.verdict, c.client.Addr(), c.tried, l.now, 2*l.relay.o.ConnectTimeout)
		if b == nil {
			break
		}
		if len(c.tried) > 0 {
			l.relay.totals[protocolTCP].retried.Add(1)
			c.service.counts.retried.Add(1)
		}
		fd, e := socket(b.sock.family(), unix.SOCK_STREAM)
		if e != noError {
			l.giveUp(c, refusedNoSocket)
			return
		}
		_ = setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if e = connect(fd, &b.sock); e == noError || e == unix.EINPROGRESS {
			if e = epollAdd(l.ep, fd, backendEvents, tag(tagBackend, c.index, c.generation)); e == noError {
				c.half[server].fd = int32(fd)
				c.backend = b
				c.since = l.now
				b.active.Add(1)
				add(&l.connecting, c)
				return
			}
			closeFD(fd)
			l.giveUp(c, refusedNoSocket)
			return
		}
		closeFD(fd)
		l.blame(b, e)
		c.tried = append(c.tried, b)
	}
	l.giveUp(c, refusedNoBackend)
}

// blame remembers that a backend did not take a connection, where that is a matter of the backend or the way to it.
func (l *loop) blame(b *backend, e unix.Errno) {
	switch e {
	case unix.EADDRNOTAVAIL, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return // no port or memory is left here
	}
	if b.failed(l.now) {
		l.relay.o.Log(fmt.Sprintf("backend %s does not answer: %s; others are used where there are any, and it is tried again", b.addr, e))
	}
}

// giveUp ends a connection that has no backend.
func (l *loop) giveUp(c *conn, why refusal) {
	l.relay.totals[protocolTCP].refused[why].Add(1)
	c.service.counts.refused[why].Add(1)
	l.finish(c, true)
}

// refusedBy is called when the backend that was dialled does not take the connection.
func (l *loop) refusedBy(c *conn, e unix.Errno) {
	remove(&l.connecting, c)
	b := c.backend
	closeFD(int(c.half[server].fd))
	c.half[server] = half{fd: -1}
	b.active.Add(-1)
	c.backend = nil
	l.blame(b, e)
	c.tried = append(c.tried, b)
	l.dial(c)
}

// handle is an event of one end.
func (l *loop) handle(c *conn, end int, ev uint32) {
	h := &c.half[end]
	if ev&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		h.readable = true
		if ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			h.over = true
		}
	}
	if c.state == dialling {
		switch {
		case end == client && ev&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
			l.finish(c, true) // nobody waits for the backend any more
		case end == client:
		case ev&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
			e := pendingError(int(h.fd))
			if e == noError {
				e = unix.ECONNRESET
			}
			l.refusedBy(c, e)
		case ev&unix.EPOLLOUT != 0:
			l.established(c)
		}
		return
	}
	if ev&unix.EPOLLERR != 0 && h.eof {
		l.breakOff(c) // a reset after the end
		return
	}
	if h.blocked && ev&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		h.blocked = false
		if !l.pump(c, 1-end) {
			return
		}
	}
	if h.readable {
		l.pump(c, end)
	}
}

// established is called when the backend has taken the connection.
func (l *loop) established(c *conn) {
	remove(&l.connecting, c)
	c.tried = nil
	if c.backend.answered() {
		l.relay.o.Log(fmt.Sprintf("backend %s answers again", c.backend.addr))
	}
	c.state = open
	c.since, c.moved = l.now, l.now
	if v := c.route.header; v != NoHeader {
		var room [longestHeader]byte
		dialled := netip.AddrPortFrom(c.route.front.Addr, uint16(c.route.front.Port))
		h := v.append(room[:0], c.client, dialled)
		// The first bytes of a connection always fit in its buffer.
		if n, e := send(int(c.half[server].fd), h); e != noError || n != len(h) {
			l.breakOff(c)
			return
		}
	}
	c.route, c.verdict = nil, nil
	if l.pump(c, client) && c.half[server].readable {
		l.pump(c, server)
	}
}

// pump passes on what one end sends until there is nothing more to read, the other end takes no more, or it was enough
// for one turn. It returns false when the connection is over.
func (l *loop) pump(c *conn, end int) bool {
	from, to := &c.half[end], &c.half[1-end]
	for moved := 0; ; {
		if to.blocked || to.dead {
			return true
		}
		if len(from.held) > 0 || from.pipe != nil && from.pipe.n > 0 {
			switch e := l.flush(from, to); e {
			case noError:
			case unix.EAGAIN:
				l.block(c, 1-end)
				return true
			default:
				return l.takesNoMore(c, 1-end)
			}
		}
		switch {
		case from.eof:
			return l.end(c, end)
		case !from.readable:
			if from.pipe != nil {
				l.pipes.give(from.pipe)
				from.pipe = nil
			}
			return true
		case moved >= turnBytes:
			l.unfinished = append(l.unfinished, turn{c, c.generation, end})
			return true
		}
		var n int
		var e unix.Errno
		if from.splices {
			n, e = l.fill(from)
		} else {
			n, e = receive(int(from.fd), l.buffer)
		}
		switch {
		case n > 0 && e == noError:
			moved += n
			c.bytes[end] += uint64(n)
			c.moved = l.now
			if from.splices {
				continue
			}
			from.judge(n, len(l.buffer))
			m, e := send(int(to.fd), l.buffer[:n])
			if e != noError {
				if e != unix.EAGAIN {
					return l.takesNoMore(c, 1-end)
				}
				m = 0
			}
			if m < n {
				l.hold(from, l.buffer[m:n])
				l.block(c, 1-end)
				return true
			}
		case e == unix.EAGAIN:
			from.readable = false
		case e == unix.EINTR:
		case e == noError:
			from.eof, from.readable = true, false
			if from.dead {
				l.breakOff(c)
				return false
			}
		default:
			l.breakOff(c)
			return false
		}
	}
}

// block notes that an end takes nothing at the moment.
func (l *loop) block(c *conn, end int) {
	h := &c.half[end]
	h.blocked = true
	if end == client && !c.waits {
		// From now on its events come with whether it takes more; the first one comes at once if it does already.
		c.waits = true
		_ = epollControl(l.ep, unix.EPOLL_CTL_MOD, int(h.fd), backendEvents, tag(tagClient, c.index, c.generation))
	}
}

// judge looks at how much a read gave. One that did not fill the buffer emptied the socket: the next event tells of more,
// and it need not be asked. Reads that fill it again and again are of a transfer that is better spliced.
func (h *half) judge(n, room int) {
	if n < room {
		h.full = 0
		if !h.over {
			h.readable = false
		}
		return
	}
	if h.full++; h.full >= fullReads {
		h.splices, h.full, h.thin = true, 0, 0
	}
}

// fill splices from an end into its pipe, which is empty.
func (l *loop) fill(h *half) (int, unix.Errno) {
	if h.pipe == nil {
		if h.pipe = l.pipes.take(); h.pipe == nil {
			h.splices = false
			return 0, unix.EINTR // try again, by copying
		}
	}
	n, e := splice(int(h.fd), h.pipe.w, h.pipe.size)
	if e == unix.EINVAL {
		h.splices = false
		return 0, unix.EINTR
	}
	if e != noError || n <= 0 {
		return 0, e
	}
	h.pipe.n = n
	if n >= thinSplice {
		h.thin = 0
	} else if h.thin++; h.thin >= thinSplices {
		h.splices = false
	}
	return n, noError
}

// flush passes on what was read before. EAGAIN: some of it is left.
func (l *loop) flush(from, to *half) unix.Errno {
	for len(from.held) > 0 {
		n, e := send(int(to.fd), from.held)
		if e != noError {
			return e
		}
		from.held = from.held[n:]
	}
	if from.whole != nil {
		l.keep(from.whole)
		from.whole, from.held = nil, nil
	}
	if p := from.pipe; p != nil {
		for p.n > 0 {
			n, e := splice(p.r, int(to.fd), p.n)
			if e != noError {
				return e
			}
			p.n -= n
		}
	}
	return noError
}

// hold keeps what could not be passed on, until it can be. Little takes little: a client that reads slowly need not cost
// a whole buffer.
func (l *loop) hold(from *half, b []byte) {
	switch n := len(l.spare); {
	case len(b) <= bufferSize/4:
		from.whole = make([]byte, len(b))
	case n > 0:
		from.whole = l.spare[n-1]
		l.spare = l.spare[:n-1]
	default:
		from.whole = make([]byte, bufferSize)
	}
	from.held = from.whole[:copy(from.whole, b)]
}

// keep has a buffer used again.
func (l *loop) keep(b []byte) {
	if len(b) == bufferSize && len(l.spare) < keptBuffers {
		l.spare = append(l.spare, b)
	}
}

// keptBuffers is the number of unused buffers that a loop keeps.
const keptBuffers = 64

// end passes on that an end sends nothing more. The connection is over when both have said so.
func (l *loop) end(c *conn, end int) bool {
	to := &c.half[1-end]
	if to.eof && len(to.held) == 0 && (to.pipe == nil || to.pipe.n == 0) {
		l.finish(c, false)
		return false
	}
	if !to.shut {
		to.shut = true
		shutdownWrite(int(to.fd))
	}
	return true
}

// takesNoMore is called when an end refuses data: it has reset the connection, or closed it. What it sent before is
// passed on, then the other end is told.
func (l *loop) takesNoMore(c *conn, end int) bool {
	h, other := &c.half[end], &c.half[1-end]
	if other.dead || h.eof {
		l.breakOff(c)
		return false
	}
	h.dead, h.readable, h.over = true, true, true
	return l.pump(c, end)
}

// breakOff resets both ends.
func (l *loop) breakOff(c *conn) {
	l.relay.totals[protocolTCP].reset.Add(1)
	c.service.counts.reset.Add(1)
	l.finish(c, true)
}

// finish closes a connection and forgets it.
func (l *loop) finish(c *conn, reset bool) {
	remove(&l.connecting, c)
	for i := range c.half {
		h := &c.half[i]
		if h.fd >= 0 {
			if reset {
				resetFD(int(h.fd))
			} else {
				closeFD(int(h.fd))
			}
		}
		l.keep(h.whole)
		if h.pipe != nil {
			l.pipes.give(h.pipe)
		}
	}
	l.count(c)
	if c.backend != nil {
		c.backend.active.Add(-1)
	}
	l.relay.totals[protocolTCP].active.Add(-1)
	c.service.counts.active.Add(-1)
	l.conns.give(c.index)
}

// count adds the bytes of a connection to the counts.
func (l *loop) count(c *conn) {
	for _, to := range []*counts{&l.relay.totals[protocolTCP], &c.service.counts} {
		if n := c.bytes[client]; n > 0 {
			to.toBackends.Add(n)
		}
		if n := c.bytes[server]; n > 0 {
			to.toClients.Add(n)
		}
	}
	c.bytes = [2]uint64{}
}

// sweep is a slow walk over all connections of a loop: every second some of them, all within sweepParts seconds.
type sweep struct {
	next int64
	part int
}

const (
	sweepParts = 16
	// A connection that is older than this has its backend asked whether it is still there, as clients are from the
	// beginning (listening sockets hand that down).
	keepAliveAfter = 10 * time.Second
)

func (l *loop) sweepConns() {
	l.sweep.next = l.now + int64(time.Second)
	n := len(l.conns.blocks)
	from, to := n*l.sweep.part/sweepParts, n*(l.sweep.part+1)/sweepParts
	l.sweep.part = (l.sweep.part + 1) % sweepParts
	l.conns.each(from, to, func(c *conn) {
		if c.state != open {
			return
		}
		l.count(c)
		if !c.keptAlive && l.now-c.since > int64(keepAliveAfter) {
			c.keptAlive = true
			keepAlive(int(c.half[server].fd))
		}
		idle := l.now - c.moved
		if idle > int64(l.relay.o.IdleTCP) || (c.half[client].eof || c.half[server].eof) && idle > int64(l.relay.o.HalfClosedTCP) {
			l.breakOff(c)
		}
	})
}

// keepAlive has the kernel ask a peer that says nothing: after keepAliveIdle, then keepAliveCount times, so that one that
// is gone is noticed within four minutes.
func keepAlive(fd int) {
	_ = setInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = setInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle)
	_ = setInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveInterval)
	_ = setInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount)
}

const keepAliveIdle, keepAliveInterval, keepAliveCount = 120, 20, 6

// dialled are the addresses that clients of open connections and sessions dialled.
func (l *loop) dialled() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool)
	l.conns.each(0, len(l.conns.blocks), func(c *conn) { out[c.dialled] = true })
	l.open.each(0, len(l.open.blocks), func(s *session) { out[s.route.front.Addr] = true })
	return out
}
