package host

import "net/netip"

// flowIndex finds flows by their tuples; a busy node tracks hundreds of thousands.
type flowIndex struct {
	count       int
	orig, reply map[flowTuple]int // index into Flows
	dialled     map[dialled][]int // index into Flows
}

// dialled is what the first packet of a flow was sent to.
type dialled struct {
	proto uint8
	dst   netip.Addr
	port  uint16
}

type flowTuple struct {
	proto        uint8
	src, dst     netip.Addr
	sport, dport uint16
}

// flowsByTuple is the index over Flows, built at the first question and again when flows were added.
func (h *Host) flowsByTuple() *flowIndex {
	if ix := h.flows.Load(); ix != nil && ix.count == len(h.Flows) {
		return ix
	}
	ix := &flowIndex{count: len(h.Flows), orig: make(map[flowTuple]int, len(h.Flows)), reply: make(map[flowTuple]int, len(h.Flows)), dialled: make(map[dialled][]int)}
	for i := range h.Flows {
		f := &h.Flows[i]
		to := dialled{f.Proto, f.Dst, f.DstPort}
		ix.dialled[to] = append(ix.dialled[to], i)
		orig := flowTuple{f.Proto, f.Src, f.Dst, f.SrcPort, f.DstPort}
		if _, ok := ix.orig[orig]; !ok {
			ix.orig[orig] = i
		}
		reply := flowTuple{f.Proto, f.ReplySrc, f.ReplyDst, f.ReplySrcPort, f.ReplyDstPort}
		if _, ok := ix.reply[reply]; !ok {
			ix.reply[reply] = i
		}
	}
	h.flows.Store(ix)
	return ix
}

// FlowOf is the connection whose original direction this packet belongs to; nil when none is captured. With
// several conntrack zones it is the first one listed.
func (h *Host) FlowOf(proto uint8, src netip.Addr, sport uint16, dst netip.Addr, dport uint16) *Flow {
	return h.flow(h.flowsByTuple().orig, proto, src, sport, dst, dport)
}

// ReplyOf is the connection whose reply direction this packet belongs to; nil when none is captured.
func (h *Host) ReplyOf(proto uint8, src netip.Addr, sport uint16, dst netip.Addr, dport uint16) *Flow {
	return h.flow(h.flowsByTuple().reply, proto, src, sport, dst, dport)
}

// FlowsTo are the connections whose first packet was sent to this address and port, in the order of the capture.
func (h *Host) FlowsTo(proto uint8, dst netip.Addr, port uint16) []*Flow {
	var out []*Flow
	for _, i := range h.flowsByTuple().dialled[dialled{proto, dst.Unmap(), port}] {
		out = append(out, &h.Flows[i])
	}
	return out
}

func (h *Host) flow(by map[flowTuple]int, proto uint8, src netip.Addr, sport uint16, dst netip.Addr, dport uint16) *Flow {
	i, ok := by[flowTuple{proto, src.Unmap(), dst.Unmap(), sport, dport}]
	if !ok {
		return nil
	}
	return &h.Flows[i]
}
