//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// dumpNFT is the ruleset of the node as the kernel tells it by netlink, written down in the form of a netlink capture
// (explain/nft/netlink_file.go): every message that it answers with, as it came.
func (l *lab) dumpNFT() ([]byte, error) {
	order := "little-endian"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = "big-endian"
	}
	out := fmt.Appendf(nil, "svcnet nf_tables netlink 1\nbyte-order %s\ngeneration 1\n", order)
	for _, link := range l.host().Links {
		out = fmt.Appendf(out, "interface %d %s\n", link.Index, link.Name)
	}
	out = append(out, '\n')
	return out, l.node.do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		defer unix.Close(fd)
		type set struct {
			family      byte
			table, name []byte
		}
		var sets []set
		for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
			answer, err := dump(fd, kind, unix.NLM_F_DUMP, unix.AF_UNSPEC)
			if err != nil {
				return fmt.Errorf("list by message %d: %w", kind, err)
			}
			out = append(out, answer...)
			if kind != unix.NFT_MSG_GETSET {
				continue
			}
			for family, attrs := range messages(answer) {
				s := set{family: family}
				for k, data := range attributesOf(attrs) {
					switch k {
					case unix.NFTA_SET_TABLE:
						s.table = bytes.Clone(data)
					case unix.NFTA_SET_NAME:
						s.name = bytes.Clone(data)
					}
				}
				if s.name != nil {
					sets = append(sets, s)
				}
			}
		}
		for _, s := range sets {
			answer, err := dump(fd, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, s.family, attribute(unix.NFTA_SET_ELEM_LIST_TABLE, s.table), attribute(unix.NFTA_SET_ELEM_LIST_SET, s.name))
			if err != nil {
				return fmt.Errorf("list elements of %s: %w", s.name, err)
			}
			out = append(out, answer...)
		}
		answer, err := dump(fd, unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC)
		out = append(out, answer...)
		return err
	})
}

// dump asks nf_tables and returns the messages of the answer as they came.
func dump(fd int, kind, flags uint16, family byte, attrs ...[]byte) ([]byte, error) {
	b := make([]byte, 16+nfgenmsgLen, 256)
	for _, a := range attrs {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	b[16] = family
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	var out []byte
	buf := make([]byte, 1<<18)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		out = append(out, buf[:n]...)
		done := flags&unix.NLM_F_DUMP == 0
		for m := buf[:n]; len(m) >= 16; {
			size := int(binary.NativeEndian.Uint32(m))
			switch binary.NativeEndian.Uint16(m[4:]) {
			case unix.NLMSG_DONE:
				done = true
			case unix.NLMSG_ERROR:
				if code := int32(binary.NativeEndian.Uint32(m[16:])); code != 0 {
					return nil, unix.Errno(-code)
				}
			}
			if size < 16 || size > len(m) {
				break
			}
			m = m[min((size+3)&^3, len(m)):]
		}
		if done {
			return out, nil
		}
	}
}

// messages gives the family and the attributes of each message of nf_tables.
func messages(b []byte) func(yield func(byte, []byte) bool) {
	return func(yield func(byte, []byte) bool) {
		for len(b) >= 16+nfgenmsgLen {
			size := int(binary.NativeEndian.Uint32(b))
			if size < 16 || size > len(b) {
				return
			}
			if binary.NativeEndian.Uint16(b[4:])>>8 == unix.NFNL_SUBSYS_NFTABLES && size >= 16+nfgenmsgLen && !yield(b[16], b[16+nfgenmsgLen:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// attributesOf gives the kind and the data of each attribute.
func attributesOf(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size := int(binary.NativeEndian.Uint16(b))
			if size < 4 || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&0x3fff, b[4:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}
