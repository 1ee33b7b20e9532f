package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// An Outcome is how a connection ended.
type Outcome string

// The outcomes. What netfilter does shows as: REJECT as Refused or Unreachable by its ICMP type, DROP as TimedOut
// (as Unreachable when it drops what the sender itself sends over UDP, EPERM).
const (
	Answered    Outcome = "answered"    // by a server of the lab
	Refused     Outcome = "refused"     // TCP RST, or ICMP port unreachable: ECONNREFUSED
	Unreachable Outcome = "unreachable" // no route, ICMP net, host or admin: EHOSTUNREACH, ENETUNREACH, EACCES, EPERM
	TimedOut    Outcome = "timed out"   // nothing came within the timeout
	Reset       Outcome = "reset"       // connected, then closed or reset before an answer
)

// An Answer is what a connection met.
type Answer struct {
	Outcome Outcome
	// Pod, Port, Client and Server are what the server said: who it is, which client address it saw, and at which
	// of its own addresses. Empty unless Answered.
	Pod            string
	Port           int
	Client, Server netip.AddrPort
	// Local is the client's own address and port, as the client has them.
	Local netip.AddrPort
	// Err is what the kernel said, for outcomes other than Answered.
	Err error
}

func (a Answer) String() string {
	if a.Outcome == Answered {
		return fmt.Sprintf("answered by %s:%d, which saw %s", a.Pod, a.Port, a.Client)
	}
	return fmt.Sprintf("%s (%v)", a.Outcome, a.Err)
}

// DialOptions say how to connect. The zero value lets the kernel choose.
type DialOptions struct {
	// SourceIP must be an address of the place; SourcePort 0 is any.
	SourceIP   netip.Addr
	SourcePort int
	// Timeout for everything, 15 s when 0: long, because a machine under load is slow. Give a short one where
	// nothing is to answer.
	Timeout time.Duration
	// Mark of the packets (SO_MARK).
	Mark int
}

// timeout of a connection when none is given.
const timeout = 15 * time.Second

// Dial connects from a place, takes one answer and leaves. What the other end or the network does is the Answer;
// an error says that the connection could not be tried, such as a source address that is not there.
func (l *Lab) Dial(ctx context.Context, from Place, proto corev1.Protocol, to netip.AddrPort, o DialOptions) (Answer, error) {
	c, a, err := l.Open(ctx, from, proto, to, o)
	if c != nil {
		c.Close()
	}
	return a, err
}

// A Conn is a connection that stays open, or a UDP socket that keeps its port.
type Conn struct {
	file    *os.File
	proto   corev1.Protocol
	local   netip.AddrPort
	timeout time.Duration
}

// Open is Dial with the connection left open, for another Ask. The Conn is nil unless the outcome is Answered, or
// the protocol is UDP, where a later Ask may be answered still.
func (l *Lab) Open(ctx context.Context, from Place, proto corev1.Protocol, to netip.AddrPort, o DialOptions) (*Conn, Answer, error) {
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	file, err := from.Netns().connect(ctx, proto, to, o)
	if err != nil {
		if outcome, ok := outcomeOf(err); ok && whole.Err() == nil {
			return nil, Answer{Outcome: outcome, Err: err}, nil
		}
		return nil, Answer{}, fmt.Errorf("connect from %s to %s %s: %w", from, proto, to, err)
	}
	c := &Conn{file: file, proto: proto, timeout: o.Timeout, local: localOf(file)}
	var a Answer
	if proto == corev1.ProtocolUDP {
		a, err = c.ask(ctx)
	} else {
		a, err = c.read(ctx) // the server speaks first
	}
	if err == nil {
		err = whole.Err() // the caller gave up: what was not waited for is no outcome
	}
	if err != nil {
		c.Close()
		return nil, Answer{}, fmt.Errorf("ask from %s at %s %s: %w", from, proto, to, err)
	}
	if a.Outcome != Answered && proto != corev1.ProtocolUDP {
		c.Close()
		return nil, a, nil
	}
	return c, a, nil
}

// Ask sends another question, or another datagram from the same port, and waits for the answer.
func (c *Conn) Ask(ctx context.Context) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.ask(ctx)
}

// Local is the client's end of the connection.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Close leaves. TCP is reset rather than closed: no port waits two minutes in TIME_WAIT.
func (c *Conn) Close() { c.file.Close() }

func (c *Conn) ask(ctx context.Context) (Answer, error) {
	defer watch(ctx, c.file)()
	_, err := c.file.Write([]byte(question + "\n"))
	if errors.Is(err, unix.EPERM) && c.proto == corev1.ProtocolUDP {
		return c.rejected(ctx, err)
	}
	if err != nil {
		return c.ended(err)
	}
	return c.read(ctx)
}

// rejected tells REJECT from DROP where the sender's own OUTPUT does it: both refuse the datagram, and only the
// first sends an ICMP error, which is there at once or never.
func (c *Conn) rejected(ctx context.Context, refused error) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	a, err := c.read(ctx)
	if err != nil || a.Outcome == TimedOut {
		return c.ended(refused)
	}
	return a, nil
}

func (c *Conn) read(ctx context.Context) (Answer, error) {
	defer watch(ctx, c.file)()
	var line []byte
	b := make([]byte, 2048)
	for !bytes.HasSuffix(line, []byte{'\n'}) && len(line) < len(b) {
		n, err := c.file.Read(b)
		line = append(line, b[:n]...)
		if err != nil {
			return c.ended(err)
		}
	}
	var g greeting
	if err := json.Unmarshal(line, &g); err != nil {
		return Answer{}, fmt.Errorf("what answers is no server of the lab: %w: %.80q", err, line)
	}
	return Answer{Outcome: Answered, Pod: g.Pod, Port: g.Port, Client: g.Client, Server: g.Server, Local: c.local}, nil
}

func (c *Conn) ended(err error) (Answer, error) {
	if outcome, ok := outcomeOf(err); ok {
		return Answer{Outcome: outcome, Local: c.local, Err: err}, nil
	}
	return Answer{}, err
}

// connect makes a connection from inside the namespace. The socket is made there, and waits with all others of
// the program.
func (n *Namespace) connect(ctx context.Context, proto corev1.Protocol, to netip.AddrPort, o DialOptions) (*os.File, error) {
	to = unmapped(to)
	f, err := n.socket(proto, to.Addr().Is6(), func(fd int) error {
		if err := o.apply(fd, proto, to.Addr().Is6()); err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return os.NewSyscallError("connect", err)
		}
		return nil
	})
	if err != nil || proto == corev1.ProtocolUDP {
		return f, err
	}
	defer watch(ctx, f)()
	if err := connected(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// connected waits until the handshake is done, or failed.
func connected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = err
		case errno != 0:
			failed = os.NewSyscallError("connect", unix.Errno(errno))
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil // else not yet
		}
		return true
	})
	return errors.Join(err, failed)
}

// apply sets a new socket up.
func (o DialOptions) apply(fd int, proto corev1.Protocol, ipv6 bool) error {
	if proto != corev1.ProtocolUDP {
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return fmt.Errorf("set SO_LINGER: %w", err)
		}
	}
	if o.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, o.Mark); err != nil {
			return fmt.Errorf("set mark %#x: %w", o.Mark, err)
		}
	}
	if !o.SourceIP.IsValid() && o.SourcePort == 0 {
		return nil
	}
	from := o.SourceIP
	switch {
	case from.IsValid() && from.Is6() != ipv6:
		return fmt.Errorf("source address %s is of the other family", from)
	case !from.IsValid() && ipv6:
		from = netip.IPv6Unspecified()
	case !from.IsValid():
		from = netip.IPv4Unspecified()
	}
	if o.SourcePort == 0 {
		// Or the port would be taken for all destinations.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return fmt.Errorf("set IP_BIND_ADDRESS_NO_PORT: %w", err)
		}
	} else if proto != corev1.ProtocolUDP {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("set SO_REUSEADDR: %w", err)
		}
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, uint16(o.SourcePort)))); err != nil {
		return &bindError{netip.AddrPortFrom(from, uint16(o.SourcePort)), err}
	}
	return nil
}

// a bindError is the caller's fault or a port in use, and no outcome of a connection.
type bindError struct {
	addr netip.AddrPort
	err  error
}

func (e *bindError) Error() string { return fmt.Sprintf("bind to %s: %v", e.addr, e.err) }
func (e *bindError) Unwrap() error { return e.err }

// watch has the file's waits end with the context. What it returns ends the watching.
func watch(ctx context.Context, f *os.File) func() {
	deadline, _ := ctx.Deadline() // none is the zero time, which is none to the file too
	_ = f.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			_ = f.SetDeadline(time.Unix(1, 0))
		}
	})
	return func() { stop() }
}

// outcomeOf tells what an error of the kernel means for a connection; false when it means nothing for it.
func outcomeOf(err error) (Outcome, bool) {
	var bind *bindError
	var errno unix.Errno
	switch {
	case errors.As(err, &bind):
		return "", false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return TimedOut, true
	case errors.Is(err, io.EOF):
		return Reset, true
	case !errors.As(err, &errno):
		return "", false
	}
	switch errno {
	case unix.ECONNREFUSED:
		return Refused, true
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPERM, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET, unix.EPROTO,
		unix.EINVAL: // what connect and write say of a blackhole route
		return Unreachable, true
	case unix.ETIMEDOUT:
		return TimedOut, true
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED:
		return Reset, true
	}
	return "", false
}

// localOf is the client's own end.
func localOf(f *os.File) netip.AddrPort {
	raw, err := f.SyscallConn()
	if err != nil {
		return netip.AddrPort{}
	}
	var local netip.AddrPort
	_ = raw.Control(func(fd uintptr) {
		a, err := unix.Getsockname(int(fd))
		if err != nil {
			return
		}
		switch a := a.(type) {
		case *unix.SockaddrInet4:
			local = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			local = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		}
	})
	return local
}
