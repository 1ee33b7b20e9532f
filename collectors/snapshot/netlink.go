package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// Rules of nf_tables are kept as the messages that the kernel gave. They are no text, so that the file begins with
// some: a header of lines, an empty line, and then the messages one after the other, in the byte order of the machine.
// The last message says of which generation of the ruleset the others are (NFT_MSG_NEWGEN): without it the file was
// cut. The form is written by collectors and read by explain/nft.

// NetlinkMagic is the first line of such a file.
const NetlinkMagic = "svcnet nf_tables netlink 1"

// isNetlink tells such a file by its beginning, of whatever version of the form it is.
func isNetlink(data []byte) bool {
	return bytes.HasPrefix(data, []byte(strings.TrimRight(NetlinkMagic, "0123456789")))
}

// netlink makes evidence of a file of netlink messages.
func (l *loader) netlink(name string, in io.Reader) {
	data, cut, err := l.take(in)
	if tooMuch(err) {
		l.stopTotal(name, err)
		return
	}
	e := Evidence{Format: NFTNetlink, File: name, Data: data, Status: OK}
	switch {
	case NotEvaluated(e.Format) != "":
		e.Status, e.Error = Unsupported, NotEvaluated(e.Format)
	case cut:
		e.Status, e.Error = Truncated, fmt.Sprintf("read %s: it is longer than %d MiB: the rest was not read", name, l.fileBytes>>20)
	case err != nil:
		e.Status, e.Error = Truncated, fmt.Sprintf("read %s: %v: what stands after byte %d was not read; copy the file again",
			name, reason(err), len(data))
	default:
		e.checkNetlink()
	}
	l.add(e)
}

// checkNetlink marks evidence that was cut.
func (e *Evidence) checkNetlink() {
	if !netlinkEnds(e.Data) {
		e.Status, e.Error = Truncated, fmt.Sprintf("read %s: it ends before its last message: rules are missing; copy the file again",
			e.File)
	}
}

// netlinkEnds tells whether the messages go on to the one that ends them.
func netlinkEnds(data []byte) bool {
	const header, newGen = 16, 10<<8 | 15 // struct nlmsghdr; NFNL_SUBSYS_NFTABLES and NFT_MSG_NEWGEN
	text, data, ok := bytes.Cut(data, []byte("\n\n"))
	if !ok {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if bytes.Contains(text, []byte("\nbyte-order big-endian")) {
		order = binary.BigEndian
	}
	ends := false
	for len(data) > 0 {
		if len(data) < header {
			return false
		}
		size := uint64(order.Uint32(data))
		if size < header || size > uint64(len(data)) {
			return false
		}
		ends = order.Uint16(data[4:]) == newGen
		data = data[min(uint64(len(data)), (size+3)&^3):]
	}
	return ends
}
