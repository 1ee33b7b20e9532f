package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/repair/proxy/relay"
)

// soakEnv is for how long TestSoak goes on; 8 s when it is not set.
const soakEnv = "SVCNET_RELAY_SOAK"

// soaked is a backend that comes and goes: it listens or not, and Services list it or not.
type soaked struct {
	name string
	at   netip.AddrPort
	udp  net.PacketConn
	mu   sync.Mutex
	tcp  net.Listener
}

func (b *soaked) serve(t *testing.T) {
	l, err := net.Listen("tcp4", b.at.String())
	if err != nil {
		t.Errorf("backend %s: %v", b.name, err)
		return
	}
	b.mu.Lock()
	b.tcp = l
	b.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			go func() {
				defer shut(c)
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				_, _ = io.Copy(io.Discard, c)
				_, _ = io.WriteString(c, b.name)
			}()
		}
	}()
}

func (b *soaked) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	shut(b.tcp)
}

// TestSoak: Services, endpoints and backends change all the time, clients of every kind come and go. No client ever gets
// to a backend that its Service did not list while it connected; and at the end nothing is left: no connection, no file,
// no goroutine, no memory that grew.
func TestSoak(t *testing.T) {
	span := 8 * time.Second
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	const services, perService, enough = 6, 4, 300
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all [services][perService]*soaked
	for s := range all {
		for i := range all[s] {
			b := &soaked{name: fmt.Sprintf("%d/%d", s, i), at: local(freePort(t))}
			var err error
			if b.udp, err = net.ListenPacket("udp4", b.at.String()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { shut(b.udp) })
			go func() {
				buf := make([]byte, 2048)
				for {
					_, from, err := b.udp.ReadFrom(buf)
					if errors.Is(err, net.ErrClosed) {
						return
					}
					if err == nil {
						_, _ = b.udp.WriteTo([]byte(b.name), from)
					}
				}
			}()
			b.serve(t)
			t.Cleanup(b.die)
			all[s][i] = b
		}
	}
	var tcpAt, udpAt [services]netip.AddrPort
	for s := range services {
		tcpAt[s], udpAt[s] = local(freePort(t)), local(freePort(t))
	}
	r, err := relay.New(relay.Options{ConnectTimeout: 200 * time.Millisecond, UnansweredUDP: 300 * time.Millisecond, IdleUDP: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// listed holds, as bits, which backends a Service lists now or listed until a moment ago: what a connection may get
	// that was begun before a change and ends after it.
	var listed [services]atomic.Uint32
	var changing sync.RWMutex
	var updates atomic.Int64
	change := func(dice *rand.Rand) {
		var now [services]uint32
		var ports []*intent.ServicePort
		for s := range services {
			if dice.IntN(12) == 0 {
				continue // the Service is not there
			}
			var backends []netip.AddrPort
			for i, b := range all[s] {
				if dice.IntN(3) > 0 {
					now[s] |= 1 << i
					backends = append(backends, b.at)
				}
			}
			ports = append(ports, port("TCP", tcpAt[s], backends...), port("UDP", udpAt[s], backends...))
		}
		for s := range services {
			listed[s].Or(now[s])
		}
		if _, err := r.Update(relay.Want{Ports: ports}); err != nil {
			t.Errorf("update: %v", err)
		}
		updates.Add(1)
		// Whoever connected before the update has its answer when the lock is had.
		changing.Lock()
		for s := range services {
			listed[s].Store(now[s])
		}
		changing.Unlock()
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		dice := rand.New(rand.NewPCG(1, 1))
		for ctx.Err() == nil {
			change(dice)
			time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
		}
	})
	workers.Go(func() {
		dice := rand.New(rand.NewPCG(2, 2))
		for ctx.Err() == nil {
			b := all[dice.IntN(services)][dice.IntN(perService)]
			b.die()
			time.Sleep(time.Duration(dice.IntN(100)) * time.Millisecond)
			b.serve(t)
		}
	})
	var answered, refused, wrong, lost atomic.Int64
	check := func(s int, name string) {
		var of, i int
		if _, err := fmt.Sscanf(name, "%d/%d", &of, &i); err != nil || of != s || listed[s].Load()&(1<<i) == 0 {
			if wrong.Add(1) < 5 {
				t.Errorf("a client of Service %d got backend %q, listed are %04b", s, name, listed[s].Load())
			}
			return
		}
		answered.Add(1)
	}
	for k := range 6 {
		workers.Go(func() {
			dice := rand.New(rand.NewPCG(3, uint64(k)))
			for ctx.Err() == nil {
				s := dice.IntN(services)
				func() {
					changing.RLock()
					defer changing.RUnlock()
					if k < 4 {
						c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(tcpAt[s]))
						if err != nil {
							refused.Add(1)
							return
						}
						defer shut(c)
						_ = c.SetDeadline(time.Now().Add(5 * time.Second))
						switch dice.IntN(8) {
						case 0:
							_ = c.SetLinger(0) // broken off
							return
						case 1:
							_, _ = c.Write(make([]byte, dice.IntN(1<<20)))
						}
						_ = c.CloseWrite()
						name, err := io.ReadAll(c)
						switch {
						case err == nil && len(name) > 0:
							check(s, string(name))
						case errors.Is(err, syscall.ECONNRESET), err == nil:
							refused.Add(1)
						default:
							lost.Add(1)
							t.Errorf("Service %d: %v", s, err)
						}
						return
					}
					c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(udpAt[s]))
					if err != nil {
						return
					}
					defer shut(c)
					for range dice.IntN(3) + 1 {
						_, _ = c.Write([]byte("?"))
						_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
						buf := make([]byte, 100)
						if n, err := c.Read(buf); err == nil {
							check(s, string(buf[:n]))
						}
					}
				}()
			}
		})
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	time.Sleep(span / 3)
	early := heap()
	time.Sleep(span - span/3)
	// A machine that is busy may take longer for enough to happen.
	for range 120 {
		if answered.Load() >= enough {
			break
		}
		time.Sleep(time.Second)
	}
	stop()
	workers.Wait()
	late := heap()
	t.Logf("%d updates, %d answers, %d refused or reset; heap %d KB after a third of the time, %d KB at the end", updates.Load(), answered.Load(), refused.Load(), early>>10, late>>10)
	if answered.Load() < enough {
		t.Errorf("only %d answers", answered.Load())
	}
	if late > early+early/2+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	eventually(t, "no connection and no session is left", func() bool { c, s := r.Active(); return c == 0 && s == 0 })
	r.Close()
}
