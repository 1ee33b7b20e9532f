package nft

import (
	"fmt"
	"strconv"
)

// option is a header or option of which an exthdr expression reads something (NFTA_EXTHDR_*).
type option struct {
	op   uint32 // NFT_EXTHDR_OP_*
	kind byte   // the protocol of the header, the kind of the option, the type of the chunk
	// present is set where only its presence is asked.
	present bool
}

// NFTA_EXTHDR_*, NFT_EXTHDR_OP_*, NFT_EXTHDR_F_PRESENT.
const (
	nftaExthdrDreg   = 1
	nftaExthdrType   = 2
	nftaExthdrOffset = 3
	nftaExthdrLen    = 4
	nftaExthdrFlags  = 5
	nftaExthdrOp     = 6
	nftaExthdrSreg   = 7

	nftExthdrIPv6   = 0
	nftExthdrTCPOpt = 1
	nftExthdrIPv4   = 2
	nftExthdrSCTP   = 3

	nftExthdrPresent = 1
)

// optionNames are the names of headers (IPPROTO_*), options and chunks by their numbers on the wire.
var optionNames = map[uint32]map[byte][]string{
	nftExthdrIPv6: {0: {"hbh"}, 43: {"rt", "srh", "rt0"}, 44: {"frag"}, 60: {"dst"}, 135: {"mh"}},
	nftExthdrTCPOpt: {
		0: {"eol"}, 1: {"nop"}, 2: {"maxseg"}, 3: {"window"}, 4: {"sack-perm"}, 5: {"sack", "sack1", "sack2", "sack3"},
		8: {"timestamp"}, 19: {"md5sig"}, 30: {"mptcp"}, 34: {"fastopen"},
	},
	nftExthdrIPv4: {7: {"rr"}, 131: {"lsrr"}, 137: {"ssrr"}, 148: {"ra"}},
	nftExthdrSCTP: {
		0: {"data"}, 1: {"init"}, 2: {"init-ack"}, 3: {"sack"}, 4: {"heartbeat"}, 5: {"heartbeat-ack"}, 6: {"abort"},
		7: {"shutdown"}, 8: {"shutdown-ack"}, 9: {"error"}, 10: {"cookie-echo"}, 11: {"cookie-ack"}, 12: {"ecne"},
		13: {"cwr"}, 14: {"shutdown-complete"}, 128: {"asconf-ack"}, 192: {"forward-tsn"}, 193: {"asconf"},
	},
}

// word is what nft calls the group of the option.
func (o option) word() string {
	switch o.op {
	case nftExthdrIPv6:
		return "exthdr"
	case nftExthdrTCPOpt:
		return "tcp option"
	case nftExthdrIPv4:
		return "ip option"
	case nftExthdrSCTP:
		return "sctp chunk"
	}
	return ""
}

// read is what stands at a place of the option, as an expression; ok is false where nft has no name for it.
func (o option) read(offset, bits int) (e *ExtHdr, typ valueType, ok bool) {
	names := optionNames[o.op][o.kind]
	if o.present {
		e = &ExtHdr{Kind: o.word(), Exists: true}
		switch {
		case len(names) > 0:
			e.Name = names[0]
		case o.op == nftExthdrTCPOpt:
			e.Name = strconv.Itoa(int(o.kind))
		default:
			return nil, valueType{}, false
		}
		return e, valueType{TypeBoolean, 8, false}, true
	}
	for _, name := range names {
		h := headerOf(extensions(o.word()), name)
		if h == nil {
			continue
		}
		for i := range h.fields {
			if f := &h.fields[i]; f.offset == offset && f.bits == bits {
				return &ExtHdr{Kind: o.word(), Name: name, Field: f.name}, valueType{f.typ, bits, false}, true
			}
		}
	}
	if o.op == nftExthdrTCPOpt {
		e := &ExtHdr{Kind: o.word(), Name: fmt.Sprintf("@%d,%d,%d", o.kind, offset, bits)}
		return e, valueType{TypeInteger, bits, false}, len(names) == 0
	}
	return nil, valueType{}, false
}
