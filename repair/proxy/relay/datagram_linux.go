package relay

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// session is one client of a UDP frontend: its datagrams go to one backend, from a socket of the session's own, and what
// comes back there goes to the client.
type session struct {
	index, generation uint32
	fd                int32
	// answered: the backend has sent something.
	answered bool
	key      sessionKey
	front    *listener
	route    *route
	backend  *backend
	client   sockaddr
	used     int64
	list     links[session]
}

func (s *session) links() *links[session] { return &s.list }

type sessionKey struct {
	front  uint32
	client netip.AddrPort
}

// sessions are those of one loop. asking and talking hold them by last use: those that the backend has not answered, and
// the others.
type sessions struct {
	open            slab[session]
	byClient        map[sessionKey]*session
	asking, talking list[session]
	batch           *batch
}

func (s *sessions) init() { s.byClient = make(map[sessionKey]*session) }

// next is when the next session is over, 0 for never.
func (s *sessions) next(o *Options) int64 {
	var at int64
	if x := s.asking.first; x != nil {
		at = x.used + int64(o.UnansweredUDP)
	}
	if x := s.talking.first; x != nil {
		if t := x.used + int64(o.IdleUDP); at == 0 || t < at {
			at = t
		}
	}
	return at
}

// batch is what datagrams are read into, some at once.
type batch struct {
	messages [batchSize]message
	vectors  [batchSize]unix.Iovec
	from     [batchSize]sockaddr
	data     []byte
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	n      uint32
}

const (
	batchSize    = 32
	datagramSize = 64 << 10
	// batchesAtOnce bounds what one event of a frontend takes, answersAtOnce what one of a session does.
	batchesAtOnce, answersAtOnce = 8, 32
)

func newBatch() *batch {
	b := &batch{data: make([]byte, batchSize*datagramSize)}
	for i := range b.messages {
		b.vectors[i].Base = &b.data[i*datagramSize]
		b.vectors[i].SetLen(datagramSize)
		h := &b.messages[i].header
		h.Name = &b.from[i].raw[0]
		h.Iov = &b.vectors[i]
		h.SetIovlen(1)
	}
	return b
}

// receive reads some datagrams.
func (b *batch) receive(fd int) (int, unix.Errno) {
	for i := range b.messages {
		b.messages[i].header.Namelen = uint32(len(b.from[i].raw))
	}
	n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages)), batchSize, unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// datagrams passes on what clients sent to a frontend.
func (l *loop) datagrams(f *listener) {
	if l.batch == nil {
		l.batch = newBatch()
	}
	b := l.batch
	for range batchesAtOnce {
		n, e := b.receive(f.fd)
		if e == unix.EINTR || e == unix.ECONNREFUSED {
			continue // an error of an earlier answer: its client is gone
		}
		if e != noError || n <= 0 {
			return
		}
		for i := range b.messages[:n] {
			m := &b.messages[i]
			b.from[i].len = m.header.Namelen
			l.forward(f, &b.from[i], b.data[i*datagramSize:][:m.n])
		}
		if n < batchSize {
			return
		}
	}
}

// forward passes on one datagram of a client.
func (l *loop) forward(f *listener, from *sockaddr, data []byte) {
	key := sessionKey{f.index, from.addrPort()}
	s := l.byClient[key]
	for try := 0; ; try++ {
		if s == nil {
			if s = l.beginSession(f, key, from); s == nil {
				return
			}
		}
		_, e := send(int(s.fd), data)
		switch e {
		case noError:
			l.touch(s)
			for _, c := range []*counts{&l.relay.totals[protocolUDP], &s.route.service.counts} {
				c.datagramsToBackends.Add(1)
				c.toBackends.Add(uint64(len(data)))
			}
			return
		case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN:
			// What an earlier datagram met. Nobody listens at the backend: another one gets this datagram.
			l.blame(s.backend, e)
			l.endSession(s)
			if s = nil; try >= l.relay.o.Attempts {
				return
			}
		default:
			// EAGAIN, ENOBUFS: no room. EMSGSIZE: too long. It is lost, as datagrams may be.
			return
		}
	}
}

// beginSession makes a session for a client; nil when it gets none.
func (l *loop) beginSession(f *listener, key sessionKey, from *sockaddr) *session {
	r := f.route.Load()
	total, service := &l.relay.totals[protocolUDP], &r.service.counts
	refuse := func(why refusal) *session {
		total.refused[why].Add(1)
		service.refused[why].Add(1)
		return nil
	}
	v := r.verdict(key.client.Addr())
	if len(v.targets) == 0 {
		return refuse(refusedByPolicy)
	}
	if !admit(total, service, int64(l.relay.limits.sessions), int64(l.relay.o.MaxPerService)) {
		if !l.makeRoom() || !admit(total, service, int64(l.relay.limits.sessions), int64(l.relay.o.MaxPerService)) {
			return refuse(refusedOverLimit)
		}
	}
	release := func() {
		total.active.Add(-1)
		service.active.Add(-1)
	}
	var tried []*backend
	for len(tried) < l.relay.o.Attempts {
		b := r.choose(v, key.client.Addr(), tried, l.now, l.relay.o.ConnectTimeout)
		if b == nil {
			break
		}
		if len(tried) > 0 {
			total.retried.Add(1)
			service.retried.Add(1)
		}
		fd, e := socket(b.sock.family(), unix.SOCK_DGRAM)
		if e != noError {
			release()
			return refuse(refusedNoSocket)
		}
		if e = connect(fd, &b.sock); e != noError {
			closeFD(fd)
			l.blame(b, e)
			tried = append(tried, b)
			continue
		}
		s, index, generation := l.open.take()
		if s == nil || epollAdd(l.ep, fd, unix.EPOLLIN, tag(tagSession, index, generation)) != noError {
			if s != nil {
				l.open.give(index)
			}
			closeFD(fd)
			release()
			return refuse(refusedNoSocket)
		}
		total.opened.Add(1)
		service.opened.Add(1)
		b.active.Add(1)
		s.index, s.generation, s.fd = index, generation, int32(fd)
		s.key, s.front, s.route, s.backend, s.client = key, f, r, b, *from
		s.used = l.now
		l.byClient[key] = s
		add(&l.asking, s)
		return s
	}
	release()
	return refuse(refusedNoBackend)
}

// touch notes that a session is used.
func (l *loop) touch(s *session) {
	s.used = l.now
	in := &l.asking
	if s.answered {
		in = &l.talking
	}
	if in.last != s {
		remove(in, s)
		add(in, s)
	}
}

// answers passes on what a backend sent to the client of a session.
func (l *loop) answers(s *session, ev uint32) {
	if ev&unix.EPOLLERR != 0 {
		if e := pendingError(int(s.fd)); e != noError {
			l.blame(s.backend, e)
			l.endSession(s)
			return
		}
	}
	var datagrams, bytes uint64
	for range answersAtOnce {
		n, e := receive(int(s.fd), l.buffer)
		if e != noError {
			if e != unix.EAGAIN && e != unix.EINTR {
				l.blame(s.backend, e)
				l.endSession(s)
				return
			}
			break
		}
		datagrams++
		bytes += uint64(n)
		// Where there is no room, or the client is gone, the answer is lost, as datagrams may be.
		_, _ = sendTo(s.front.fd, l.buffer[:n], &s.client)
		if !s.answered {
			remove(&l.asking, s)
			s.answered = true
			add(&l.talking, s)
			s.backend.answered()
		}
	}
	if datagrams > 0 {
		l.touch(s)
		for _, c := range []*counts{&l.relay.totals[protocolUDP], &s.route.service.counts} {
			c.datagramsToClients.Add(datagrams)
			c.toClients.Add(bytes)
		}
	}
}

func (l *loop) endSession(s *session) {
	in := &l.asking
	if s.answered {
		in = &l.talking
	}
	remove(in, s)
	delete(l.byClient, s.key)
	closeFD(int(s.fd))
	s.backend.active.Add(-1)
	l.relay.totals[protocolUDP].active.Add(-1)
	s.route.service.counts.active.Add(-1)
	l.open.give(s.index)
}

// expire ends sessions that nobody used for long.
func (l *loop) expire() {
	for s := l.asking.first; s != nil && l.now-s.used >= int64(l.relay.o.UnansweredUDP); s = l.asking.first {
		l.endSession(s)
	}
	for s := l.talking.first; s != nil && l.now-s.used >= int64(l.relay.o.IdleUDP); s = l.talking.first {
		l.endSession(s)
	}
}

// makeRoom ends a session of this loop when there are too many. It says whether there was one. A session that nobody
// answers has a moment, then it goes first; before that, one that had its answer and is not used for longest: if it is
// used again its client gets another one.
func (l *loop) makeRoom() bool {
	s := l.asking.first
	if t := l.talking.first; t != nil && (s == nil || l.now-s.used < roomAfter) {
		s = t
	}
	if s == nil {
		return false
	}
	l.endSession(s)
	return true
}

// roomAfter is how long a session waits for an answer before others may have its place, in nanoseconds.
const roomAfter = 2e9

// revise ends the sessions whose backend is not to be used any more, after an update.
func (l *loop) revise() {
	l.open.each(0, len(l.open.blocks), func(s *session) {
		if r := s.front.route.Load(); r == nil || s.front.closed || r != s.route && !r.serving(s.backend) {
			l.endSession(s)
		} else {
			if r.service != s.route.service {
				s.route.service.counts.active.Add(-1)
				r.service.counts.active.Add(1)
			}
			s.route = r
		}
	})
}
