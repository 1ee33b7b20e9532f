package collectors

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// kube-proxy gives every Service a map that chooses among its endpoints by a number:
//
//	numgen random mod 3 vmap { 0 : goto endpoint-…, 1 : goto endpoint-…, 2 : goto endpoint-… }
//
// The keys are known before they are read. nft makes such a map with room for as many elements as it has, and the
// kernel lets in no more than that (nft_add_set_elem: ENFILE): if a map for N elements has one for each number from 0
// to N-1, these are all. If one of the numbers is not among the keys, it was another kind of map, and is listed.

const (
	// nftInteger is how nft marks a key that is a plain number (TYPE_INTEGER of its datatypes). It decides only
	// whether guessing is worth it.
	nftInteger = 4
	// mostChoices bounds the elements that are asked for by their keys: of a large map the list is cheaper.
	mostChoices = 64
	// answersAtOnce bounds the answers that wait in a socket's buffer, of 208 KiB where nobody set net.core.rmem_default
	// to something else: about 1 KiB each. What does not fit is lost, and its map is listed.
	answersAtOnce = 96
)

// choice is a question for the elements of one map.
type choice struct {
	set nftSet
	// elements are the answers so far, one after the other as the kernel wrote them.
	elements []byte
	answers  uint32
	done     bool
}

// choices asks for the elements of those sets that may be maps of choices. It gives the attributes of a message that
// has all elements of a set in the order of their keys, in the form in which the kernel lists them; nil for a set that
// has to be listed.
func (c *nfnetlink) choices(sets []nftSet) ([][]byte, error) {
	out := make([][]byte, len(sets))
	var asked []choice
	var places []int
	waiting := uint32(0)
	flush := func() error {
		err := c.choose(asked)
		for i, a := range asked {
			if a.done {
				// Without NLA_F_NESTED, as the kernel writes it.
				out[places[i]] = attribute(a.set.attributes(), unix.NFTA_SET_ELEM_LIST_ELEMENTS, a.elements...)
			}
		}
		asked, places, waiting = asked[:0], places[:0], 0
		return err
	}
	for i, s := range sets {
		if s.choices == 0 {
			continue
		}
		if waiting += s.choices; waiting > answersAtOnce && len(asked) > 0 {
			if err := flush(); err != nil {
				return nil, err
			}
			waiting = s.choices
		}
		asked, places = append(asked, choice{set: s}), append(places, i)
	}
	return out, flush()
}

// choose asks several questions at once and waits for their answers: one for each element, or one that there is none.
func (c *nfnetlink) choose(asked []choice) error {
	if len(asked) == 0 {
		return nil
	}
	first := c.seq + 1
	var request []byte
	for _, a := range asked {
		c.seq++
		at := len(request)
		request = append(request, make([]byte, nlHeader+genHeader)...)
		request = append(request, a.set.attributes()...)
		var keys []byte
		for n := range a.set.choices {
			value := attribute(nil, unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint32(nil, n)...)
			key := attribute(nil, unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, value...)
			keys = attribute(keys, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, key...)
		}
		request = attribute(request, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, keys...)
		h := request[at:]
		binary.NativeEndian.PutUint32(h, uint32(len(h)))
		binary.NativeEndian.PutUint16(h[4:], uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM))
		binary.NativeEndian.PutUint16(h[6:], unix.NLM_F_REQUEST)
		binary.NativeEndian.PutUint32(h[8:], c.seq)
		h[nlHeader] = a.set.table.family
	}
	if err := unix.Sendto(c.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// The kernel answers before it takes the next request: what is not there now will not come.
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil
		case err == unix.ENOBUFS: // some answers were lost: their questions stay open
			continue
		case err != nil:
			return fmt.Errorf("read the elements of maps: %w", err)
		}
		for data := c.buf[:n]; len(data) >= nlHeader; {
			size := int(binary.NativeEndian.Uint32(data))
			if size < nlHeader || size > len(data) {
				return errors.New("the kernel's answer was cut")
			}
			message := data[:size]
			data = data[min(len(data), (size+3)&^3):]
			which := binary.NativeEndian.Uint32(message[8:]) - first
			if which < uint32(len(asked)) && binary.NativeEndian.Uint16(message[4:]) == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM && size >= nlHeader+genHeader {
				asked[which].answer(message[nlHeader+genHeader:])
			}
		}
	}
}

// answer takes in an answer with one element. They come in the order of the keys.
func (q *choice) answer(attrs []byte) {
	attributes(attrs, func(kind uint16, value []byte) {
		if kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			q.elements = append(q.elements, value...)
			q.elements = append(q.elements, make([]byte, -len(value)&3)...)
		}
	})
	q.answers++
	q.done = q.answers == q.set.choices
}
