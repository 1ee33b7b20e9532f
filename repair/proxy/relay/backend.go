package relay

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// backend is one address that connections are made to, and what is remembered of it. It is the same for all Services
// that have it, for all loops, and from one update to the next.
type backend struct {
	addr netip.AddrPort
	udp  bool
	// sock is the address as the kernel takes it.
	sock sockaddr
	// failures counts the attempts that failed in a row, retryAt is when the next may be made, in nanoseconds of the
	// relay's clock; 0: nothing is held against it.
	failures atomic.Int32
	retryAt  atomic.Int64
	active   atomic.Int64
	// own: the relay itself listens there, so that a connection would go round in a circle.
	own atomic.Bool
}

// After a failure a backend is left alone for firstRest, after each further one twice as long, up to longestRest; then
// one connection may try it, and what becomes of that decides for the others.
const (
	firstRest   = time.Second
	longestRest = 30 * time.Second
)

// usable says whether a connection may be made now. Where a rest is over it says so to one that asks; trial is then how
// long the others wait for what becomes of it.
func (b *backend) usable(now int64, trial time.Duration) bool {
	at := b.retryAt.Load()
	if at == 0 {
		return true
	}
	if now < at {
		return false
	}
	return b.retryAt.CompareAndSwap(at, now+int64(trial))
}

// resting says whether something is held against the backend, without asking for a trial.
func (b *backend) resting() bool { return b.retryAt.Load() != 0 }

// answered forgets failures. It says whether there were any.
func (b *backend) answered() bool {
	if b.retryAt.Load() == 0 {
		return false
	}
	b.failures.Store(0)
	b.retryAt.Store(0)
	return true
}

// failed remembers a failure. It says whether it is the first one.
func (b *backend) failed(now int64) bool {
	n := b.failures.Add(1)
	rest := longestRest
	if n < 6 {
		rest = min(longestRest, firstRest<<(n-1))
	}
	b.retryAt.Store(now + int64(rest))
	return n == 1
}
