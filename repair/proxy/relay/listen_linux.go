package relay

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// front is a frontend that is listened on: a socket in every loop.
type front struct {
	key       frontKey
	room      *room // where its sockets are; nil: on the node
	index     uint32
	route     atomic.Pointer[route]
	listeners []*listener
}

// listener is the socket of a frontend in one loop.
type listener struct {
	*front
	generation uint32
	fd         int
	loop       *loop
	// closed, resting: it is not watched any more, or not for a moment.
	closed, resting bool
}

// backlog is how many connections the kernel keeps for a listener until they are accepted; it takes no more than
// net.core.somaxconn.
const backlog = 4096

// listen makes a socket that listens on an address. An address that is not the node's yet is no error.
func listen(k frontKey) (int, error) {
	sa := sockaddrOf(k.addr)
	kind := unix.SOCK_STREAM
	if k.udp {
		kind = unix.SOCK_DGRAM
	}
	fd, e := socket(sa.family(), kind)
	if e != noError {
		return -1, fmt.Errorf("socket: %w", e)
	}
	fail := func(what string, e error) (int, error) {
		closeFD(fd)
		return -1, fmt.Errorf("%s %s: %w", what, k.addr, e)
	}
	options := []struct {
		level, option int
		value         int32
	}{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
	}
	if k.addr.Addr().Is6() {
		options = append(options, []struct {
			level, option int
			value         int32
		}{{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}, {unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1}}...)
	} else {
		options = append(options, struct {
			level, option int
			value         int32
		}{unix.IPPROTO_IP, unix.IP_FREEBIND, 1})
	}
	for _, o := range options {
		if e := setInt(fd, o.level, o.option, o.value); e != noError {
			return fail("prepare a socket for", e)
		}
	}
	if !k.udp {
		// Accepted sockets inherit these.
		_ = setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		keepAlive(fd)
	} else {
		if setInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramQueue) != noError {
			_ = setInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, datagramQueue)
		}
		// Answers may be fragmented on their way: the way here may be wider than the one from the node to the client.
		if k.addr.Addr().Is4() {
			_ = setInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		}
	}
	if err := bind(fd, &sa); err != noError {
		return fail("listen on", err)
	}
	if !k.udp {
		if err := unix.Listen(fd, backlog); err != nil {
			return fail("listen on", err)
		}
	}
	return fd, nil
}

// datagramQueue is what the kernel keeps of datagrams that were not read yet, in bytes.
const datagramQueue = 4 << 20

// watch has the loop take connections, or datagrams, of a listener.
func (l *loop) watch(f *listener) unix.Errno {
	for int(f.index) >= len(l.fronts) {
		l.fronts = append(l.fronts, nil)
	}
	l.fronts[f.index] = f
	what := tagListener
	if f.key.udp {
		what = tagDatagrams
	}
	return epollAdd(l.ep, f.fd, unix.EPOLLIN, tag(what, f.index, f.generation))
}

// listener is that of an event; nil where it is closed already.
func (l *loop) listener(index, generation uint32) *listener {
	if int(index) >= len(l.fronts) {
		return nil
	}
	if f := l.fronts[index]; f != nil && f.generation == generation && !f.closed {
		return f
	}
	return nil
}

// unlisten closes a listener. Connections that wait there are taken first.
func (l *loop) unlisten(f *listener) {
	if f.closed {
		return
	}
	for turns, more := 0, !f.key.udp; more && turns < backlog/acceptsAtOnce; turns++ {
		more = l.accept(f)
	}
	f.closed = true
	epollDel(l.ep, f.fd)
	closeFD(f.fd)
	if l.fronts[f.index] == f {
		l.fronts[f.index] = nil
	}
}

// starved are the listeners that rest because there are no more files or memory for their connections.
type starved struct {
	until   int64
	resting []*listener
	// reserve is a file that is there to be closed, so that one connection can be taken and refused; 0: none.
	reserve int
}

// starvedFor is how long a listener rests. Until then connections wait in the kernel, as many as it keeps.
const starvedFor = 100 * time.Millisecond

// starve refuses the connections that wait at a listener and lets it rest: an event that cannot be answered would come
// again and again.
func (l *loop) starve(f *listener, e unix.Errno) {
	if l.starved.reserve > 0 {
		closeFD(l.starved.reserve)
		var from sockaddr
		for range acceptsAtOnce {
			fd, e := accept4(f.fd, &from)
			if e != noError {
				break
			}
			resetFD(fd)
			l.relay.totals[protocolTCP].refused[refusedNoSocket].Add(1)
			f.route.Load().service.counts.refused[refusedNoSocket].Add(1)
		}
		l.starved.reserve = reserve()
	}
	if f.resting || f.closed {
		return
	}
	if l.starved.until == 0 {
		l.starved.until = l.now + int64(starvedFor)
		l.relay.starving(e)
	}
	f.resting = true
	epollDel(l.ep, f.fd)
	l.starved.resting = append(l.starved.resting, f)
}

// feed ends the rest.
func (l *loop) feed() {
	again := l.starved.resting
	l.starved.until, l.starved.resting = 0, nil
	if l.starved.reserve <= 0 {
		l.starved.reserve = reserve()
	}
	for _, f := range again {
		f.resting = false
		if f.closed {
			continue
		}
		if e := l.watch(f); e != noError {
			f.resting = true
			l.starved.resting = append(l.starved.resting, f)
			l.starved.until = l.now + int64(starvedFor)
		}
	}
}

func reserve() int {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	return fd
}

func bind(fd int, to *sockaddr) unix.Errno {
	var sa unix.Sockaddr
	a := to.addrPort()
	if to.family() == unix.AF_INET {
		sa = &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	} else {
		sa = &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return errnoOf(err)
	}
	return noError
}

// listenReason says why an address cannot be listened on, in words.
func listenReason(k frontKey, err error) string {
	switch errnoOf(err) {
	case unix.EADDRINUSE:
		return fmt.Sprintf("another process listens on port %d of every address, or of this one: %s", k.addr.Port(), err)
	case unix.EADDRNOTAVAIL:
		return "the node does not have this address"
	}
	return err.Error()
}
