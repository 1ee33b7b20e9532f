package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// A netlink capture is the kernel's own answer, kept as it came: a header of text lines, an empty line, and then the
// messages of nfnetlink one after the other. The header says what the messages do not:
//
//	svcnet nf_tables netlink 1
//	byte-order little-endian
//	generation 42
//	interface 1 lo
//
// Headers of messages and attributes, and values such as marks, stand in the byte order of the machine that was read
// (include/uapi/linux/netlink.h). Interfaces are there because rules name them by number ("iif"). Of messages that are
// about no table (NLMSG_DONE) there may be any. The last message is NFT_MSG_NEWGEN: a capture without it was cut.

// netlinkMagic is the first line of a netlink capture, up to the version of its form.
const netlinkMagic = "svcnet nf_tables netlink "

// netlinkVersion is the version of the form that this program reads.
const netlinkVersion = 1

// maxNetlinkHeader bounds the text in front of the messages.
const maxNetlinkHeader = 4 << 20

// netlinkHeader is what stands in front of the messages.
type netlinkHeader struct {
	order      binary.ByteOrder
	generation uint32
	// interfaces are the names of the node's interfaces by number.
	interfaces map[uint32]string
}

// IsNetlink tells a netlink capture by its first line.
func IsNetlink(data []byte) bool { return bytes.HasPrefix(data, []byte(netlinkMagic)) }

// parseNetlinkHeader reads the header and returns what stands behind it.
func parseNetlinkHeader(data []byte) (h netlinkHeader, rest []byte, err error) {
	end := bytes.Index(data[:min(len(data), maxNetlinkHeader)], []byte("\n\n"))
	if end < 0 {
		return h, nil, fmt.Errorf("its header does not end")
	}
	first, lines, _ := strings.Cut(string(data[:end]), "\n")
	version, ours := strings.CutPrefix(first, netlinkMagic)
	if n, err := strconv.Atoi(version); !ours || err != nil || n != netlinkVersion {
		return h, nil, fmt.Errorf("its first line is %q, and this program reads version %d", cutText(first), netlinkVersion)
	}
	h.interfaces = map[uint32]string{}
	for line := range strings.SplitSeq(lines, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "byte-order":
			switch value {
			case "little-endian":
				h.order = binary.LittleEndian
			case "big-endian":
				h.order = binary.BigEndian
			}
		case "generation":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				h.generation = uint32(n)
			}
		case "interface":
			number, name, _ := strings.Cut(value, " ")
			if n, err := strconv.ParseUint(number, 10, 32); err == nil && name != "" {
				h.interfaces[uint32(n)] = name
			}
		}
	}
	if h.order == nil {
		return h, nil, fmt.Errorf("its header names no byte order")
	}
	return h, data[end+2:], nil
}

// cutText shortens text for a message.
func cutText(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// netlinkMessage is one message about tables.
type netlinkMessage struct {
	kind   uint16 // NFT_MSG_*
	family byte   // NFPROTO_*
	attrs  []byte
}

// Sizes of what stands before the attributes of a message.
const (
	nlmsgHeader = 16 // struct nlmsghdr: length, type, flags, sequence, port
	nfgenHeader = 4  // struct nfgenmsg: family, version, resource
)

// messages gives every message about tables to each. Why says that the last one is cut, or that the end mark is missing.
func (h netlinkHeader) messages(data []byte, each func(netlinkMessage)) (why string) {
	ended := false
	for len(data) > 0 {
		if len(data) < nlmsgHeader {
			return "the capture ends within the header of a message"
		}
		size := uint64(h.order.Uint32(data))
		switch {
		case size < nlmsgHeader:
			return fmt.Sprintf("a message says that it is %d bytes long: what follows cannot be read", size)
		case size > uint64(len(data)):
			return fmt.Sprintf("the capture ends within a message of %d bytes", size)
		}
		kind := h.order.Uint16(data[4:])
		body := data[nlmsgHeader:size]
		data = data[min(uint64(len(data)), (size+3)&^3):]
		if kind>>8 != nfnlSubsysNFTables || len(body) < nfgenHeader {
			continue // NLMSG_DONE and the like
		}
		if ended = kind&0xff == nftMsgNewGen; !ended {
			each(netlinkMessage{kind & 0xff, body[0], body[nfgenHeader:]})
		}
	}
	if !ended {
		return "the capture has no end mark: it was cut between two messages"
	}
	return ""
}
