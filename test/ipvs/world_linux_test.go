package ipvs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// world is the guest as a node, with everybody around it in network namespaces of their own.
type world struct {
	t *testing.T
	// The node is the namespace of the process.
	out, pods, podc *namespace

	// seen is what was read of the node last, all of it; rules6 are the rules of IPv6.
	seen   *snapshot.Snapshot
	rules6 string

	mu sync.Mutex
	// quiet are the datagrams that arrived and were not answered, by number.
	quiet map[uint32]arrival
}

// arrival is a packet as a server sees it.
type arrival struct{ server, client netip.AddrPort }

type namespace struct {
	name string
	fd   int
}

// do runs f in a namespace, on a thread that ends with it. A nil namespace is the node.
func (n *namespace) do(f func() error) error {
	if n == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

func (w *world) sh(script string) string {
	w.t.Helper()
	cmd := exec.Command("sh", "-e", "-c", script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("%v: %s\n%s", err, stderr.String(), script)
	}
	return stdout.String()
}

func (w *world) restore(program, text string) {
	w.t.Helper()
	cmd := exec.Command(program)
	if program == "ipset" {
		cmd = exec.Command("ipset", "-exist", "restore")
	}
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s\n%s", program, err, out, text)
	}
}

func (w *world) namespace(name string) *namespace {
	w.t.Helper()
	w.sh("ip netns add " + name + "; ip -n " + name + " link set lo up")
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return &namespace{name, fd}
}

// The addresses. The client among the pods is one without a server.
const (
	nodeAddr, nodeAddr6 = "192.168.10.11", "fd00:10::11"
	podClient           = "10.244.2.9"
	podClient6          = "fd00:244:2::9"
	outClient           = "192.168.10.99"
	outClient6          = "fd00:10::99"
	outServer           = "192.168.10.200"
	directAddr          = "10.96.203.1" // a virtual server's, which the pods have as well
	clientsFrom         = 100           // further clients outside: 192.168.10.100 to .163
	clients             = 64
)

var (
	podServers  = []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"}
	podServers6 = []string{"fd00:244:1::2", "fd00:244:1::3", "fd00:244:1::4"}
)

// serverPort is where every server listens.
const serverPort = 8080

func newWorld(t *testing.T) *world {
	w := &world{t: t, quiet: make(map[uint32]arrival)}
	w.out, w.pods, w.podc = w.namespace("out"), w.namespace("pods"), w.namespace("podc")
	var b strings.Builder
	fmt.Fprintf(&b, `ip link add eth0 type veth peer name eth0 netns out
ip link add pods0 type veth peer name eth0 netns pods
ip link add podc0 type veth peer name eth0 netns podc
ip addr add %s/24 dev eth0
ip addr add %s/64 dev eth0 nodad
ip link set eth0 up
ip addr add 10.244.1.1/24 dev pods0
ip addr add fd00:244:1::1/64 dev pods0 nodad
ip link set pods0 up
ip addr add 10.244.2.1/24 dev podc0
ip addr add fd00:244:2::1/64 dev podc0 nodad
ip link set podc0 up
ip link add kube-ipvs0 type dummy
ip route add unreachable 172.16.0.0/16
sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv6.icmp.ratelimit=0
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip -n out addr add %s/24 dev eth0
ip -n out addr add %s/64 dev eth0 nodad
ip -n out addr add %s/24 dev eth0
`, nodeAddr, nodeAddr6, outClient, outClient6, outServer)
	for i := range clients {
		fmt.Fprintf(&b, "ip -n out addr add 192.168.10.%d/24 dev eth0\n", clientsFrom+i)
	}
	fmt.Fprintf(&b, `ip -n out link set eth0 up
ip -n out route add default via %s
ip -n out -6 route add default via %s
ip -n podc addr add %s/24 dev eth0
ip -n podc addr add %s/64 dev eth0 nodad
ip -n podc link set eth0 up
ip -n podc route add default via 10.244.2.1
ip -n podc -6 route add default via fd00:244:2::1
`, nodeAddr, nodeAddr6, podClient, podClient6)
	for _, a := range podServers {
		fmt.Fprintf(&b, "ip -n pods addr add %s/24 dev eth0\n", a)
	}
	for _, a := range podServers6 {
		fmt.Fprintf(&b, "ip -n pods addr add %s/64 dev eth0 nodad\n", a)
	}
	b.WriteString("ip -n pods link set eth0 up\nip -n pods route add default via 10.244.1.1\nip -n pods -6 route add default via fd00:244:1::1\n")
	w.sh(b.String())

	w.sh("ip -n pods addr add " + directAddr + "/32 dev lo")
	w.serve(w.pods, netip.AddrPortFrom(netip.MustParseAddr(directAddr), 80))
	for _, a := range append(append([]string{}, podServers...), podServers6...) {
		w.serve(w.pods, netip.AddrPortFrom(netip.MustParseAddr(a), serverPort))
	}
	w.serve(w.out, netip.AddrPortFrom(netip.MustParseAddr(outServer), serverPort))
	for _, a := range []string{nodeAddr, nodeAddr6, "127.0.0.1"} {
		w.serve(nil, netip.AddrPortFrom(netip.MustParseAddr(a), serverPort))
	}
	return w
}

// serve listens in a namespace. To a connection a server says which address it has been reached at and from where; to a
// datagram it answers the same, or nothing where the datagram asks for silence.
func (w *world) serve(in *namespace, at netip.AddrPort) {
	w.t.Helper()
	var l net.Listener
	var p net.PacketConn
	err := in.do(func() (err error) {
		if l, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		p, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s\n", c.LocalAddr(), c.RemoteAddr())
			_ = c.Close()
		}
	}()
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			client := netip.MustParseAddrPort(from.String())
			if n >= 8 && string(b[:4]) == "hush" {
				w.mu.Lock()
				w.quiet[binary.BigEndian.Uint32(b[4:])] = arrival{at, unmapped(client)}
				w.mu.Unlock()
				continue
			}
			_, _ = p.WriteTo(fmt.Appendf(nil, "%s %s\n", at, unmapped(client)), from)
		}
	}()
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// client is who dials: a namespace, and the address where it matters.
type client struct {
	in   *namespace
	from netip.Addr
}

// patience is how long a packet that the walk drops is waited for, and longPatience one that it delivers: in a guest
// without a CPU of its own it may be late.
const (
	patience     = 1500 * time.Millisecond
	longPatience = 6 * time.Second
)

// dial connects over TCP or asks over UDP, and waits for so long. What comes back is an arrival, or "refused", "dropped" or
// "unreachable".
func (c client) dial(proto string, to netip.AddrPort, patience time.Duration) (arrival, string, error) {
	var conn net.Conn
	err := c.in.do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		if c.from.IsValid() {
			a := netip.AddrPortFrom(c.from, 0)
			if proto == "tcp" {
				d.LocalAddr = net.TCPAddrFromAddrPort(a)
			} else {
				d.LocalAddr = net.UDPAddrFromAddrPort(a)
			}
		}
		conn, err = d.Dial(proto, to.String())
		return err
	})
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if proto == "udp" {
			// The node's own packet that is dropped at once is an error of its sender; the answer tells more.
			if _, err = conn.Write([]byte("speak")); errors.Is(err, unix.EPERM) {
				err = nil
			}
		}
		var b []byte
		if err == nil {
			b = make([]byte, 200)
			var n int
			if n, err = conn.Read(b); n > 0 {
				server, client, _ := strings.Cut(strings.TrimSpace(string(b[:n])), " ")
				return arrival{unmapped(netip.MustParseAddrPort(server)), unmapped(netip.MustParseAddrPort(client))}, "", nil
			}
		}
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return arrival{}, "refused", nil
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return arrival{}, "unreachable", nil
	case errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return arrival{}, "dropped", nil
	case errors.Is(err, io.EOF):
		return arrival{}, "", errors.New("the server said nothing")
	}
	return arrival{}, "", err
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// hush sends one datagram that nobody answers.
func (c client) hush(to netip.AddrPort, number uint32) error {
	return c.in.do(func() error {
		var d net.Dialer
		if c.from.IsValid() {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0))
		}
		conn, err := d.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if _, err = conn.Write(binary.BigEndian.AppendUint32([]byte("hush"), number)); errors.Is(err, unix.EPERM) {
			return nil // dropped before it left
		}
		return err
	})
}

// arrived waits for a datagram that nobody answers.
func (w *world) arrived(number uint32) (arrival, bool) {
	for end := time.Now().Add(300 * time.Millisecond); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		a, ok := w.quiet[number]
		w.mu.Unlock()
		if ok || time.Now().After(end) {
			return a, ok
		}
	}
}
