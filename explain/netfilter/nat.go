package netfilter

import (
	"encoding/binary"
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
)

// undo is what the translations of a connection put back in a reply (nf_nat_packet in the reply direction):
// the destination becomes the client again, the source the address that the client dialled.
type undo struct {
	dst     netip.Addr
	dstPort uint16
	src     netip.Addr
	srcPort uint16
	// hasDst and hasSrc tell whether there is a translation to undo.
	hasDst, hasSrc bool
	ctMark         uint32
	zone           string
}

// natStage runs the nat hook. All nat chains of a hook, whichever table or backend they are in, run inside
// it one after the other, and the first that binds a translation ends it (nf_nat_inet_fn). A connection that
// is not tracked has no translation, and one that has its translation does not meet the rules again.
func (r *run) natStage(h Hook, s state) []state {
	if s.p.State == StateUntracked || s.p.State == StateInvalid {
		return []state{s}
	}
	toDst := h == Prerouting || h == Output
	switch {
	case s.undo != nil:
		return []state{s.putBack(toDst)}
	case s.tracked != nil:
		return []state{r.asTracked(toDst, s)}
	case toDst && s.dstBound, !toDst && s.srcBound:
		return []state{s}
	}
	out, live := []state(nil), []state{s}
	for _, chains := range r.natChains(h) {
		var next []state
		for _, s := range live {
			for _, o := range orders(h, chains, base.name, s) {
				live := []state{o.state}
				for _, b := range o.posts {
					var open []state
					for _, s := range live {
						if toDst && s.dstBound || !toDst && s.srcBound {
							out = append(out, s)
						} else {
							open = append(open, s)
						}
					}
					if live = open; len(live) > 0 {
						live = r.finish(r.baseChain(b, live))
					}
				}
				next = append(next, live...)
			}
		}
		live = mergeStates(next)
	}
	out = append(out, live...)
	for i := range out {
		// No rule bound one: the connection gets the translation to itself.
		if toDst {
			out[i].dstBound = true
		} else {
			out[i].srcBound = true
		}
	}
	return mergeStates(out)
}

// asTracked applies the translation that a tracked connection has.
func (r *run) asTracked(toDst bool, s state) state {
	f := s.tracked
	if toDst && !s.dstBound {
		s.dstBound, s.dstBy = true, s.trackedBy()
		if s.p.DNATed {
			s.p.Dst, s.p.DstPort = f.ReplySrc, f.ReplySrcPort
		}
	}
	if !toDst && !s.srcBound {
		s.srcBound, s.srcBy = true, s.trackedBy()
		if s.p.SNATed {
			s.p.Src, s.p.SrcPort = f.ReplyDst, f.ReplyDstPort
		}
	}
	return s
}

func (s *state) trackedBy() *hops {
	for h := s.hops; h != nil; h = h.prev {
		if h.Kind == HopCT {
			return h
		}
	}
	return nil
}

func (s state) putBack(toDst bool) state {
	u := s.undo
	switch {
	case toDst && u.hasDst && !s.dstBound:
		s.dstBound = true
		s.p.Dst, s.p.DstPort = u.dst, u.dstPort
	case !toDst && u.hasSrc && !s.srcBound:
		s.srcBound = true
		s.p.Src, s.p.SrcPort = u.src, u.srcPort
	}
	return s
}

// maxSpread is the largest number of addresses or ports of a translation range that a walk spells out.
const maxSpread = 16

// translate binds a translation. A range of addresses is spread evenly, as the kernel's hash of the client
// does over many clients (find_best_ips_proto); so is a range of ports that does not contain the packet's own.
func (r *run) translate(b base, t *Translate, s state) []state {
	switch t.Kind {
	case DNAT, Redirect:
		if b.hook != Prerouting && b.hook != Output {
			return []state{s}
		}
	case SNAT, Masquerade:
		if b.hook != Postrouting && b.hook != Input {
			return []state{s}
		}
	}
	toDst := b.hook == Prerouting || b.hook == Output
	lo, hi := t.Min, t.Max
	switch t.Kind {
	case Redirect:
		lo, _ = r.redirectAddr(b.hook, &s)
		hi = lo
		s.toSelf = true
	case Masquerade:
		lo, _ = r.masqueradeAddr(&s)
		hi = lo
	case NetMap:
		addr := s.p.Src
		if toDst {
			addr = s.p.Dst
		}
		lo = inNetwork(t.Prefix, addr)
		hi = lo
	}
	addrs := spreadAddrs(lo, hi)
	if addrs == nil {
		return []state{s.note("%s spreads over more than %d addresses: the first stands for all", t.Kind, maxSpread).bind(t, toDst, lo, 1)}
	}
	var out []state
	for _, a := range addrs {
		out = append(out, s.bind(t, toDst, a, 1/float64(len(addrs))))
	}
	return r.spreadPorts(t, toDst, out)
}

// hasAddr is false where a translation to an address of an interface finds none there: the kernel drops the packet.
func (r *run) hasAddr(h Hook, t *Translate, s *state) bool {
	ok := true
	switch {
	case t.Kind == Masquerade:
		_, ok = r.masqueradeAddr(s)
	case t.Kind == Redirect && (h == Prerouting || h == Output):
		_, ok = r.redirectAddr(h, s)
	}
	return ok
}

// bind gives the packet its new address; an invalid one leaves the address as it is, except that a
// masqueraded source whose address is not known is unknown.
func (s state) bind(t *Translate, toDst bool, a netip.Addr, share float64) state {
	s.prob *= share
	if toDst {
		s.dstBound, s.dstBy = true, s.hops
		if a.IsValid() {
			s.p.Dst = a
		}
		s.p.DNATed = s.p.DNATed || s.p.Dst != s.p.OrigDst
		return s
	}
	s.srcBound, s.srcBy = true, s.hops
	if a.IsValid() || t.Kind == Masquerade {
		s.p.Src = a
	}
	// A port drawn at random makes a translation of one to the same address.
	s.p.SNATed = s.p.SNATed || s.p.Src != s.p.OrigSrc || (t.Random || t.RandomFully)
	return s
}

// spreadPorts gives the packets their new port (get_unique_tuple, nf_nat_l4proto_unique_tuple).
func (r *run) spreadPorts(t *Translate, toDst bool, in []state) []state {
	if t.MinPort == 0 {
		if !toDst && (t.Random || t.RandomFully) {
			for i := range in {
				in[i].p.HasSrcPort = false
			}
		}
		return in
	}
	var out []state
	for _, s := range in {
		if !toDst {
			s.p.SNATed = true
			s.p.SrcPort, s.p.HasSrcPort = t.MinPort, t.MinPort == t.MaxPort
			out = append(out, s)
			continue
		}
		own := s.p.DstPort
		n := int(t.MaxPort) - int(t.MinPort) + 1
		switch {
		case t.BasePort != 0:
			s.p.DstPort = t.MinPort + uint16((int(own)-int(t.BasePort)+n*65536)%n)
			out = append(out, s)
		case own >= t.MinPort && own <= t.MaxPort && !t.RandomFully && (n == 1 || !t.Random):
			out = append(out, s)
		case n > maxSpread:
			s = s.note("the rule draws one of %d ports: the first stands for all", n)
			s.p.DstPort = t.MinPort
			out = append(out, s)
		default:
			for i := range n {
				s := s
				s.prob /= float64(n)
				s.p.DstPort = t.MinPort + uint16(i)
				out = append(out, s)
			}
		}
	}
	for i := range out {
		if toDst {
			out[i].p.DNATed = out[i].p.DNATed || out[i].p.DstPort != out[i].p.OrigDstPort
		}
	}
	return out
}

// redirectAddr is the address that REDIRECT sends to: the first of the incoming interface, or loopback for
// packets of the node itself (nf_nat_redirect_ipv4, nf_nat_redirect_ipv6). ok is false where the interface has
// none, and the kernel then drops the packet.
func (r *run) redirectAddr(h Hook, s *state) (a netip.Addr, ok bool) {
	if h == Output {
		if s.p.Family == IPv6 {
			return netip.IPv6Loopback(), true
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	if !s.p.In.Known || !r.Kernel.Host.HasAddrs {
		return netip.Addr{}, true
	}
	if s.p.Dst.IsLoopback() && s.p.Family == IPv6 {
		return netip.Addr{}, false // no interface but lo has an address of that scope
	}
	return r.firstAddr(s.p.In.Name, s.p.Family, s.p.Family == IPv6 && s.p.Dst.IsLinkLocalUnicast())
}

// masqueradeAddr is the address that MASQUERADE takes: one of the outgoing interface. It is not valid where
// the evidence does not tell; ok is false where the interface has none, and the kernel then drops the packet.
func (r *run) masqueradeAddr(s *state) (a netip.Addr, ok bool) {
	if !s.p.Out.Known || s.p.Out.Name == "" {
		return netip.Addr{}, true
	}
	a, f := r.Kernel.Host.MasqueradeAddr(s.p.Out.Name, s.p.Dst, r.route(s).Via)
	return a, f.Is != host.No
}

// firstAddr is the first address of an interface: a global one before one of the link, or only one of the link.
func (r *run) firstAddr(link string, family Family, onLink bool) (first netip.Addr, ok bool) {
	for _, a := range r.Kernel.Host.Addrs {
		if a.Link != link || a.Prefix.Addr().Is4() != (family == IPv4) {
			continue
		}
		if a.Scope != "link" && !onLink {
			return a.Prefix.Addr(), true
		}
		if a.Scope == "link" && !first.IsValid() {
			first = a.Prefix.Addr()
		}
	}
	return first, first.IsValid()
}

// spreadAddrs lists a range of addresses; one invalid address stands for "keep". Nil: too many.
func spreadAddrs(lo, hi netip.Addr) []netip.Addr {
	if !lo.IsValid() || lo == hi || !hi.IsValid() {
		return []netip.Addr{lo}
	}
	var out []netip.Addr
	for a := lo; a.IsValid() && a.Compare(hi) <= 0; a = a.Next() {
		if out = append(out, a); len(out) > maxSpread {
			return nil
		}
	}
	if len(out) == 0 {
		return []netip.Addr{lo}
	}
	return out
}

// inNetwork maps an address into a network of the same size: NETMAP keeps the host part.
func inNetwork(p netip.Prefix, a netip.Addr) netip.Addr {
	if !p.IsValid() || p.Addr().BitLen() != a.BitLen() {
		return a
	}
	net, host := p.Masked().Addr().As16(), a.As16()
	bits := p.Bits()
	if a.Is4() {
		bits += 96
	}
	var out [16]byte
	for i := 0; i < 16; i += 8 {
		mask := ^uint64(0)
		switch n := bits - i*8; {
		case n <= 0:
			mask = 0
		case n < 64:
			mask <<= 64 - n
		}
		binary.BigEndian.PutUint64(out[i:], binary.BigEndian.Uint64(net[i:])&mask|binary.BigEndian.Uint64(host[i:])&^mask)
	}
	return netip.AddrFrom16(out).Unmap()
}

// String is the target's name.
func (k TranslateKind) String() string {
	return [...]string{"DNAT", "REDIRECT", "SNAT", "MASQUERADE", "NETMAP"}[k]
}
