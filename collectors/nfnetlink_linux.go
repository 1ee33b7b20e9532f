package collectors

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// nfnetlink is a connection to the netfilter subsystems of the thread's network namespace. Opening one loads
// nfnetlink, and a message to a subsystem loads that: both must be known to be there.
type nfnetlink struct {
	fd  int
	seq uint32
	buf []byte
}

// errInterrupted is the error of a list that changed while the kernel gave it out.
var errInterrupted = errors.New("the list changed while it was read")

// netlinkWait bounds the wait for one answer of the kernel.
const netlinkWait = 10 // seconds

func openNFNetlink() (*nfnetlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkWait})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &nfnetlink{fd: fd, buf: make([]byte, 1<<17)}, nil
}

func (c *nfnetlink) close() { unix.Close(c.fd) }

const (
	nlHeader  = unix.SizeofNlMsghdr
	genHeader = 4 // struct nfgenmsg: family, version, resource
)

// ask sends one request and gives every message of the answer to each: the family in its header and its
// attributes, which are valid during the call only.
func (c *nfnetlink) ask(subsystem, message int, family byte, dump bool, attrs []byte, each func(family byte, attrs []byte)) error {
	c.seq++
	request := make([]byte, nlHeader+genHeader, nlHeader+genHeader+len(attrs))
	request = append(request, attrs...)
	flags := uint16(unix.NLM_F_REQUEST)
	if dump {
		flags |= unix.NLM_F_DUMP
	}
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], uint16(subsystem<<8|message))
	binary.NativeEndian.PutUint16(request[6:], flags)
	binary.NativeEndian.PutUint32(request[8:], c.seq)
	request[nlHeader] = family
	if err := unix.Sendto(c.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	interrupted := false
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return fmt.Errorf("the kernel does not answer for %d s", netlinkWait)
		case err != nil:
			return err
		}
		for data := c.buf[:n]; len(data) >= nlHeader; {
			size := int(binary.NativeEndian.Uint32(data))
			if size < nlHeader || size > len(data) {
				return errors.New("the kernel's answer was cut")
			}
			message := data[:size]
			data = data[min(len(data), (size+3)&^3):]
			if binary.NativeEndian.Uint32(message[8:]) != c.seq {
				continue
			}
			interrupted = interrupted || binary.NativeEndian.Uint16(message[6:])&unix.NLM_F_DUMP_INTR != 0
			switch body := message[nlHeader:]; binary.NativeEndian.Uint16(message[4:]) {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				if len(body) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
						return unix.Errno(-code)
					}
				}
				if interrupted {
					return errInterrupted
				}
				return nil
			case unix.NLMSG_NOOP:
			default:
				if len(body) >= genHeader {
					each(body[0], body[genHeader:])
				}
				if !dump {
					return nil
				}
			}
		}
	}
}

// attributes gives every attribute to each: nfnetlink writes them as rtnetlink does.
func attributes(data []byte, each func(kind uint16, value []byte)) {
	for kind, value := range rtAttributes(data) {
		each(kind, value)
	}
}

// attribute appends one attribute.
func attribute(to []byte, kind uint16, value ...byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(unix.SizeofNlAttr+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	for len(to)%4 != 0 {
		to = append(to, 0)
	}
	return to
}

// cString is a string as the kernel writes it, with a zero at its end.
func cString(b []byte) string { return unix.ByteSliceToString(b) }
