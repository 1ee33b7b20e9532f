package kernel

import (
	"encoding/binary"

	"github.com/svcnet/svcnet/explain/nft"
)

// A map whose key has a part without a type of its own is declared by expressions. nft keeps them in notes with the set,
// which the kernel does not read: each is a kind, a length and a value, some of them notes again (nft 1.0.6,
// src/expression.c and the build_udata functions of the expressions).
const (
	noteKeyOrder   = 0
	noteDataOrder  = 1
	noteKeyTypeof  = 3
	noteDataTypeof = 4

	orderHost = 1 // BYTEORDER_HOST_ENDIAN

	typeofPayload = 7
	typeofMeta    = 9
	typeofConcat  = 13
	typeofNumgen  = 23

	headerTransport = 11 // PROTO_DESC_TH
	headerIP        = 12
	headerIP6       = 13
)

func note(to []byte, kind byte, value []byte) []byte {
	return append(append(to, kind, byte(len(value))), value...)
}

func noteNumber(to []byte, kind byte, v uint32) []byte {
	return note(to, kind, binary.NativeEndian.AppendUint32(nil, v))
}

// typeofNotes are the notes of a map that is declared by expressions.
func typeofNotes(family nft.Family, s *nft.Set) []byte {
	out := noteNumber(nil, noteKeyOrder, 0)
	out = noteNumber(out, noteDataOrder, 0)
	out = note(out, noteKeyTypeof, typeofNote(family, s.TypeofKey))
	if s.TypeofData != nil {
		out = note(out, noteDataTypeof, typeofNote(family, s.TypeofData))
	}
	return out
}

func typeofNote(family nft.Family, e nft.Expr) []byte {
	kind, value := uint32(0), []byte(nil)
	switch e := e.(type) {
	case *nft.Concat:
		kind = typeofConcat
		for i, part := range e.Parts {
			value = note(value, byte(i), typeofNote(family, part))
		}
	case *nft.Payload:
		kind = typeofPayload
		header, field := uint32(headerTransport), uint32(2) // dport
		if e.Field == "daddr" {
			if header, field = headerIP, 12; family == nft.IP6 {
				header, field = headerIP6, 9
			}
		}
		value = noteNumber(noteNumber(nil, 0, header), 1, field)
	case *nft.Meta:
		kind, value = typeofMeta, noteNumber(nil, 0, metaL4Proto)
	case *nft.Numgen:
		kind, value = typeofNumgen, noteNumber(noteNumber(noteNumber(nil, 0, numgenRandom), 1, e.Mod), 2, e.Offset)
	}
	return note(noteNumber(nil, 0, kind), 1, value)
}
