package kernel

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/nft"
)

// Numbers that golang.org/x/sys/unix does not have (include/uapi/linux/netfilter/nf_tables.h).
const (
	nftaListElem      = 1
	nftaExprName      = 1
	nftaExprData      = 2
	nftaDataValue     = 1
	nftaDataVerdict   = 2
	nftaVerdictCode   = 1
	nftaVerdictChain  = 2
	nftaRuleTable     = 1
	nftaRuleChain     = 2
	nftaRuleExprs     = 4
	nftaRuleUserdata  = 7
	nftaTableUserdata = 6
	nftaChainUserdata = 12
	nftaSetDescConcat = 2
	nftaSetFieldLen   = 1
	nftSetConcat      = 0x80
	nftDataVerdict    = 0xffffff00
	nftTableOwner     = 0x2
	nfDrop            = 0
	nfAccept          = 1
	nftGoto           = -4
	nftJump           = -3
	nftReturn         = -5
	nlaNested         = unix.NLA_F_NESTED
	batchFamily       = unix.AF_UNSPEC
	subsystemNFTables = unix.NFNL_SUBSYS_NFTABLES << 8
	messageHeader     = unix.SizeofNlMsghdr + 4 // and struct nfgenmsg
	userdataComment   = 0                       // NFTNL_UDATA_*_COMMENT of tables, chains, rules and elements
)

// maxElements is the room for the elements of one message: the length of an attribute has 16 bits.
const maxElements = 60000

// Batch is a transaction while it is put together: all of it happens, or nothing.
type Batch struct {
	buf []byte
	// messages says of each message what it is about, for errors.
	messages []subject
	// anonymous counts the sets without a name, which rules of the batch refer to by number.
	anonymous uint32
	open      int // where the current message begins
}

// subject is what one message is about.
type subject struct {
	kind   uint16
	family nft.Family
	table  string
	name   string
}

func (s subject) String() string {
	words := map[uint16]string{
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table",
		unix.NFT_MSG_NEWCHAIN: "add chain", unix.NFT_MSG_DELCHAIN: "delete chain",
		unix.NFT_MSG_NEWRULE: "add a rule to chain", unix.NFT_MSG_DELRULE: "flush chain",
		unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
		unix.NFT_MSG_NEWSETELEM: "add elements to set", unix.NFT_MSG_DELSETELEM: "delete elements of set",
	}
	text := words[s.kind]
	if s.name != "" {
		text += " " + s.name + " of table"
	}
	return fmt.Sprintf("%s %s %s", text, s.family, s.table)
}

// Empty tells whether there is nothing to do.
func (b *Batch) Empty() bool { return len(b.messages) == 0 }

// Size is how many bytes the messages take.
func (b *Batch) Size() int { return len(b.buf) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.buf, b.messages, b.anonymous = b.buf[:0], b.messages[:0], 0 }

// begin starts a message.
func (b *Batch) begin(kind uint16, flags uint16, t *nft.Table, name string) {
	b.messages = append(b.messages, subject{kind, t.Family, t.Name, name})
	b.header(subsystemNFTables|kind, flags, familyNumber(t.Family), 0)
}

func (b *Batch) header(kind, flags uint16, family byte, resource uint16) {
	b.open = len(b.buf)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, flags|unix.NLM_F_REQUEST)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(len(b.messages)))
	b.buf = binary.NativeEndian.AppendUint32(b.buf, 0)
	b.buf = append(b.buf, family, unix.NFNETLINK_V0)
	b.buf = binary.BigEndian.AppendUint16(b.buf, resource)
}

// end completes the message.
func (b *Batch) end() {
	binary.NativeEndian.PutUint32(b.buf[b.open:], uint32(len(b.buf)-b.open))
}

// nest starts an attribute that holds others; close it with the place that it returns.
func (b *Batch) nest(kind uint16) int {
	at := len(b.buf)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind|nlaNested)
	return at
}

func (b *Batch) close(at int) {
	binary.NativeEndian.PutUint16(b.buf[at:], uint16(len(b.buf)-at))
}

func (b *Batch) bytes(kind uint16, value []byte) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(unix.SizeofNlAttr+len(value)))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = append(b.buf, value...)
	b.pad()
}

func (b *Batch) string(kind uint16, value string) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(unix.SizeofNlAttr+len(value)+1))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = append(append(b.buf, value...), 0)
	b.pad()
}

func (b *Batch) pad() {
	for len(b.buf)%4 != 0 {
		b.buf = append(b.buf, 0)
	}
}

func (b *Batch) u32(kind uint16, v uint32) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, unix.SizeofNlAttr+4)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.BigEndian.AppendUint32(b.buf, v)
}

func (b *Batch) u64(kind uint16, v uint64) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, unix.SizeofNlAttr+8)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.BigEndian.AppendUint64(b.buf, v)
}

func (b *Batch) u8(kind uint16, v byte) { b.bytes(kind, []byte{v}) }

// comment writes a comment as nft keeps it with an object: in notes that the kernel does not read.
func (b *Batch) comment(kind uint16, note byte, text string) {
	if text == "" {
		return
	}
	if len(text) > 127 { // NFTNL_UDATA_COMMENT_MAXLEN
		text = text[:127]
	}
	value := append([]byte{note, byte(len(text) + 1)}, text...)
	b.bytes(kind, append(value, 0))
}

// familyNumber is NFPROTO_*.
func familyNumber(f nft.Family) byte {
	switch f {
	case nft.IP:
		return unix.NFPROTO_IPV4
	case nft.IP6:
		return unix.NFPROTO_IPV6
	case nft.Inet:
		return unix.NFPROTO_INET
	}
	return unix.NFPROTO_UNSPEC
}
