package relay

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the loops. None of them blocks (every socket and pipe is non-blocking), so the scheduler of the
// runtime need not hear of them: a raw call costs half as much as one that it prepares for. The one call that waits,
// epoll_wait, is an ordinary one.

const noError = unix.Errno(0)

func accept4(fd int, from *sockaddr) (int, unix.Errno) {
	from.len = uint32(len(from.raw))
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&from.raw)), uintptr(unsafe.Pointer(&from.len)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), e
}

func socket(family, kind int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), 0)
	return int(n), e
}

func connect(fd int, to *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), uintptr(to.len))
	return e
}

func receive(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

func sendTo(fd int, b []byte, to *sockaddr) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&to.raw)), uintptr(to.len))
	return int(n), e
}

func splice(from, to, most int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(most), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(n), e
}

func shutdownWrite(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

func closeFD(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

func setInt(fd, level, option int, value int32) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return e
}

// pendingError is the error that waits at a socket, and takes it from there.
func pendingError(fd int) unix.Errno {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return errnoOf(err)
	}
	return unix.Errno(n)
}

// resetFD closes a connection so that the other end hears of a reset, and not of an end.
func resetFD(fd int) {
	linger := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0)
	closeFD(fd)
}

// epollAdd, epollMod and epollDel: tag comes back with every event.
func epollAdd(ep, fd int, events uint32, tag uint64) unix.Errno {
	return epollControl(ep, unix.EPOLL_CTL_ADD, fd, events, tag)
}

func epollDel(ep, fd int) {
	_ = epollControl(ep, unix.EPOLL_CTL_DEL, fd, 0, 0)
}

func epollControl(ep, op, fd int, events uint32, tag uint64) unix.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(uint32(tag)), Pad: int32(uint32(tag >> 32))}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(ep), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

func tagOf(ev *unix.EpollEvent) uint64 { return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32 }

// epollWait waits at most for d, or for ever where d is negative. For a moment it waits without telling the runtime,
// which would give the processor of this thread to others, and have to find another one for it, each time: a loop that
// has much to do finds something within the moment. A thread that the runtime wants to stop gets a signal, which ends the
// wait.
func epollWait(ep int, events []unix.EpollEvent, d time.Duration) int {
	ms := -1
	if d >= 0 {
		ms = int((d + time.Millisecond - 1) / time.Millisecond)
	}
	moment := 1
	if d >= 0 {
		moment = min(moment, ms)
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(moment), 0, 0)
	if e == noError && n > 0 || moment == ms {
		return max(0, int(n))
	}
	m, err := unix.EpollWait(ep, events, ms)
	if err != nil {
		return 0
	}
	return m
}

func errnoOf(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EINVAL
}
