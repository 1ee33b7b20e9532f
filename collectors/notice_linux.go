package collectors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// FollowRules tells of changes of rules until ctx ends, each from one goroutine. What the kernel does not tell by itself is
// looked at every poll, less often where looking takes long. It reads the network namespace of the process.
func FollowRules(ctx context.Context, poll time.Duration, each func(Notice)) (Noticing, error) {
	f := &ruleFollower{poll: poll, each: each, place: &place{timeout: DefaultCommandTimeout, kernel: &kernelParts{}}, fd: -1}
	how := Noticing{Poll: poll}
	switch err := f.subscribe(); {
	case err == nil:
		how.NFT = "netlink"
	case f.place.kernel.has("nf_tables"):
		how.NFT = "poll"
	}
	f.look(time.Now(), true)
	go f.run(ctx)
	return how, nil
}

// ruleFollower follows the rules of one network namespace.
type ruleFollower struct {
	place *place
	poll  time.Duration
	each  func(Notice)
	// fd is the socket on which nf_tables tells of its changes, -1 where it does not.
	fd int
	// marks are what was there at the last look, which began at looked.
	marks  map[string]string
	looked time.Time
	buf    [1 << 16]byte
}

// NFNLGRP_NFTABLES, and NFTA_GEN_PROC_PID and NFTA_GEN_PROC_NAME, which package unix does not have.
const (
	groupNFTables  = 7
	nftaGenPID     = 2
	nftaGenProcess = 3
	// genMessage is the type of the message with which nf_tables ends the notice of a change.
	genMessage = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
)

// subscribe has nf_tables tell of its changes. A filter lets only the last message of each through, that with the number
// of the new generation: a sync of kube-proxy is megabytes of others, which nobody here wants to read.
func (f *ruleFollower) subscribe() error {
	for _, part := range []string{"nfnetlink", "nf_tables"} {
		if !f.place.kernel.has(part) {
			reason, certain := f.place.kernel.why(part)
			return noSubsystem{reason, certain}
		}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	// The filter reads in the order of the network, messages are in that of the machine.
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, genMessage))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // nlmsg_type
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (groupNFTables - 1)})
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("follow the changes of nf_tables: %w", err)
	}
	f.fd = fd
	return nil
}

func (f *ruleFollower) run(ctx context.Context) {
	defer func() {
		if f.fd >= 0 {
			unix.Close(f.fd)
		}
	}()
	next := time.Now().Add(f.poll)
	for ctx.Err() == nil {
		if f.wait(min(time.Until(next), time.Second)) {
			f.receive()
		}
		if now := time.Now(); !now.Before(next) {
			took := f.look(now, false)
			// At most a twentieth of the time is spent with looking.
			next = time.Now().Add(max(f.poll, 20*took))
		}
	}
}

// wait waits for a notice of the kernel.
func (f *ruleFollower) wait(d time.Duration) bool {
	d = max(d, time.Millisecond)
	if f.fd < 0 {
		time.Sleep(d)
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int((d+time.Millisecond-1)/time.Millisecond))
	return err == nil && n > 0
}

// receive reads what the kernel has told.
func (f *ruleFollower) receive() {
	for {
		n, _, err := unix.Recvfrom(f.fd, f.buf[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			// Some were lost: that something changed is known all the same.
			f.each(Notice{At: time.Now()})
			continue
		case err != nil:
			return
		}
		at := time.Now()
		for data := f.buf[:n]; len(data) >= nlHeader+genHeader; {
			size := int(binary.NativeEndian.Uint32(data))
			if size < nlHeader+genHeader || size > len(data) {
				break
			}
			if binary.NativeEndian.Uint16(data[4:]) == genMessage {
				f.each(noticeOf(at, data[nlHeader+genHeader:size]))
			}
			data = data[min(len(data), (size+3)&^3):]
		}
	}
}

// noticeOf is the notice in the attributes of a new generation.
func noticeOf(at time.Time, attrs []byte) Notice {
	n := Notice{At: at}
	attributes(attrs, func(kind uint16, value []byte) {
		switch {
		case kind == nftaGenPID && len(value) == 4:
			n.PID = int(binary.BigEndian.Uint32(value))
		case kind == nftaGenProcess:
			n.Process = cString(value)
		}
	})
	return n
}

// look compares what the kernel does not tell of with what was there at the last look, and tells of a difference unless it
// is the first look. It returns how long that took.
func (f *ruleFollower) look(now time.Time, first bool) time.Duration {
	marks := make(map[string]string)
	note := func(name, mark string, err error) {
		if err != nil {
			mark = "not read: " + err.Error()
		}
		marks[name] = mark
	}
	mark, err := markLegacy()
	note("legacy", mark, err)
	mark, err = markIPVS()
	note("ipvs", mark, err)
	if f.fd < 0 {
		// nf_tables may be there by now.
		f.place.kernel = &kernelParts{symbols: f.place.kernel.symbols, symbolsErr: f.place.kernel.symbolsErr}
		mark, err = markNFT(f.place)
		note("nft", mark, err)
		if !first && f.subscribe() == nil {
			defer f.receive()
		}
	} else {
		marks["nft"] = f.marks["nft"]
	}
	changed := false
	for name, mark := range marks {
		changed = changed || f.marks[name] != mark
	}
	since := f.looked
	f.marks, f.looked = marks, now
	if changed && !first {
		f.each(Notice{At: time.Now(), Since: since})
	}
	return time.Since(now)
}
