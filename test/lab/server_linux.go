package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// ErrUnsupported is what the machine's kernel cannot do; the error around it names the kernel option.
var ErrUnsupported = errors.New("not supported by this kernel")

// a greeting is what servers answer with, one line of JSON: who they are, and the two ends as they see them.
type greeting struct {
	Pod    string         `json:"pod"`
	Port   int            `json:"port"`
	Client netip.AddrPort `json:"client"`
	Server netip.AddrPort `json:"server"`
}

// A Server is open in a pod, at one or more addresses.
type Server struct {
	pod   *Pod
	mu    sync.Mutex
	open  map[closer]bool // listeners and connections
	ended bool
}

type closer interface{ Close() error }

// Serve opens a server in the pod on all of its addresses, of both families when none is named. It answers every
// connection, and every line "?" on it, or every datagram, with one line that names the pod, the port and the
// client that it saw. The server is open when Serve returns.
func (p *Pod) Serve(proto corev1.Protocol, port int, families ...corev1.IPFamily) (*Server, error) {
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	var addrs []netip.AddrPort
	for _, f := range families {
		a := netip.IPv4Unspecified()
		if f == corev1.IPv6Protocol {
			a = netip.IPv6Unspecified()
		}
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(port)))
	}
	return p.ServeAt(proto, addrs...)
}

// ServeAt opens a server on these addresses of the pod alone: 127.0.0.1 makes one that its Service cannot reach.
func (p *Pod) ServeAt(proto corev1.Protocol, addrs ...netip.AddrPort) (*Server, error) {
	s := &Server{pod: p, open: map[closer]bool{}}
	for _, a := range addrs {
		if err := s.listen(proto, a); err != nil {
			s.Close()
			return nil, fmt.Errorf("serve %s %s in pod %s: %w", proto, a, p.Name, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = append(p.servers, s)
	return s, nil
}

func (s *Server) listen(proto corev1.Protocol, at netip.AddrPort) error {
	f, err := s.pod.ns.socket(proto, at.Addr().Is6(), func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil && proto != corev1.ProtocolUDP {
			return err
		}
		if at.Addr().Is6() {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
				return err
			}
		}
		if proto == corev1.ProtocolUDP {
			// A datagram is answered from the address that it came to.
			if err := askDestination(fd, at.Addr().Is6()); err != nil {
				return err
			}
			return unix.Bind(fd, sockaddr(at))
		}
		if err := unix.Bind(fd, sockaddr(at)); err != nil {
			return err
		}
		return unix.Listen(fd, unix.SOMAXCONN)
	})
	if err != nil {
		return err
	}
	defer f.Close() // the listener has a duplicate
	if proto == corev1.ProtocolUDP {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		udp, ok := c.(*net.UDPConn)
		if !ok {
			return fmt.Errorf("a %T is no UDP socket", c)
		}
		s.keep(udp)
		go s.answerDatagrams(udp, at.Port())
		return nil
	}
	listener, err := net.FileListener(f)
	if err != nil {
		return err
	}
	s.keep(listener)
	go s.accept(listener)
	return nil
}

// keep notes what Close closes; after Close it closes at once.
func (s *Server) keep(c closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = c.Close()
		return false
	}
	s.open[c] = true
	return true
}

func (s *Server) drop(c closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	_ = c.Close()
}

// Close ends the server and the connections to it.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		_ = c.Close()
	}
	s.open = map[closer]bool{}
}

// CloseConnections ends the connections and goes on listening.
func (s *Server) CloseConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if _, ok := c.(net.Conn); ok {
			if _, udp := c.(*net.UDPConn); udp {
				continue
			}
			_ = c.Close()
			delete(s.open, c)
		}
	}
}

func (s *Server) accept(listener net.Listener) {
	defer s.drop(listener)
	for {
		c, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of that one connection: it was aborted before it was taken
		}
		if s.keep(c) {
			go s.answer(c)
		}
	}
}

// question is the line that asks for another greeting. What else is sent is taken and not answered.
const question = "?"

// answer greets once, then once for every question, until the client leaves.
func (s *Server) answer(c net.Conn) {
	defer s.drop(c)
	line := s.greet(addrPort(c.RemoteAddr()), addrPort(c.LocalAddr()))
	if _, err := c.Write(line); err != nil {
		return
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if lines.Text() != question {
			continue
		}
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}

func (s *Server) answerDatagrams(c *net.UDPConn, port uint16) {
	defer s.drop(c)
	b, control := make([]byte, 2048), make([]byte, 256)
	for {
		_, k, _, from, err := c.ReadMsgUDPAddrPort(b, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // ICMP errors of earlier answers
		}
		to, reply := destination(control[:k])
		// An answer that cannot be sent is one that does not come: the client says so.
		_, _, _ = c.WriteMsgUDPAddrPort(s.greet(from, netip.AddrPortFrom(to, port)), reply, from)
	}
}

func (s *Server) greet(client, server netip.AddrPort) []byte {
	line, err := json.Marshal(greeting{s.pod.Name, int(server.Port()), unmapped(client), unmapped(server)})
	if err != nil {
		line = []byte(`{}`)
	}
	return append(line, '\n')
}

func addrPort(a net.Addr) netip.AddrPort {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return p
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// socket makes a socket in the namespace and has it prepared there. The file owns it, and is polled.
func (n *Namespace) socket(proto corev1.Protocol, ipv6 bool, prepare func(fd int) error) (*os.File, error) {
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	kind, number := unix.SOCK_STREAM, unix.IPPROTO_TCP
	switch proto {
	case corev1.ProtocolTCP:
	case corev1.ProtocolUDP:
		kind, number = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case corev1.ProtocolSCTP:
		number = unix.IPPROTO_SCTP
	default:
		return nil, fmt.Errorf("protocol %q: TCP, UDP or SCTP", proto)
	}
	fd := -1
	err := n.call(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, number)
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			return fmt.Errorf("%s sockets (CONFIG_IP_%s): %w", proto, proto, ErrUnsupported)
		}
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		return prepare(fd)
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), string(proto)), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
