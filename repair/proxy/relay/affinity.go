package relay

import (
	"net/netip"
	"sync"
	"time"
)

// maxAffinity bounds the clients that one service port remembers, as the sets of nftables mode do.
const maxAffinity = 65535

// affinity remembers which backend a client of one service port had (sessionAffinity ClientIP). As in kube-proxy each
// new connection starts the time anew.
type affinity struct {
	mu      sync.Mutex
	clients map[netip.Addr]*remembered
	// newest and oldest are the ends of the list of all by last use.
	newest, oldest *remembered
}

type remembered struct {
	client       netip.Addr
	backend      netip.AddrPort
	used         int64
	newer, older *remembered
}

// of is the backend that the client had within the timeout.
func (a *affinity) of(client netip.Addr, now int64, timeout time.Duration) (netip.AddrPort, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now, timeout)
	r, ok := a.clients[client]
	if !ok || now-r.used >= int64(timeout) {
		return netip.AddrPort{}, false
	}
	return r.backend, true
}

// remember notes the backend that the client has now.
func (a *affinity) remember(client netip.Addr, b netip.AddrPort, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clients == nil {
		a.clients = make(map[netip.Addr]*remembered)
	}
	r, ok := a.clients[client]
	switch {
	case ok:
		a.unlink(r)
	case len(a.clients) >= maxAffinity:
		r = a.oldest
		a.unlink(r)
		delete(a.clients, r.client)
		r.client = client
		a.clients[client] = r
	default:
		r = &remembered{client: client}
		a.clients[client] = r
	}
	r.backend, r.used = b, now
	r.older, r.newer = a.newest, nil
	if a.newest != nil {
		a.newest.newer = r
	} else {
		a.oldest = r
	}
	a.newest = r
}

// expire forgets a few of those whose time is over: as many as can have come since the last call, and more.
func (a *affinity) expire(now int64, timeout time.Duration) {
	for range 64 {
		r := a.oldest
		if r == nil || now-r.used < int64(timeout) {
			return
		}
		a.unlink(r)
		delete(a.clients, r.client)
	}
}

func (a *affinity) unlink(r *remembered) {
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		a.newest = r.older
	}
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		a.oldest = r.newer
	}
	r.newer, r.older = nil, nil
}

// size is the number of clients that are remembered.
func (a *affinity) size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.clients)
}
