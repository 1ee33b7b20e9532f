package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// transfer reads as much as comes on some connections. The kernel throws it away (MSG_TRUNC): copying it would be the
// client's work.
func transfer(to []unix.Sockaddr, clients int, span time.Duration) (result, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return result{}, err
	}
	for i := range clients {
		sa := to[i%len(to)]
		fd, err := unix.Socket(family(sa), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return result{}, err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sa); err != nil {
			return result{}, fmt.Errorf("connect: %w", err)
		}
		_ = unix.SetNonblock(fd, true)
		_ = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	var out result
	var events [64]unix.EpollEvent
	buf := make([]byte, 1<<20)
	const warm = 300 * time.Millisecond
	begun := time.Now()
	counting := false
	for {
		took := time.Since(begun)
		if !counting && took > warm {
			counting, begun, out.Done = true, time.Now(), 0
			took = 0
		}
		if counting && took > span {
			out.Seconds = took.Seconds()
			return out, nil
		}
		n, err := unix.EpollWait(ep, events[:], 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return out, err
		}
		for _, ev := range events[:max(0, n)] {
			for range 4 {
				n, _, err := unix.Recvfrom(int(ev.Fd), buf, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
				if err != nil {
					break
				}
				if n == 0 {
					return out, errors.New("the connection ended")
				}
				out.Done += int64(n)
			}
		}
	}
}

// datagrams asks at a rate, each time from another port, and waits at most a second for the answer.
func datagrams(to []unix.Sockaddr, rate int, span time.Duration, size int) (result, error) {
	if rate <= 0 || rate > 200000 {
		return result{}, errors.New("give a -rate of at most 200000")
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return result{}, err
	}
	type asked struct {
		fd   int
		when time.Duration
	}
	var out result
	var took []int64
	var events [512]unix.EpollEvent
	var waiting []asked
	sent := make(map[int]time.Duration)
	from, question, buf := 0, make([]byte, size), make([]byte, 64<<10)
	begun := time.Now()
	for {
		now := time.Since(begun)
		for out.Sent < int64(now.Seconds()*float64(rate)) && now < span {
			sa := to[int(out.Sent)%len(to)]
			out.Sent++
			fd, err := unix.Socket(family(sa), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return out, err
			}
			if err := unix.Connect(fd, sa); err != nil {
				unix.Close(fd)
				continue
			}
			_ = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
			at := time.Since(begun)
			sent[fd] = at
			waiting = append(waiting, asked{fd, at})
			_, _ = unix.Write(fd, question)
		}
		n, err := unix.EpollWait(ep, events[:], 1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return out, err
		}
		now = time.Since(begun)
		for _, ev := range events[:max(0, n)] {
			fd := int(ev.Fd)
			if n, err := unix.Read(fd, buf); err == nil && n == size {
				out.Done++
				took = append(took, int64(now-sent[fd]))
			}
			delete(sent, fd)
			unix.Close(fd)
		}
		for from < len(waiting) && now-waiting[from].when > time.Second {
			w := waiting[from]
			from++
			if at, ok := sent[w.fd]; ok && at == w.when {
				delete(sent, w.fd)
				unix.Close(w.fd)
			}
		}
		if now > span && (len(sent) == 0 || now > span+time.Second) {
			break
		}
	}
	out.Failed = out.Sent - out.Done
	out.Seconds = span.Seconds()
	summarize(&out, took)
	return out, nil
}
