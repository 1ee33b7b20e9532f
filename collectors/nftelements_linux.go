package collectors

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Elements are asked for set by set, and for each the kernel looks through the list of the table's sets: once for the
// name (nft_set_lookup), and when they are given out as a list, for each piece of it and its end again
// (nf_tables_dump_set). With a set for every Service that is nearly all the time that reading a table takes. So
// elements whose keys can be guessed are asked for by their keys, which needs the name only (nftchoices_linux.go), and
// several sockets ask at a time: elements are given out under RCU, and hold no lock that another would wait for.
const (
	// mostAskers bounds the sockets: a node has other work.
	mostAskers = 4
	// setsAtOnce is how many sets a socket takes at a time: the later a set is in the list, the longer it takes.
	setsAtOnce = 64
)

// elements writes the elements of sets, in their order.
func (w *nftCapture) elements(ctx context.Context, sets []nftSet) error {
	blocks := slices.Collect(slices.Chunk(sets, setsAtOnce))
	askers := []*nfnetlink{w.c}
	for range min(mostAskers, runtime.NumCPU(), len(blocks)) - 1 {
		// It is of the namespace of this thread, whoever uses it then.
		c, err := openNFNetlink()
		if err != nil {
			break // the others take longer
		}
		defer c.close()
		askers = append(askers, c)
	}
	var (
		wait   sync.WaitGroup
		next   atomic.Int64
		texts  = make([][]byte, len(blocks))
		failed = make([]error, len(askers))
	)
	for i, c := range askers {
		wait.Go(func() {
			own := nftCapture{c: c}
			for {
				b := int(next.Add(1)) - 1
				if b >= len(blocks) {
					return
				}
				own.data = nil
				if failed[i] = own.block(ctx, blocks[b]); failed[i] != nil {
					next.Store(int64(len(blocks))) // nobody needs the rest
					return
				}
				texts[b] = own.data
			}
		})
	}
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	for _, text := range texts {
		w.data = append(w.data, text...)
	}
	return nil
}

// block writes the elements of some sets.
func (w *nftCapture) block(ctx context.Context, sets []nftSet) error {
	guessed, err := w.c.choices(sets)
	if err != nil {
		return err
	}
	for i, s := range sets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if guessed[i] != nil {
			w.message(unix.NFT_MSG_NEWSETELEM, s.table.family, guessed[i])
		} else if err := w.elementsOf(s); err != nil {
			return err
		}
	}
	return nil
}

// elementsOf writes the elements of one set as the kernel lists them.
func (w *nftCapture) elementsOf(s nftSet) error {
	if err := w.list(unix.NFT_MSG_GETSETELEM, s.table.family, s.attributes(), nil, nil); err != nil {
		return fmt.Errorf("list the elements of set %q of table %s %q: %w", s.name, nftFamilies[s.table.family], s.table.name, err)
	}
	return nil
}

// nftSet is a set of a table, as far as its elements are asked for.
type nftSet struct {
	table nftTable
	name  string
	// choices is how many elements the set has if it chooses among so many by a number: 0 if it cannot be such a set.
	choices uint32
}

// setOf reads a message that describes a set.
func setOf(family byte, attrs []byte) nftSet {
	s := nftSet{table: nftTable{family: family}}
	var flags, keyType, keyLength, size uint32
	attributes(attrs, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_SET_TABLE:
			s.table.name = cString(value)
		case unix.NFTA_SET_NAME:
			s.name = cString(value)
		case unix.NFTA_SET_DESC:
			size, _ = number(value, unix.NFTA_SET_DESC_SIZE)
		}
		if len(value) == 4 {
			n := binary.BigEndian.Uint32(value)
			switch kind {
			case unix.NFTA_SET_FLAGS:
				flags = n
			case unix.NFTA_SET_KEY_TYPE:
				keyType = n
			case unix.NFTA_SET_KEY_LEN:
				keyLength = n
			}
		}
	})
	if flags == unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT|unix.NFT_SET_MAP && keyType == nftInteger && keyLength == 4 && size <= mostChoices {
		s.choices = size
	}
	return s
}

// attributes name the set in a request for elements.
func (s nftSet) attributes() []byte {
	of := attribute(nil, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(s.table.name), 0)...)
	return attribute(of, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(s.name), 0)...)
}
