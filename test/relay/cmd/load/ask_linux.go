package main

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asker has clients that ask and wait for the answer. With again each makes a new connection for each question, else it
// keeps the one that it has.
type asker struct {
	to            []unix.Sockaddr
	clients, size int
	span          time.Duration
	rate          int
	again         bool

	ep       int
	byFD     []*one
	question []byte
	buf      []byte
	next     int
	begun    time.Time
	end      time.Duration
	out      result
	took     []int64
	// due are clients in the order in which they may ask again, where there is a rate.
	due     []*one
	dueFrom int
}

// one is one client.
type one struct {
	fd, got   int
	asked     time.Duration
	connected bool
}

func (a *asker) now() time.Duration { return time.Since(a.begun) }

func (a *asker) run() (result, error) {
	var err error
	if a.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return result{}, err
	}
	a.question, a.buf = make([]byte, a.size), make([]byte, 64<<10)
	a.took = make([]int64, 0, 4<<20)
	all := make([]*one, a.clients)
	a.begun = time.Now()
	for i := range all {
		all[i] = &one{fd: -1}
		a.connect(all[i])
	}
	if !a.again {
		// Everybody connects before anything is counted.
		for i := 0; i < 500; i++ {
			a.turn(10 * time.Millisecond)
			n := 0
			for _, o := range all {
				if o.connected {
					n++
				}
			}
			if n == a.clients {
				break
			}
		}
		for _, o := range all {
			if !o.connected {
				return result{}, fmt.Errorf("%d clients do not get connected within 5 s", a.clients)
			}
		}
	}
	a.begun, a.end, a.out, a.took = time.Now(), a.span, result{}, a.took[:0]
	if !a.again {
		if a.rate > 0 {
			a.due = append(a.due, all...)
			a.paced()
		} else {
			for _, o := range all {
				a.ask(o, a.now())
			}
		}
	}
	for a.now() < a.span {
		if a.rate > 0 {
			a.turn(max(0, a.paced()-a.now()))
			continue
		}
		a.turn(10 * time.Millisecond)
	}
	a.out.Seconds = a.now().Seconds()
	for _, o := range all {
		if o.fd >= 0 {
			unix.Close(o.fd)
		}
	}
	summarize(&a.out, a.took)
	return a.out, nil
}

// paced lets clients ask so that there are as many questions a second as there should be. A question that has to wait
// for a client counts from when it was due. It returns when the next one is due.
func (a *asker) paced() time.Duration {
	for {
		when := time.Duration(float64(a.out.Sent) / float64(a.rate) * 1e9)
		if when > a.now() {
			return when
		}
		if a.dueFrom == len(a.due) {
			return when + time.Millisecond
		}
		o := a.due[a.dueFrom]
		if a.dueFrom++; a.dueFrom > 4*a.clients {
			a.due = append(a.due[:0], a.due[a.dueFrom:]...)
			a.dueFrom = 0
		}
		a.ask(o, when)
	}
}

func (a *asker) connect(o *one) {
	to := a.to[a.next%len(a.to)]
	a.next++
	fd, err := unix.Socket(family(to), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.out.Failed++
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	o.fd, o.connected, o.got, o.asked = fd, false, 0, a.now()
	for fd >= len(a.byFD) {
		a.byFD = append(a.byFD, make([]*one, len(a.byFD)+64)...)
	}
	a.byFD[fd] = o
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		a.fail(o)
		return
	}
	_ = unix.EpollCtl(a.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET, Fd: int32(fd)})
}

func (a *asker) fail(o *one) {
	a.out.Failed++
	unix.Close(o.fd)
	o.fd = -1
	if a.out.Failed < 100000 && a.now() < a.span {
		a.connect(o)
	}
}

func (a *asker) ask(o *one, at time.Duration) {
	o.got, o.asked = 0, at
	a.out.Sent++
	if n, err := unix.Write(o.fd, a.question); err != nil || n != len(a.question) {
		a.fail(o)
	}
}

func (a *asker) turn(wait time.Duration) {
	var events [512]unix.EpollEvent
	limit := unix.NsecToTimespec(int64(wait))
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(a.ep), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), uintptr(unsafe.Pointer(&limit)), 0, 0)
	if e != 0 {
		return
	}
	for _, ev := range events[:n] {
		o := a.byFD[ev.Fd]
		if o == nil || o.fd != int(ev.Fd) {
			continue
		}
		if !o.connected {
			if ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
				a.fail(o)
				continue
			}
			o.connected = true
			if a.again {
				a.ask(o, o.asked)
			}
			continue
		}
		if ev.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			continue
		}
		n, err := unix.Read(o.fd, a.buf)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if n <= 0 {
			a.fail(o)
			continue
		}
		if o.got += n; o.got < a.size {
			continue
		}
		now := a.now()
		a.out.Done++
		a.took = append(a.took, int64(now-o.asked))
		switch {
		case a.again:
			unix.Close(o.fd)
			a.byFD[o.fd] = nil
			a.connect(o)
		case a.rate > 0:
			a.due = append(a.due, o)
		default:
			a.ask(o, now)
		}
	}
}
