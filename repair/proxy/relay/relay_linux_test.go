package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/repair/proxy/relay"
)

// freePort is a port of 127.0.0.1 that nobody has at the moment.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shut(l)
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// port is a service port with one frontend and ready endpoints.
func port(protocol string, at netip.AddrPort, backends ...netip.AddrPort) *intent.ServicePort {
	family := 4
	if at.Addr().Is6() {
		family = 6
	}
	sp := &intent.ServicePort{Namespace: "shop", Name: "web", PortName: "p", Family: family, Protocol: protocol, Port: int(at.Port()),
		Frontends: []intent.Frontend{{Kind: intent.ClusterIP, Addr: at.Addr(), Port: int(at.Port())}}}
	for i, b := range backends {
		sp.Endpoints = append(sp.Endpoints, intent.Endpoint{Addr: b.Addr(), Port: int(b.Port()), Ready: true, Serving: true})
		sp.Cluster, sp.Usable = append(sp.Cluster, i), append(sp.Usable, i)
	}
	return sp
}

// start runs a relay that serves some ports, until the test ends.
func start(t *testing.T, o relay.Options, ports ...*intent.ServicePort) *relay.Relay {
	t.Helper()
	o.Log = func(s string) { t.Log(s) }
	r, err := relay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	update(t, r, ports...)
	return r
}

func update(t *testing.T, r *relay.Relay, ports ...*intent.ServicePort) {
	t.Helper()
	unserved, err := r.Update(relay.Want{Ports: ports})
	if err != nil || len(unserved) > 0 {
		t.Fatalf("update: %v, unserved %v", err, unserved)
	}
}

// serve runs f for every connection to a listener on 127.0.0.1.
func serve(t *testing.T, f func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(l) })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, syscall.EMFILE) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
			go func() {
				defer shut(c)
				f(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// shut closes what nothing is lost with.
func shut(c io.Closer) { c.Close() }

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

func dial(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(c) })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func local(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

func TestDataGoesThrough(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, serve(t, echo)))
	for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 1 << 20, 32 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c := dial(t, at)
			sent := make([]byte, size)
			random := rand.NewChaCha8([32]byte{byte(size)})
			_, _ = random.Read(sent)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("sent %d bytes, got %d back, equal %v, error %v", len(sent), len(got), bytes.Equal(got, sent), err)
			}
		})
	}
}

// TestServerFirst: a backend that speaks first, and a client that never does.
func TestServerFirst(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) { _, _ = c.Write([]byte("220 hello\r\n")) })))
	got, err := io.ReadAll(dial(t, at))
	if string(got) != "220 hello\r\n" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

// TestHalfClose: what one side sends after the other has ended its part arrives.
func TestHalfClose(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
		got, _ := io.ReadAll(c)
		time.Sleep(50 * time.Millisecond)
		fmt.Fprintf(c, "%d bytes", len(got))
	})))
	c := dial(t, at)
	_, _ = c.Write(make([]byte, 12345))
	_ = c.CloseWrite()
	got, err := io.ReadAll(c)
	if string(got) != "12345 bytes" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

// TestReset: a reset of one end arrives at the other as one, after what was sent before.
func TestReset(t *testing.T) {
	reset := func(c *net.TCPConn) {
		_ = c.SetLinger(0)
		shut(c)
	}
	t.Run("backend", func(t *testing.T) {
		at := local(freePort(t))
		start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("last words"))
			time.Sleep(50 * time.Millisecond)
			reset(c)
		})))
		got, err := io.ReadAll(dial(t, at))
		if string(got) != "last words" || !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("got %q, %v", got, err)
		}
	})
	t.Run("client", func(t *testing.T) {
		at := local(freePort(t))
		heard := make(chan error, 1)
		start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
			_, err := io.ReadAll(c)
			heard <- err
		})))
		c := dial(t, at)
		_, _ = c.Write([]byte("x"))
		time.Sleep(50 * time.Millisecond)
		reset(c)
		select {
		case err := <-heard:
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the backend heard %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the backend heard nothing")
		}
	})
	t.Run("after the end", func(t *testing.T) {
		// The client ends its part, then resets: the backend, which goes on sending, hears of it.
		at := local(freePort(t))
		heard := make(chan error, 1)
		start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
			_, _ = io.ReadAll(c)
			for {
				if _, err := c.Write(make([]byte, 1000)); err != nil {
					heard <- err
					return
				}
				time.Sleep(time.Millisecond)
			}
		})))
		c := dial(t, at)
		_ = c.CloseWrite()
		_, _ = io.ReadFull(c, make([]byte, 1000))
		reset(c)
		select {
		case err := <-heard:
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatalf("the backend heard %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the backend heard nothing")
		}
	})
}

// TestLastWords: a backend answers, and closes with data unread, which resets the connection: the answer arrives although
// the relay cannot send to the backend any more.
func TestLastWords(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		_, _ = c.Write([]byte("413 too much"))
	})))
	for range 20 {
		c := dial(t, at)
		go func() {
			for range 1000 {
				if _, err := c.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}()
		got, err := io.ReadAll(c)
		// The kernel of the client may throw away what it has when the reset comes, as it would without a relay.
		if err == nil && string(got) != "413 too much" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// TestBackpressure: a client that does not read stops its backend, and gets everything in the end.
func TestBackpressure(t *testing.T) {
	at := local(freePort(t))
	const size = 64 << 20
	written := make(chan int, 1000)
	start(t, relay.Options{}, port("TCP", at, serve(t, func(c *net.TCPConn) {
		piece := make([]byte, 1<<20)
		for i := range size / len(piece) {
			if _, err := c.Write(piece); err != nil {
				return
			}
			written <- i
		}
	})))
	c := dial(t, at)
	time.Sleep(300 * time.Millisecond)
	if n := len(written); n > 40 {
		t.Fatalf("%d MB went to a client that reads nothing", n)
	}
	n, err := io.Copy(io.Discard, c)
	if n != size || err != nil {
		t.Fatalf("%d bytes came, %v", n, err)
	}
}

// TestNextBackend: a backend that refuses, or does not answer, costs a client nothing but time.
func TestNextBackend(t *testing.T) {
	at := local(freePort(t))
	refuses := local(freePort(t))
	silent := silentBackend(t)
	start(t, relay.Options{ConnectTimeout: 200 * time.Millisecond}, port("TCP", at, refuses, silent, serve(t, echo)))
	begun := time.Now()
	for range 50 {
		c := dial(t, at)
		_, _ = c.Write([]byte("x"))
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "x" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	// The silent one is tried once at first, and then after its rests of 1 s and 2 s.
	if took := time.Since(begun); took > 3*time.Second {
		t.Fatalf("50 connections took %v: the relay does not remember who is silent", took)
	}
}

// silentBackend is an address that answers no connection: a listener whose queue is full.
func silentBackend(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := local(uint16(sa.(*syscall.SockaddrInet4).Port))
	for range 3 {
		d := net.Dialer{Timeout: 100 * time.Millisecond}
		if c, err := d.Dial("tcp", at.String()); err == nil {
			t.Cleanup(func() { shut(c) })
		}
	}
	return at
}

func TestNoBackend(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, local(freePort(t)), local(freePort(t))))
	wantReset(t, at)
}

// wantReset connects and wants to be reset, at once or when the connection is there already.
func wantReset(t *testing.T, at netip.AddrPort) {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err == nil {
		defer shut(c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("want a reset, got %v", err)
	}
}

func TestDatagrams(t *testing.T) {
	b, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(b)
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = b.WriteToUDPAddrPort(append([]byte("re: "), buf[:n]...), from)
		}
	}()
	at := local(freePort(t))
	r := start(t, relay.Options{UnansweredUDP: 200 * time.Millisecond, IdleUDP: 300 * time.Millisecond}, port("UDP", at, b.LocalAddr().(*net.UDPAddr).AddrPort()))
	for i := range 10 {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer shut(c)
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		for _, size := range []int{0, 10, 1400, 60000} {
			question := slices.Repeat([]byte{byte(i)}, size)
			if _, err := c.Write(question); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 65536)
			n, err := c.Read(answer)
			if err != nil || !bytes.Equal(answer[:n], append([]byte("re: "), question...)) {
				t.Fatalf("%d bytes: got %d back, %v", size, n, err)
			}
		}
	}
	if _, n := r.Active(); n != 10 {
		t.Fatalf("%d sessions of 10 clients", n)
	}
	time.Sleep(600 * time.Millisecond)
	if _, n := r.Active(); n != 0 {
		t.Fatalf("%d sessions after the time is over", n)
	}
}

func TestDrain(t *testing.T) {
	at := local(freePort(t))
	r := start(t, relay.Options{}, port("TCP", at, serve(t, echo)))
	c := dial(t, at)
	_, _ = c.Write([]byte("x"))
	one := make([]byte, 1)
	if _, err := io.ReadFull(c, one); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r.Drain(ctx)
		close(drained)
	}()
	time.Sleep(100 * time.Millisecond)
	if x, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at)); err == nil {
		shut(x)
		t.Fatal("a new connection is taken while draining")
	}
	_, _ = c.Write([]byte("y"))
	if _, err := io.ReadFull(c, one); err != nil || one[0] != 'y' {
		t.Fatalf("an old connection does not go on: %v", err)
	}
	select {
	case <-drained:
		t.Fatal("drained with a connection open")
	default:
	}
	shut(c)
	select {
	case <-drained:
	case <-time.After(5 * time.Second):
		t.Fatal("not drained although nothing is open")
	}
}

// metrics are those of a relay by name and values of labels: "svcnet_relay_active TCP".
func metrics(t *testing.T, r *relay.Relay) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.Collector(false))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 500 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("never so: " + what)
}

// TestLimits: a connection too much is reset at once, of all and of one Service, and there is room again afterwards.
func TestLimits(t *testing.T) {
	for name, o := range map[string]relay.Options{"all": {MaxConnections: 3}, "service": {MaxPerService: 3}} {
		t.Run(name, func(t *testing.T) {
			at := local(freePort(t))
			r := start(t, o, port("TCP", at, serve(t, echo)))
			var open []*net.TCPConn
			for range 3 {
				c := dial(t, at)
				_, _ = c.Write([]byte("x"))
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				open = append(open, c)
			}
			wantReset(t, at)
			shut(open[0])
			eventually(t, "room", func() bool { n, _ := r.Active(); return n == 2 })
			c := dial(t, at)
			_, _ = c.Write([]byte("x"))
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatalf("no room after one ended: %v", err)
			}
			if m := metrics(t, r); m["svcnet_relay_refused_total TCP limit"] != 1 || m["svcnet_relay_opened_total TCP"] != 4 {
				t.Errorf("metrics: %v", m)
			}
		})
	}
}

// named answers every connection with a name.
func named(t *testing.T, name string) netip.AddrPort {
	return serve(t, func(c *net.TCPConn) { _, _ = c.Write([]byte(name)) })
}

func answer(t *testing.T, at netip.AddrPort) string {
	t.Helper()
	got, err := io.ReadAll(dial(t, at))
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// TestUpdate: connections live on when backends and Services go, new ones get what is wanted now.
func TestUpdate(t *testing.T) {
	at, other := local(freePort(t)), local(freePort(t))
	a, b := serve(t, echo), named(t, "b")
	r := start(t, relay.Options{}, port("TCP", at, a))
	c := dial(t, at)
	check := func(when string) {
		t.Helper()
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	check("at first")
	update(t, r, port("TCP", at, b))
	check("with another backend")
	if got := answer(t, at); got != "b" {
		t.Fatalf("a new connection got %q", got)
	}
	// No endpoint is left: the kernel refuses, as kube-proxy's rules do.
	update(t, r, port("TCP", at), port("TCP", other, b))
	check("without backends")
	if _, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a connection without endpoints: %v", err)
	}
	update(t, r)
	check("without its Service")
	if _, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(other)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a connection to a Service that is gone: %v", err)
	}
	update(t, r, port("TCP", at, b))
	check("with its Service again")
	if got := answer(t, at); got != "b" {
		t.Fatalf("a new connection got %q", got)
	}
}

// TestManyUpdates: connections made while everything changes all the time get an answer.
func TestManyUpdates(t *testing.T) {
	at := local(freePort(t))
	a, b := named(t, "a"), named(t, "b")
	r := start(t, relay.Options{}, port("TCP", at, a, b))
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			ports := []*intent.ServicePort{port("TCP", at, a, b)}
			for j := range i % 5 {
				ports = append(ports, port("TCP", local(uint16(20000+(i+j)%50)), a))
			}
			_, _ = r.Update(relay.Want{Ports: ports})
			time.Sleep(time.Millisecond)
		}
	}()
	got := map[string]int{}
	for range 500 {
		got[answer(t, at)]++
	}
	close(stop)
	<-stopped
	if got["a"]+got["b"] != 500 || got["a"] < 150 || got["b"] < 150 {
		t.Errorf("answers: %v", got)
	}
}

// TestAddressInUse: what another process has is said, and served once it is free.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	at := local(uint16(l.Addr().(*net.TCPAddr).Port))
	b := named(t, "b")
	r, err := relay.New(relay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	unserved, err := r.Update(relay.Want{Ports: []*intent.ServicePort{port("TCP", at, b)}})
	if err != nil || len(unserved) != 1 || unserved[0].Listen != at || unserved[0].ServicePort != "shop/web:p" {
		t.Fatalf("unserved: %v, %v", unserved, err)
	}
	shut(l)
	update(t, r, port("TCP", at, b))
	if got := answer(t, at); got != "b" {
		t.Errorf("got %q", got)
	}
}

// TestCircle: an endpoint that is the address of a Service is not used: the relay would connect to itself for ever.
func TestCircle(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("TCP", at, at))
	wantReset(t, at)
}

func TestAffinityOfClients(t *testing.T) {
	at := local(freePort(t))
	sp := port("TCP", at, named(t, "a"), named(t, "b"), named(t, "c"))
	sp.AffinitySeconds = 1
	start(t, relay.Options{}, sp)
	first := answer(t, at)
	for range 30 {
		if got := answer(t, at); got != first {
			t.Fatalf("got %q after %q", got, first)
		}
	}
	for range 20 {
		time.Sleep(1050 * time.Millisecond)
		if answer(t, at) != first {
			return
		}
	}
	t.Error("the client has the same backend for ever")
}

func TestHeaderArrives(t *testing.T) {
	for version, want := range map[relay.HeaderVersion]string{
		relay.HeaderV1: "PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\nhello",
		relay.HeaderV2: "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01%s%shello",
	} {
		at := local(freePort(t))
		got := make(chan string, 1)
		start(t, relay.Options{Header: func(*intent.ServicePort) relay.HeaderVersion { return version }}, port("TCP", at, serve(t, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			got <- string(all)
		})))
		c := dial(t, at)
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		mine := uint16(c.LocalAddr().(*net.TCPAddr).Port)
		expected := fmt.Sprintf(want, mine, at.Port())
		if version == relay.HeaderV2 {
			be := func(p uint16) string { return string([]byte{byte(p >> 8), byte(p)}) }
			expected = fmt.Sprintf(want, be(mine), be(at.Port()))
		}
		if all := <-got; all != expected {
			t.Errorf("version %d: the backend got %q, want %q", version, all, expected)
		}
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(l) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.RemoteAddr().(*net.TCPAddr).IP)
			shut(c)
		}
	}()
	free, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().(*net.TCPAddr).AddrPort()
	shut(free)
	start(t, relay.Options{}, port("TCP", at, l.Addr().(*net.TCPAddr).AddrPort()))
	if got := answer(t, at); got != "::1" {
		t.Errorf("got %q", got)
	}
}

// TestIdle: ten thousand connections that say nothing cost little, live, and leave nothing behind. Both ends of each, and
// both of the relay's sockets, are files of this process: where it may not have as many there are fewer connections.
func TestIdle(t *testing.T) {
	var nofile syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &nofile); err != nil {
		t.Fatal(err)
	}
	clients := min(10000, (int(nofile.Cur)-1000)/4)
	at := local(freePort(t))
	accepted := make(chan net.Conn, clients)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	r := start(t, relay.Options{MaxConnections: clients}, port("TCP", at, l.Addr().(*net.TCPAddr).AddrPort()))
	if r.Limits().Connections < clients {
		clients = r.Limits().Connections
	}
	heap := func() (bytes uint64, goroutines int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	before, goroutines := heap()
	var open []int
	sa := &syscall.SockaddrInet4{Port: int(at.Port()), Addr: [4]byte{127, 0, 0, 1}}
	for range clients {
		// Not net.Dial: what the runtime keeps of each is not the relay's.
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, fd)
		if err := syscall.Connect(fd, sa); err != nil {
			t.Fatalf("client %d: %v", len(open), err)
		}
	}
	eventually(t, "all are connected", func() bool { n, _ := r.Active(); return n == clients && len(accepted) == clients })
	after, now := heap()
	// The Go connections of the backend are in there too.
	each := (after - before) / uint64(clients)
	t.Logf("%d connections: %d bytes and %d goroutines more", clients, after-before, now-goroutines)
	if each > 2000 || now > goroutines+2 {
		t.Errorf("a connection costs %d bytes, and %d goroutines were started", each, now-goroutines)
	}
	for i := 0; i < clients; i += clients / 50 {
		if _, err := syscall.Write(open[i], []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, fd := range open {
		syscall.Close(fd)
	}
	heard := 0
	for range clients {
		c := <-accepted
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			heard++
		}
		shut(c)
	}
	if want := (clients + clients/50 - 1) / (clients / 50); heard != want {
		t.Errorf("%d of %d backends heard their client", heard, want)
	}
	eventually(t, "all are gone", func() bool { n, _ := r.Active(); return n == 0 })
	shut(l)
}

// TestNothingIsLeft: after it is closed there are as many files and goroutines as before, whatever was going on.
func TestNothingIsLeft(t *testing.T) {
	files := func() int {
		dir, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir)
	}
	a := serve(t, echo)
	udp := udpEcho(t)
	eventually(t, "quiet", func() bool { n := files(); time.Sleep(50 * time.Millisecond); return n == files() })
	beforeFiles, beforeGoroutines := files(), runtime.NumGoroutine()
	for range 3 {
		at, udpAt := local(freePort(t)), local(freePort(t))
		r, err := relay.New(relay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		update(t, r, port("TCP", at, a, local(1)), port("UDP", udpAt, udp))
		var open []net.Conn
		for i := range 40 {
			c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			_, _ = c.Write(make([]byte, i*50000)) // what is echoed is not read: buffers and pipes fill up
			u, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(udpAt))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = u.Write([]byte("x"))
			open = append(open, u)
		}
		r.Close()
		r.Close()
		for _, c := range open {
			shut(c)
		}
	}
	for range 500 {
		if files() <= beforeFiles && runtime.NumGoroutine() <= beforeGoroutines {
			return
		}
		runtime.GC() // io.Copy of the backends keeps pipes until then
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d files and %d goroutines before, now %d and %d\n%s", beforeFiles, beforeGoroutines, files(), runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
}

// udpEcho sends back what comes.
func udpEcho(t *testing.T) netip.AddrPort {
	t.Helper()
	b, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(b) })
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = b.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return b.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestSessionsFollowUpdates: a session whose backend is gone gets another one with the next datagram; one whose backend
// stays, stays.
func TestSessionsFollowUpdates(t *testing.T) {
	at := local(freePort(t))
	say := func(name string) netip.AddrPort {
		b, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shut(b) })
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := b.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				_, _ = b.WriteToUDPAddrPort([]byte(name), from)
			}
		}()
		return b.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	a, b := say("a"), say("b")
	r := start(t, relay.Options{}, port("UDP", at, a))
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer shut(c)
	ask := func() string {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write([]byte("?"))
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := ask(); got != "a" {
		t.Fatalf("got %q", got)
	}
	for range 20 {
		update(t, r, port("UDP", at, a, b))
		if got := ask(); got != "a" {
			t.Fatalf("the session did not stay: got %q", got)
		}
	}
	update(t, r, port("UDP", at, b))
	if got := ask(); got != "b" {
		t.Fatalf("the session stays with a backend that is gone: got %q", got)
	}
	update(t, r)
	if _, n := r.Active(); n != 0 {
		t.Errorf("%d sessions of a frontend that is gone", n)
	}
}

// TestDeadDatagramBackend: a backend that nobody listens on any more is left for another one.
func TestDeadDatagramBackend(t *testing.T) {
	at := local(freePort(t))
	start(t, relay.Options{}, port("UDP", at, local(freePort(t)), local(freePort(t)), udpEcho(t)))
	for range 10 {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer shut(c)
		ok := false
		for range 4 { // a client asks again when nobody answers
			_, _ = c.Write([]byte("?"))
			_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if n, err := c.Read(make([]byte, 10)); err == nil && n == 1 {
				ok = true
				break
			}
		}
		if !ok {
			t.Fatal("no answer to four questions")
		}
	}
}

// TestSessionsMakeRoom: with too many clients those that have had their answer make room.
func TestSessionsMakeRoom(t *testing.T) {
	at := local(freePort(t))
	r := start(t, relay.Options{MaxConnections: 10, Loops: 1}, port("UDP", at, udpEcho(t)))
	for i := range 100 {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer shut(c)
		_, _ = c.Write([]byte("?"))
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
	if _, n := r.Active(); n > 10 {
		t.Errorf("%d sessions, 10 are allowed", n)
	}
}

// TestHostilePeers: connections that are broken off in every way at random moments, with data under way.
func TestHostilePeers(t *testing.T) {
	at := local(freePort(t))
	r := start(t, relay.Options{}, port("TCP", at,
		serve(t, echo),
		serve(t, func(c *net.TCPConn) { _ = c.SetLinger(0) }),
		serve(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, 300000)) }),
		serve(t, func(c *net.TCPConn) { _, _ = io.CopyN(io.Discard, c, 70000); _ = c.SetLinger(0) }),
		serve(t, func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }),
		local(1)))
	random := rand.New(rand.NewPCG(1, 2))
	var all sync.WaitGroup
	for range 400 {
		size, way, pause := random.IntN(400000), random.IntN(5), time.Duration(random.IntN(3000))*time.Microsecond
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
		if err != nil {
			continue // refused by a reset at once
		}
		all.Go(func() {
			defer shut(c)
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			switch way {
			case 0:
				_, _ = c.Write(make([]byte, size))
				_ = c.SetLinger(0)
			case 1:
				_ = c.CloseWrite()
				time.Sleep(pause)
			case 2:
				_, _ = c.Write(make([]byte, size))
				_ = c.CloseWrite()
				_, _ = io.CopyN(io.Discard, c, int64(size/2))
			case 3:
				go func() { _, _ = io.Copy(io.Discard, c) }()
				_, _ = c.Write(make([]byte, size))
				time.Sleep(pause)
				_ = c.SetLinger(0)
			case 4:
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	eventually(t, "no connection is left", func() bool { n, _ := r.Active(); return n == 0 })
}

// TestNoFilesLeft: without files for them connections are refused, not kept waiting, nothing spins, and all is well once
// there are files again.
func TestNoFilesLeft(t *testing.T) {
	at := local(freePort(t))
	r := start(t, relay.Options{Loops: 1}, port("TCP", at, serve(t, echo)))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	var clients []int
	for range 60 {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 4})
		clients = append(clients, fd)
	}
	// The relay has room for three connections and a half; the backend needs files too.
	limit := before
	limit.Cur = uint64(slices.Max(clients)) + 12
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }
	defer restore()
	cpu := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, fd := range clients {
		_ = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: [4]byte{127, 0, 0, 1}})
		_, _ = syscall.Write(fd, []byte("x"))
	}
	answered, refused := 0, 0
	for _, fd := range clients {
		switch n, err := syscall.Read(fd, make([]byte, 1)); {
		case n == 1:
			answered++
		case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ENOTCONN):
			refused++
		default:
			// The backend, which has no files either, may have taken the connection and not answered.
		}
	}
	if refused < 40 {
		t.Errorf("of 60 connections %d were answered and %d refused", answered, refused)
	}
	if m := metrics(t, r); m["svcnet_relay_refused_total TCP no-socket"] == 0 {
		t.Errorf("metrics: %v", m)
	}
	begun := cpu()
	time.Sleep(time.Second)
	if used := cpu() - begun; used > 300*time.Millisecond {
		t.Errorf("%v of CPU time in a second with nothing to do", used)
	}
	restore()
	for _, fd := range clients {
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
	}
	eventually(t, "no connection is left", func() bool { n, _ := r.Active(); return n == 0 })
	time.Sleep(200 * time.Millisecond)
	c := dial(t, at)
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("no answer although there are files again: %v", err)
	}
}
