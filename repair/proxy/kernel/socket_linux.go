package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
)

// Writer is a connection to nf_tables of the network namespace of the thread that opened it. It is used by one goroutine
// at a time.
type Writer struct {
	fd   int
	room int
	buf  []byte
}

// answerWait bounds the wait for the kernel's answer: it has done the work by then.
const answerWait = 30 * time.Second

// Open connects. Where the kernel has no nf_tables the first Send fails with ErrNoNFTables.
func Open() (*Writer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(answerWait.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &Writer{fd: fd, buf: make([]byte, 1<<16)}, nil
}

// Close ends the connection, and with it the tables that it owns.
func (w *Writer) Close() error { return unix.Close(w.fd) }

// Refused is a transaction that the kernel did not take: nothing of it happened.
type Refused struct {
	// What says of which message the kernel complains, as "add chain x of table ip y".
	What string
	Err  unix.Errno
}

func (r *Refused) Error() string { return fmt.Sprintf("%s: %v", r.What, r.Err) }

// Unwrap is the kernel's error.
func (r *Refused) Unwrap() error { return r.Err }

// ErrNoNFTables is of a kernel without nf_tables.
var ErrNoNFTables = errors.New("the kernel has no nf_tables")

// Send makes the transaction happen. The error is a *Refused where the kernel does not take it.
func (w *Writer) Send(b *Batch) error { return w.send(b, true) }

// Try has the kernel look whether it would take the transaction, and do nothing: one that has no end is given up
// (nfnetlink_rcv_batch). The kernel may load what the transaction needs.
func (w *Writer) Try(b *Batch) error { return w.send(b, false) }

func (w *Writer) send(b *Batch, whole bool) error {
	if b.Empty() {
		return nil
	}
	// The frame goes around the messages: one to begin with, one at the end, and a question whose answer comes behind all
	// complaints.
	var frame Batch
	frame.header(unix.NFNL_MSG_BATCH_BEGIN, 0, batchFamily, unix.NFNL_SUBSYS_NFTABLES)
	frame.end()
	begin := len(frame.buf)
	frame.header(unix.NFNL_MSG_BATCH_END, 0, batchFamily, unix.NFNL_SUBSYS_NFTABLES)
	frame.end()
	parts := make([][]byte, 0, 3)
	if parts = append(parts, frame.buf[:begin], b.buf); whole {
		parts = append(parts, frame.buf[begin:])
	}
	if err := w.makeRoom(len(b.buf) + len(frame.buf)); err != nil {
		return err
	}
	if _, err := unix.SendmsgBuffers(w.fd, parts, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0); err != nil {
		return fmt.Errorf("send %d messages to nf_tables: %w", len(b.messages), err)
	}
	return w.answer(b)
}

// makeRoom makes the socket's buffer as large as a transaction, which is handed over in one piece.
func (w *Writer) makeRoom(size int) error {
	size += 1 << 12
	if size <= w.room {
		return nil
	}
	err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size)
	if err != nil {
		err = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
	if err != nil {
		return fmt.Errorf("make room for a transaction of %d bytes: %w", size, err)
	}
	w.room = size
	return nil
}

// lastQuestion is the sequence number of the question behind a transaction.
const lastQuestion = 0xffffffff

// answer reads complaints, up to the answer to a question that is asked behind the transaction.
func (w *Writer) answer(b *Batch) error {
	var question Batch
	question.header(subsystemNFTables|unix.NFT_MSG_GETGEN, 0, batchFamily, 0)
	binary.NativeEndian.PutUint32(question.buf[8:], lastQuestion)
	question.end()
	if err := unix.Sendto(w.fd, question.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask nf_tables for its generation: %w", err)
	}
	var first error
	for {
		n, _, err := unix.Recvfrom(w.fd, w.buf, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENOBUFS:
			// More complaints than the buffer holds: the first is what counts.
			continue
		case err == unix.EAGAIN:
			return fmt.Errorf("nf_tables does not answer for %s", answerWait)
		case err != nil:
			return fmt.Errorf("read the answer of nf_tables: %w", err)
		}
		for data := w.buf[:n]; len(data) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(data))
			if size < unix.SizeofNlMsghdr || size > len(data) {
				return errors.New("read the answer of nf_tables: it was cut")
			}
			kind, seq := binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint32(data[8:])
			body := data[unix.SizeofNlMsghdr:size]
			data = data[min(len(data), (size+3)&^3):]
			code := unix.Errno(0)
			if kind == unix.NLMSG_ERROR && len(body) >= 4 {
				code = unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			}
			switch {
			case seq == lastQuestion && code == unix.EINVAL, seq == lastQuestion && code == unix.EOPNOTSUPP:
				return ErrNoNFTables
			case seq == lastQuestion:
				return first
			case code == 0 || first != nil:
			case int(seq) > 0 && int(seq) <= len(b.messages):
				first = &Refused{What: b.messages[seq-1].String(), Err: code}
			default:
				first = &Refused{What: "change the tables", Err: code}
			}
		}
	}
}

// Has tells whether a table is there.
func (w *Writer) Has(t *nft.Table) (bool, error) {
	var q Batch
	q.begin(unix.NFT_MSG_GETTABLE, 0, t, "")
	q.string(unix.NFTA_TABLE_NAME, t.Name)
	q.end()
	if err := unix.Sendto(w.fd, q.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for table %s: %w", t, err)
	}
	for {
		n, _, err := unix.Recvfrom(w.fd, w.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("ask for table %s: %w", t, err)
		}
		if n < unix.SizeofNlMsghdr+4 {
			return false, fmt.Errorf("ask for table %s: the answer was cut", t)
		}
		if binary.NativeEndian.Uint16(w.buf[4:]) != unix.NLMSG_ERROR {
			return true, nil
		}
		switch code := unix.Errno(-int32(binary.NativeEndian.Uint32(w.buf[unix.SizeofNlMsghdr:]))); code {
		case 0:
			continue
		case unix.ENOENT:
			return false, nil
		default:
			return false, fmt.Errorf("ask for table %s: %w", t, code)
		}
	}
}
