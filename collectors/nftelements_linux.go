package collectors

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Elements are asked for set by set, and for each the kernel looks through the list of the table's sets (nft_set_lookup,
// nf_tables_dump_set; nothing but the name finds a set). With a set for every Service that is nearly all the time that
// reading a table takes, so several sockets ask at a time: a list of elements is given out under RCU, and holds no lock
// that another would wait for.
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
				for _, s := range blocks[b] {
					if failed[i] = ctx.Err(); failed[i] == nil {
						failed[i] = own.elementsOf(s)
					}
					if failed[i] != nil {
						next.Store(int64(len(blocks))) // nobody needs the rest
						return
					}
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

func (w *nftCapture) elementsOf(s nftSet) error {
	of := attribute(nil, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(s.table.name), 0)...)
	of = attribute(of, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(s.name), 0)...)
	if err := w.list(unix.NFT_MSG_GETSETELEM, s.table.family, of, nil, nil); err != nil {
		return fmt.Errorf("list the elements of set %q of table %s %q: %w", s.name, nftFamilies[s.table.family], s.table.name, err)
	}
	return nil
}
