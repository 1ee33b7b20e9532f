package main

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// What a file of the server is; the upper half of an event's tag.
const (
	answering = iota // listens for questions
	sending          // listens for those who want everything
	connection
	sink
	datagram
)

// serve answers until it is killed: what comes is sent back, or, at source, as much as is taken.
func serve(tcp, source, udp string) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	add := func(fd, what int, events uint32) {
		_ = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd), Pad: int32(what)})
	}
	type listener struct {
		addr       string
		kind, what int
	}
	var listeners []listener
	for _, l := range []listener{{tcp, unix.SOCK_STREAM, answering}, {source, unix.SOCK_STREAM, sending}, {udp, unix.SOCK_DGRAM, datagram}} {
		for _, addr := range strings.FieldsFunc(l.addr, func(c rune) bool { return c == ',' }) {
			listeners = append(listeners, listener{addr, l.kind, l.what})
		}
	}
	for _, l := range listeners {
		a, err := netip.ParseAddrPort(l.addr)
		if err != nil {
			return err
		}
		sa := sockaddr(a)
		fd, err := unix.Socket(family(sa), l.kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if l.kind == unix.SOCK_DGRAM {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
		}
		if err := unix.Bind(fd, sa); err != nil {
			return err
		}
		if l.kind == unix.SOCK_STREAM {
			if err := unix.Listen(fd, 65535); err != nil {
				return err
			}
		}
		add(fd, l.what, unix.EPOLLIN)
	}
	var events [512]unix.EpollEvent
	buf, zeros := make([]byte, 64<<10), make([]byte, 256<<10)
	for {
		n, err := unix.EpollWait(ep, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, ev := range events[:max(0, n)] {
			fd := int(ev.Fd)
			switch ev.Pad {
			case answering, sending:
				for {
					c, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
					if err != nil {
						break
					}
					_ = unix.SetsockoptInt(c, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
					if ev.Pad == answering {
						add(c, connection, unix.EPOLLIN|unix.EPOLLRDHUP)
					} else {
						add(c, sink, unix.EPOLLOUT|unix.EPOLLRDHUP)
					}
				}
			case connection:
				n, err := unix.Read(fd, buf)
				if n <= 0 {
					if !errors.Is(err, unix.EAGAIN) {
						unix.Close(fd)
					}
					continue
				}
				_, _ = unix.Write(fd, buf[:n])
			case sink:
				if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
					unix.Close(fd)
					continue
				}
				for range 8 {
					if _, err := unix.Write(fd, zeros); err != nil {
						if !errors.Is(err, unix.EAGAIN) {
							unix.Close(fd)
						}
						break
					}
				}
			case datagram:
				for range 64 {
					n, from, err := unix.Recvfrom(fd, buf, 0)
					if err != nil {
						break
					}
					_ = unix.Sendto(fd, buf[:n], 0, from)
				}
			}
		}
	}
}
