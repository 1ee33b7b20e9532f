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
	"slices"
	"syscall"
	"testing"
	"time"

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
	defer l.Close()
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
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

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
	t.Cleanup(func() { c.Close() })
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
		c.Close()
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
			t.Cleanup(func() { c.Close() })
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
		defer c.Close()
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
	defer b.Close()
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
		defer c.Close()
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
		x.Close()
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
	c.Close()
	select {
	case <-drained:
	case <-time.After(5 * time.Second):
		t.Fatal("not drained although nothing is open")
	}
}
