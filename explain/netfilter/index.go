package netfilter

import (
	"iter"
	"net/netip"
)

// indexFrom is the number of rules from which a chain is worth an index: kube-proxy's KUBE-SERVICES and
// KUBE-NODEPORTS grow with the number of Services, everything else stays short.
const indexFrom = 24

// chainIndex finds the rules that can match a destination, so that a walk through a chain of kube-proxy
// costs the same with ten Services and with fifty thousand. Every list is ascending.
type chainIndex struct {
	// keyed holds rules that name exactly one address, or one protocol and port, or both; the parts that
	// a rule does not name are zero in its key.
	keyed map[destination][]int32
	// rest are the rules that name neither.
	rest []int32
}

type destination struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

// candidates yields the indexes of the rules that may match p, in order.
func (c *Chain) candidates(p *Packet) iter.Seq[int] {
	if len(c.Rules) < indexFrom {
		return func(yield func(int) bool) {
			for i := range c.Rules {
				if !yield(i) {
					return
				}
			}
		}
	}
	x := c.index.Load()
	if x == nil {
		x = indexOf(c.Rules)
		c.index.Store(x)
	}
	lists := [4][]int32{
		x.keyed[destination{p.Dst, p.Proto, p.DstPort}],
		x.keyed[destination{addr: p.Dst}],
		x.keyed[destination{proto: p.Proto, port: p.DstPort}],
		x.rest,
	}
	return func(yield func(int) bool) {
		for {
			least := -1
			for i := range lists {
				if len(lists[i]) > 0 && (least < 0 || lists[i][0] < lists[least][0]) {
					least = i
				}
			}
			if least < 0 {
				return
			}
			i := lists[least][0]
			lists[least] = lists[least][1:]
			if !yield(int(i)) {
				return
			}
		}
	}
}

func indexOf(rules []Rule) *chainIndex {
	x := &chainIndex{keyed: make(map[destination][]int32, len(rules))}
	for i := range rules {
		addr, proto, port, hasAddr, hasProto, hasPort := rules[i].ExactDst()
		var key destination
		if hasAddr {
			key.addr = addr
		}
		if hasProto && hasPort {
			key.proto, key.port = proto, port
		}
		if key == (destination{}) {
			x.rest = append(x.rest, int32(i))
		} else {
			x.keyed[key] = append(x.keyed[key], int32(i))
		}
	}
	return x
}
