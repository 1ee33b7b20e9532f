package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// loop is one thread with an epoll instance. All of its fields but the commands and the flag are its own.
type loop struct {
	relay      *Relay
	ep, waker  int
	now        int64 // nanoseconds of the relay's clock, as of the last wait
	fronts     []*listener
	conns      slab[conn]
	connecting list[conn]
	// unfinished are connections that had more data than one turn gives them.
	unfinished []turn
	sweep      sweep
	pipes      pipes
	// buffer is what data is read into, spare are buffers for what could not be written at once.
	buffer []byte
	spare  [][]byte
	sessions
	starved starved

	mu       sync.Mutex
	commands []func()
	woken    atomic.Bool
	stopped  bool
	done     chan struct{}
}

// What an event is about: the low bits of its tag, above which is an index, and in the upper half a generation.
const (
	tagWake = iota
	tagListener
	tagClient
	tagBackend
	tagDatagrams
	tagSession
	tagBits = 3
)

func tag(what int, index, generation uint32) uint64 {
	return uint64(what) | uint64(index)<<tagBits&0xffffffff | uint64(generation)<<32
}

// maxIndex is the greatest index that a tag has room for.
const maxIndex = 1<<(32-tagBits) - 1

// bufferSize is what one read takes. More costs cache, less costs calls.
const bufferSize = 64 << 10

func newLoop(r *Relay) (*loop, error) {
	l := &loop{relay: r, buffer: make([]byte, bufferSize), done: make(chan struct{})}
	var err error
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(l.ep)
		return nil, err
	}
	if e := epollAdd(l.ep, l.waker, unix.EPOLLIN, tag(tagWake, 0, 0)); e != noError {
		unix.Close(l.ep)
		unix.Close(l.waker)
		return nil, e
	}
	l.sessions.init()
	l.pipes.init(r.limits.pipes)
	return l, nil
}

// tell has the loop run something, and does not wait for it. A loop that has stopped runs nothing.
func (l *loop) tell(f func()) {
	l.mu.Lock()
	l.commands = append(l.commands, f)
	l.mu.Unlock()
	if l.woken.CompareAndSwap(false, true) {
		one := [8]byte{1}
		if _, err := unix.Write(l.waker, one[:]); err != nil {
			l.relay.o.Log("wake an event loop: " + err.Error())
		}
	}
}

// ask has the loop run something and waits until it is done.
func (l *loop) ask(f func()) {
	ran := make(chan struct{})
	l.tell(func() { f(); close(ran) })
	select {
	case <-ran:
	case <-l.done:
	}
}

// run is the loop. It ends when a command sets stopped.
func (l *loop) run() {
	defer close(l.done)
	var events [256]unix.EpollEvent
	for !l.stopped {
		n := epollWait(l.ep, events[:], l.wait())
		l.now = l.relay.clock()
		for i := range events[:n] {
			l.event(tagOf(&events[i]), events[i].Events)
		}
		l.goOn()
		l.timers()
	}
	unix.Close(l.ep)
	unix.Close(l.waker)
	l.pipes.close()
}

func (l *loop) event(t uint64, ev uint32) {
	index, generation := uint32(t)>>tagBits, uint32(t>>32)
	switch t & (1<<tagBits - 1) {
	case tagWake:
		l.obey()
	case tagListener:
		if f := l.listener(index, generation); f != nil {
			l.accept(f)
		}
	case tagDatagrams:
		if f := l.listener(index, generation); f != nil {
			l.datagrams(f)
		}
	case tagClient:
		if c := l.conns.get(index, generation); c != nil {
			l.handle(c, client, ev)
		}
	case tagBackend:
		if c := l.conns.get(index, generation); c != nil {
			l.handle(c, server, ev)
		}
	case tagSession:
		if s := l.open.get(index, generation); s != nil {
			l.answers(s, ev)
		}
	}
}

// obey runs what the loop was told.
func (l *loop) obey() {
	var eight [8]byte
	if _, err := unix.Read(l.waker, eight[:]); err != nil && err != unix.EAGAIN {
		l.relay.o.Log("event loop: " + err.Error())
	}
	l.woken.Store(false)
	l.mu.Lock()
	todo := l.commands
	l.commands = nil
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// turn is one direction of a connection that has more to do.
type turn struct {
	c          *conn
	generation uint32
	from       int
}

// goOn gives every connection that had more to do another turn.
func (l *loop) goOn() {
	if len(l.unfinished) == 0 {
		return
	}
	todo := l.unfinished
	l.unfinished = nil
	for _, t := range todo {
		if t.c.generation == t.generation && t.c.state == open {
			l.pump(t.c, t.from)
		}
	}
	if l.unfinished == nil {
		l.unfinished = todo[:0]
	}
}

// wait is how long nothing has to be done without an event.
func (l *loop) wait() time.Duration {
	if len(l.unfinished) > 0 {
		return 0
	}
	at := int64(-1)
	until := func(t int64) {
		if t != 0 && (at < 0 || t < at) {
			at = t
		}
	}
	if c := l.connecting.first; c != nil {
		until(c.since + int64(l.relay.o.ConnectTimeout))
	}
	until(l.sessions.next(&l.relay.o))
	until(l.starved.until)
	if l.conns.used > 0 {
		until(l.sweep.next)
	}
	if at < 0 {
		return -1
	}
	return max(time.Millisecond, time.Duration(at-l.relay.clock()))
}

// timers does what is due.
func (l *loop) timers() {
	for c := l.connecting.first; c != nil && l.now-c.since >= int64(l.relay.o.ConnectTimeout); c = l.connecting.first {
		l.refusedBy(c, unix.ETIMEDOUT)
	}
	l.expire()
	if l.starved.until != 0 && l.now >= l.starved.until {
		l.feed()
	}
	if l.conns.used > 0 && l.now >= l.sweep.next {
		l.sweepConns()
	}
}

// slab holds things by index, in blocks that stay where they are. A thing that was given back gets another generation:
// events that are about its predecessor find nothing.
type slab[T any] struct {
	blocks [][]entry[T]
	free   []uint32
	used   int
}

const blockSize = 64

type entry[T any] struct {
	generation uint32
	used       bool
	value      T
}

// take gives a thing that is zero, its index and its generation; nil where there are too many.
func (s *slab[T]) take() (*T, uint32, uint32) {
	if len(s.free) == 0 {
		if len(s.blocks)*blockSize > maxIndex-blockSize {
			return nil, 0, 0
		}
		s.blocks = append(s.blocks, make([]entry[T], blockSize))
		last := uint32(len(s.blocks) * blockSize)
		for i := uint32(1); i <= blockSize; i++ {
			s.free = append(s.free, last-i)
		}
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	e := &s.blocks[i/blockSize][i%blockSize]
	e.used = true
	s.used++
	return &e.value, i, e.generation
}

func (s *slab[T]) get(index, generation uint32) *T {
	if int(index/blockSize) >= len(s.blocks) {
		return nil
	}
	e := &s.blocks[index/blockSize][index%blockSize]
	if !e.used || e.generation != generation {
		return nil
	}
	return &e.value
}

func (s *slab[T]) give(index uint32) {
	e := &s.blocks[index/blockSize][index%blockSize]
	var zero T
	e.value, e.used = zero, false
	e.generation++
	s.used--
	s.free = append(s.free, index)
}

// each calls f for the things of the blocks in [from, to). f may give the thing back.
func (s *slab[T]) each(from, to int, f func(*T)) {
	for _, block := range s.blocks[from:min(to, len(s.blocks))] {
		for i := range block {
			if block[i].used {
				f(&block[i].value)
			}
		}
	}
}

// list is a list of things in the order in which they were added.
type list[T any] struct{ first, last *T }

// links are what a thing in a list has in it.
type links[T any] struct {
	prev, next *T
	in         bool
}

// linked is a thing that can be in a list.
type linked[T any] interface {
	*T
	links() *links[T]
}

func add[T any, P linked[T]](l *list[T], x P) {
	k := x.links()
	k.prev, k.next, k.in = l.last, nil, true
	if l.last != nil {
		P(l.last).links().next = x
	} else {
		l.first = x
	}
	l.last = x
}

func remove[T any, P linked[T]](l *list[T], x P) {
	k := x.links()
	if !k.in {
		return
	}
	if k.prev != nil {
		P(k.prev).links().next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		P(k.next).links().prev = k.prev
	} else {
		l.last = k.prev
	}
	*k = links[T]{}
}
