//go:build linux

package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// traceGroup is the NFLOG group of the rules that the harness puts in front of the generated ones.
const traceGroup = 77

// A point is a place in the rules that a packet reached: in front of rule index of a chain, counted as the chain
// stands, or its end.
type point struct {
	backend netfilter.Backend
	table   string
	chain   string
	index   int
	atEnd   bool
	// hit says that the packet passed the tests of the rule, base that the chain is a base chain; both are told of
	// nft's own rules only.
	hit, base bool
	mark      uint32
}

func (p point) String() string {
	what := ""
	switch {
	case p.hit:
		what = " passed"
	case p.atEnd && p.backend == nftBackend:
		what = " end"
	}
	return fmt.Sprintf("%s %s %s[%d]%s mark %#x", p.backend, p.table, p.chain, p.index, what, p.mark)
}

// tracePrefix is the NFLOG prefix that tells a point: the place of a rule, or the end of a chain.
func tracePrefix(b netfilter.Backend, table, chain string, index int, atEnd bool) string {
	if atEnd {
		return fmt.Sprintf("%s/%s/%s/%d/end", b, table, chain, index)
	}
	return fmt.Sprintf("%s/%s/%s/%d", b, table, chain, index)
}

func parsePrefix(s string) (point, bool) {
	if rest, ok := strings.CutPrefix(s, nftBackend+"|"); ok {
		return parseNFTPrefix(rest)
	}
	f := strings.Split(s, "/")
	if len(f) < 4 {
		return point{}, false
	}
	n, err := strconv.Atoi(f[3])
	return point{backend: netfilter.Backend(f[0]), table: f[1], chain: f[2], index: n, atEnd: len(f) == 5}, err == nil
}

// A tracer receives what the NFLOG rules log, over nfnetlink_log (include/uapi/linux/netfilter/nfnetlink_log.h).
type tracer struct{ fd int }

// The parts of nfnetlink_log used here.
const (
	subsysULOG     = 4 // NFNL_SUBSYS_ULOG
	ulogPacket     = 0 // NFULNL_MSG_PACKET
	ulogConfig     = 1 // NFULNL_MSG_CONFIG
	cfgCmd         = 1 // NFULA_CFG_CMD
	cfgMode        = 2 // NFULA_CFG_MODE
	cfgThreshold   = 5 // NFULA_CFG_QTHRESH
	cmdBind        = 1 // NFULNL_CFG_CMD_BIND
	copyPacket     = 2 // NFULNL_COPY_PACKET
	attrMark       = 2 // NFULA_MARK
	attrPayload    = 9 // NFULA_PAYLOAD
	attrPrefix     = 10
	subsysAcct     = 7 // NFNL_SUBSYS_ACCT
	acctNew        = 0 // NFNL_MSG_ACCT_NEW
	acctNameAttr   = 1 // NFACCT_NAME
	acctName       = "svcnet"
	nfgenmsgLen    = 4
	traceCopyBytes = 256
)

func newTracer(l *lab) (*tracer, error) {
	t := &tracer{fd: -1}
	return t, l.node.do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		t.fd = fd
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("bind netlink socket: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			return fmt.Errorf("enlarge netlink buffer: %w", err)
		}
		mode := append(binary.BigEndian.AppendUint32(nil, traceCopyBytes), copyPacket, 0)
		for _, attr := range [][]byte{
			attribute(cfgCmd, []byte{cmdBind}),
			attribute(cfgMode, mode),
			attribute(cfgThreshold, binary.BigEndian.AppendUint32(nil, 1)),
		} {
			if err := t.configure(attr); err != nil {
				return err
			}
		}
		// The object that -m nfacct counts in; there is no tool for it everywhere (linux/netfilter/nfnetlink_acct.h).
		if err := request(fd, subsysAcct<<8|acctNew, unix.NLM_F_CREATE, 0, attribute(acctNameAttr, append([]byte(acctName), 0))); err != nil {
			return fmt.Errorf("create accounting object: %w", err)
		}
		return unix.SetNonblock(fd, true)
	})
}

func (t *tracer) close() { unix.Close(t.fd) }

// configure sends one configuration message and waits for its acknowledgement.
func (t *tracer) configure(attr []byte) error {
	if err := request(t.fd, subsysULOG<<8|ulogConfig, 0, traceGroup, attr); err != nil {
		return fmt.Errorf("configure nfnetlink_log: %w", err)
	}
	return nil
}

// request sends one message of a netfilter subsystem and waits for its acknowledgement. The kind is the subsystem and
// its message (struct nlmsghdr), resource the res_id of struct nfgenmsg.
func request(fd int, kind, flags, resource uint16, attrs ...[]byte) error {
	b := make([]byte, 16+nfgenmsgLen, 64)
	for _, a := range attrs {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	binary.BigEndian.PutUint16(b[18:], resource)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if n >= 20 && binary.NativeEndian.Uint16(reply[4:]) == unix.NLMSG_ERROR {
		if code := int32(binary.NativeEndian.Uint32(reply[16:])); code != 0 {
			return unix.Errno(-code)
		}
	}
	return nil
}

func attribute(kind uint16, data []byte) []byte {
	b := make([]byte, 4, 4+len(data)+3)
	binary.NativeEndian.PutUint16(b, uint16(4+len(data)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// read takes what has been logged into the observations.
func (t *tracer) read(buf []byte, byID map[uint32]*observation) error {
	for {
		n, _, err := unix.Recvfrom(t.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read nfnetlink_log: %w", err)
		}
		for b := buf[:n]; len(b) >= 16; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < 16 || size > len(b) {
				break
			}
			if binary.NativeEndian.Uint16(b[4:]) == subsysULOG<<8|ulogPacket {
				readLog(b[16+nfgenmsgLen:size], byID)
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

func readLog(b []byte, byID map[uint32]*observation) {
	var at point
	var is bool
	var mark uint32
	var ob *observation
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		data := b[4:size]
		switch binary.NativeEndian.Uint16(b[2:]) & 0x3fff {
		case attrPrefix:
			at, is = parsePrefix(strings.TrimRight(string(data), "\x00"))
		case attrMark:
			mark = binary.BigEndian.Uint32(data)
		case attrPayload:
			if d, answer, ok := parse(data); ok && answer == "" {
				ob = byID[d.id]
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if is && ob != nil {
		at.mark = mark
		ob.path = append(ob.path, at)
	}
}
