package netfilter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// progress is a state inside of a rule of nftables.
type progress struct {
	state
	// p is the share of packets that get here of those that come to the rule.
	p float64
	// acted tells that a statement changed the packet; entries are those that maps chose, as text.
	acted   bool
	entries []string
}

// nftRule runs a packet through the statements of one rule (nft_do_chain): each of them goes on, ends the rule, or ends
// the chain.
func (r *run) nftRule(at *nftPlace, s state) []leaving {
	var left []leaving
	// over are the packets that a statement keeps from the rest of the rule: they go on with the next rule.
	over := func(x progress) {
		if x.acted {
			x.state = x.hop(at.step(&x, Continue{}))
		}
		left = append(left, leaving{state: x.state, how: behind})
	}
	live := []progress{{state: s, p: 1}}
	for i, st := range at.rule.Statements {
		at.statement = i
		var next []progress
		for _, x := range live {
			next = append(next, r.nftStatement(at, st, x, over, &left)...)
		}
		if live = next; len(live) == 0 {
			return left
		}
	}
	for _, x := range live {
		over(x)
	}
	return left
}

// nftStatement runs one statement. It returns what goes on in the rule, tells over what goes on behind it, and adds to
// left what leaves the chain.
func (r *run) nftStatement(at *nftPlace, st nft.Statement, x progress, over func(progress), left *[]leaving) []progress {
	goOn := []progress{x}
	leave := func(h how, did Target, with string) {
		*left = append(*left, at.leave(x.hop(at.step(&x, did)), h, with))
	}
	lose := func(why string) { leave(lost, Unreadable{Name: "nft", Why: why}, why) }
	switch st := st.(type) {
	case *nft.Match:
		return r.nftMatch(at, st, x, over)
	case *nft.Counter:
		return goOn
	case *nft.Passing:
		if st.Name != "synproxy" {
			return goOn
		}
		return synproxy(x, over, leave)
	case *nft.ObjectRef:
		m, ok := st.Map.(*nft.MapExpr)
		switch {
		case st.Kind == "synproxy":
			return synproxy(x, over, leave)
		case ok:
			return r.nftObject(at, m, x, over)
		}
		return goOn
	case *nft.Verdict:
		r.nftVerdict(at, st, x, over, left)
		return nil
	case *nft.VerdictMap:
		for _, v := range r.nftEval(at, st.Key, x) {
			r.nftVerdictMap(at, st, v, over, left)
		}
		return nil
	case *nft.Assign:
		return r.nftAssign(at, st, x, over, lose)
	case *nft.NAT:
		r.nftNAT(at, st, x, over, left)
		return nil
	case *nft.Reject:
		if !answers(st.With, &x.state.p) {
			over(x)
			return nil
		}
		leave(rejected, Reject{With: st.With}, st.With)
		return nil
	case nft.NoTrack:
		if !x.template && !x.begun {
			x.template, x.untracked, x.acted = true, true, true
			x.state.p.State = StateUntracked
		}
		return []progress{x}
	case *nft.Limit:
		return r.perhaps(at, x, over, "limit", "the rate limit lets the packet pass", "the packet is beyond the rate limit", "how full a rate limit is at a given moment is in no capture", st.Over)
	case *nft.Quota:
		return r.perhaps(at, x, over, "quota", "the quota is not used up", "the quota is used up", "how much of a quota is used changes with every packet", st.Over)
	case *nft.ConnLimit:
		return r.perhaps(at, x, over, "ct count", "the number of connections is within the limit", "the number of connections is beyond the limit", "how many connections there are at a given moment is not known", st.Over)
	case *nft.SetUpdate:
		return r.nftUpdate(at, st, x, over)
	case *nft.Queue:
		leave(stolen, Queue{}, fmt.Sprintf("handed to the program that reads queue %s, which decides", st.Num))
		return nil
	case *nft.TProxy:
		if st.Family != "" && st.Family != nft.Inet && st.Family != nftFamily(x.state.p.Family) {
			over(x)
			return nil
		}
		// Without a socket there the rule ends (nft_tproxy_eval_v4).
		for _, y := range r.perhaps(at, x, over, "tproxy", "a transparent proxy listens", "no transparent proxy listens", "which sockets are transparent is not part of the question", false) {
			*left = append(*left, at.leave(y.hop(at.step(&y, &TProxy{})), stolen, "redirected to a local transparent proxy"))
		}
		return nil
	case *nft.FlowOffload:
		x.state = x.note("later packets of the connection may bypass the rules: flowtable %s", st.Table)
		return []progress{x}
	case *nft.XT:
		switch {
		case st.Kind == "match" && st.Name == "comment":
			return goOn
		case st.Kind == "match":
			name := "the test -m " + st.Name + " of iptables"
			return r.perhaps(at, x, over, "xt "+st.Name, name+" holds", name+" does not hold", "nftables holds it in a form that is not decoded (give `iptables-save`)", false)
		}
		lose(fmt.Sprintf("the target %s of iptables is held by nftables in a form that is not decoded (give `iptables-save`)", st.Name))
		return nil
	case *nft.Unreadable:
		lose(fmt.Sprintf("%q cannot be read: %s", st.Text, st.Why))
		return nil
	}
	lose(fmt.Sprintf("statement %T is not evaluated", st))
	return nil
}

// answers tells whether a rejection is one for the packet: nft puts a test for the family or protocol in front, which it
// does not print.
func answers(with string, p *Packet) bool {
	switch kind, _, _ := strings.Cut(with, " "); kind {
	case "icmp":
		return p.Family == IPv4
	case "icmpv6":
		return p.Family == IPv6
	case "tcp":
		return p.Proto == ProtoTCP
	}
	return true
}

// perhaps goes on with the rule under an assumption that the evidence does not decide. Turned around, it goes on where
// the assumption does not hold.
func (r *run) perhaps(at *nftPlace, x progress, over func(progress), what, yes, no, because string, not bool) []progress {
	return fork(x, Fact{
		Key: fmt.Sprintf("%s %s %s %d %d", what, at.nft.table, at.chain.Name, at.index, at.statement), Not: not, Yes: yes, No: no, Because: because,
	}, over)
}

// fork goes on where an undecided test holds.
func fork(x progress, f Fact, over func(progress)) []progress {
	holds, fails := x.fork(f)
	if f.Not {
		holds, fails = fails, holds
	}
	for _, s := range fails {
		y := x
		y.state = s
		over(y)
	}
	var out []progress
	for _, s := range holds {
		y := x
		y.state = s
		out = append(out, y)
	}
	return out
}

func (r *run) nftVerdict(at *nftPlace, v *nft.Verdict, x progress, over func(progress), left *[]leaving) {
	leave := func(h how, did Target) {
		*left = append(*left, at.leave(x.hop(at.step(&x, did)), h, ""))
	}
	switch v.Kind {
	case nft.Accept:
		leave(accepted, Accept{})
	case nft.Drop:
		leave(dropped, Drop{})
	case nft.Jump, nft.Goto:
		*left = append(*left, r.nftJump(at, &x, v)...)
	case nft.Return:
		s := x.state
		if x.acted {
			s = x.hop(at.step(&x, Return{}))
		}
		*left = append(*left, leaving{state: s, how: fell})
	default:
		over(x)
	}
}

func (r *run) nftVerdictMap(at *nftPlace, st *nft.VerdictMap, v evaluated, over func(progress), left *[]leaving) {
	x := v.progress
	e, why := r.nftFind(at, st.Map, v.value, &x)
	switch {
	case why != "":
		did := Unreadable{Name: "vmap", Why: why}
		*left = append(*left, at.leave(x.hop(at.step(&x, did)), lost, why))
	case e == nil:
		over(x)
	case e.Verdict == nil:
		did := Unreadable{Name: "vmap", Why: "the entry has no verdict"}
		*left = append(*left, at.leave(x.hop(at.step(&x, did)), lost, did.Why))
	default:
		r.nftVerdict(at, e.Verdict, x, over, left)
	}
}

// synproxy keeps what begins a connection of TCP, and answers in the place of the server; for other packets the rule
// ends (nft_synproxy_do_eval).
func synproxy(x progress, over func(progress), leave func(how, Target, string)) []progress {
	if x.state.p.Proto != ProtoTCP {
		over(x)
		return nil
	}
	leave(stolen, Unreadable{Name: "synproxy"}, "the kernel answers in the place of the server (synproxy), and connects to it once the client has shown that it is there")
	return nil
}

// nftObject looks up which named object counts a packet or limits it. Without an entry for the packet the rule ends
// (nft_objref_map_eval).
func (r *run) nftObject(at *nftPlace, m *nft.MapExpr, x progress, over func(progress)) []progress {
	var out []progress
	for _, v := range r.nftEval(at, m.Key, x) {
		y := v.progress
		entry, why := r.nftFind(at, m.Map, v.value, &y)
		switch {
		case why != "":
			out = append(out, r.perhaps(at, y, over, "object", "a map of objects has an entry for the packet", "no map of objects has an entry for the packet", why, false)...)
		case entry == nil:
			over(y)
		default:
			out = append(out, y)
		}
	}
	return out
}

// nftAssign sets a mark, or a field of the packet, of which some decide whether it is routed again.
func (r *run) nftAssign(at *nftPlace, st *nft.Assign, x progress, over func(progress), lose func(string)) []progress {
	// set tells whether the walk has to name the rule; blurs whether the value may be open.
	var set func(s *state, v *value) (acted bool)
	blurs := false
	switch to := st.To.(type) {
	case *nft.Meta:
		if to.Key == "mark" {
			set = func(s *state, v *value) bool { s.p.Mark = number(v.data); return true }
		}
	case *nft.CT:
		switch to.Key {
		case "mark":
			set = func(s *state, v *value) bool {
				if !s.p.tracked() { // there is nothing to set, and the rule goes on (nft_ct_set_eval)
					return false
				}
				s.p.CTMark = number(v.data)
				return true
			}
		case "zone":
			if x.begun || x.template && !x.untracked {
				return []progress{x}
			}
			// It takes back notrack (nft_ct_set_zone_eval).
			x.template, x.untracked, x.state.p.State, x.state.p.Template = true, false, StateInvalid, true
			set = func(s *state, v *value) bool {
				if s.p.Zone = fmt.Sprint(number(v.data)); number(v.data) == 0 {
					s.p.Zone = ""
				}
				return true
			}
		}
	case *nft.Payload:
		// nft puts a test for the header in front, which it does not print.
		if v := payload(&x.state.p, to); v.none {
			over(x)
			return nil
		}
		switch to.Field {
		case "saddr", "daddr", "sport", "dport":
			lose("the rule rewrites addresses or ports without connection tracking, which is not evaluated")
			return nil
		}
		if offset, bits, ok := placeInHeader(to); ok && at.hook == Output {
			blurs = true
			set = func(s *state, v *value) bool { s.header.bytes(s.p.Family, offset, bits, v); return false }
		}
	}
	if e, ok := st.To.(*nft.ExtHdr); ok && e.Kind == "tcp option" && x.state.p.Proto != ProtoTCP {
		over(x)
		return nil
	}
	if set == nil {
		return []progress{x}
	}
	var out []progress
	for _, v := range r.nftEval(at, st.Value, x) {
		switch {
		case v.none:
			over(v.progress)
			continue
		case v.open() && !blurs:
			lose("the value that the rule sets is not known: " + v.why)
			return nil
		}
		y := v.progress
		y.acted = set(&y.state, &v.value) || y.acted
		out = append(out, y)
	}
	return out
}

// placeInHeader is where in the header of the packet a field stands that a chain of type route may compare, in bits.
func placeInHeader(e *nft.Payload) (offset, bits int, ok bool) {
	switch e.Protocol + " " + e.Field {
	case "ip dscp":
		return 8, 6, true
	case "ip ecn":
		return 14, 2, true
	case "ip6 dscp":
		return 4, 6, true
	case "ip6 ecn":
		return 10, 2, true
	case "ip6 flowlabel":
		return 12, 20, true
	case "ip6 hoplimit":
		return 56, 8, true
	}
	return e.Offset, e.Bits, e.Protocol == "@nh" && e.Field == ""
}

// number is a value as a number; of more than four bytes the last four.
func number(data []byte) uint32 {
	var b [4]byte
	if len(data) > 4 {
		data = data[len(data)-4:]
	}
	copy(b[4-len(data):], data)
	return binary.BigEndian.Uint32(b[:])
}

// nftUpdate adds an entry to a set, or takes one away. Later rules of the walk meet the set as it then is.
func (r *run) nftUpdate(at *nftPlace, st *nft.SetUpdate, x progress, over func(progress)) []progress {
	var out []progress
	for _, v := range r.nftEval(at, st.Key, x) {
		x := v.progress
		if v.none {
			over(x)
			continue
		}
		if v.open() {
			x.state = x.note("which entry rule %d of %s changes in set %s is not known: %s", at.index+1, at.chain.Name, st.Set, v.why)
		} else {
			p := &x.state.p
			u := RecentUpdate{List: setMember(at.nft.table, st.Set, v.data), Removed: st.Op == "delete"}
			if st.Data != nil {
				d := r.nftEval(at, st.Data, x)[0].value // a choice by chance is made elsewhere
				switch {
				case d.none:
					over(x)
					continue
				case d.open():
					x.state = x.note("what rule %d of %s puts into map %s is not known: %s", at.index+1, at.chain.Name, st.Set, d.why)
				}
				u.Data = string(d.data)
			}
			p.Recent = append(p.Recent[:len(p.Recent):len(p.Recent)], u)
			x.acted = true
		}
		if slices.ContainsFunc(st.Statements, limits) {
			out = append(out, r.perhaps(at, x, over, "limit", "the limit of the entry lets the packet pass", "the packet is beyond the limit of the entry", "how full a limit is at a given moment is in no capture", false)...)
			continue
		}
		out = append(out, x)
	}
	return out
}

// limits tells whether a statement lets through some packets and others not.
func limits(st nft.Statement) bool {
	switch st.(type) {
	case *nft.Limit, *nft.Quota, *nft.ConnLimit:
		return true
	}
	return false
}

// setMember names an entry of a set among what a walk has added to lists.
func setMember(t *nft.Table, set string, key []byte) string {
	return fmt.Sprintf("@%s %s %s", t, set, hex.EncodeToString(key))
}

// nftNAT binds a translation, once for each address that a map may give.
func (r *run) nftNAT(at *nftPlace, st *nft.NAT, x progress, over func(progress), left *[]leaving) {
	if st.Family != "" && st.Family != nft.Inet && st.Family != nftFamily(x.state.p.Family) {
		over(x)
		return
	}
	t := Translate{Kind: nftTranslations[st.Kind], Random: st.Random, RandomFully: st.FullyRandom, Persistent: st.Persistent}
	for _, a := range r.nftBounds(at, st.Addr, x) {
		for _, p := range r.nftBounds(at, st.Port, a.progress) {
			y := p.progress
			switch {
			case a.none || p.none:
				over(y)
				continue
			case a.why != "" || p.why != "":
				why := a.why + p.why
				did := Unreadable{Name: string(st.Kind), Why: why}
				*left = append(*left, at.leave(y.hop(at.step(&y, did)), lost, why))
				continue
			}
			t := t
			t.Min, t.Max = addrOf(a.lo), addrOf(a.hi)
			if st.NetMap && len(a.lo) == len(a.hi) {
				t.Kind, t.Prefix = NetMap, netip.PrefixFrom(t.Min, sameBits(a.lo, a.hi))
			}
			lo, hi := p.lo, p.hi
			if a.port != nil {
				lo, hi = a.port, a.port
			}
			if lo != nil {
				t.MinPort, t.MaxPort = uint16(number(lo)), uint16(number(hi))
			}
			r.nftBind(at, &t, y, left)
		}
	}
}

var nftTranslations = map[nft.NATKind]TranslateKind{
	nft.DNAT: DNAT, nft.SNAT: SNAT, nft.Masquerade: Masquerade, nft.Redirect: Redirect,
}

func (r *run) nftBind(at *nftPlace, t *Translate, x progress, left *[]leaving) {
	stepped := x.hop(at.step(&x, t))
	if !r.hasAddr(at.hook, t, &x.state) {
		*left = append(*left, at.leave(stepped, dropped, ""))
		return
	}
	for _, s := range r.translate(at.base, t, stepped) {
		*left = append(*left, at.leave(s, accepted, ""))
	}
}

// sameBits counts the bits in which two addresses begin alike.
func sameBits(a, b []byte) int {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

func addrOf(data []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(data)
	return a
}

// bounds are an address or port to translate to, with the ends of a range, and the port that a map gives with the
// address.
type bounds struct {
	progress
	lo, hi, port []byte
	prefix       int // bits of a prefix, -1 for none
	none         bool
	why          string
}

func (r *run) nftBounds(at *nftPlace, e nft.Expr, x progress) []bounds {
	switch e := e.(type) {
	case nil:
		return []bounds{{progress: x, prefix: -1}}
	case *nft.Range:
		return []bounds{{progress: x, lo: e.Lo.Data, hi: e.Hi.Data, prefix: -1}}
	case *nft.Prefix:
		lo, hi := prefixEnds(e)
		return []bounds{{progress: x, lo: lo, hi: hi, prefix: e.Bits}}
	case *nft.MapExpr:
		set := at.set(e.Map)
		var out []bounds
		for _, v := range r.nftEval(at, e.Key, x) {
			y := v.progress
			entry, why := r.nftFind(at, e.Map, v.value, &y)
			b := bounds{progress: y, none: entry == nil && why == "", why: why, prefix: -1}
			if entry != nil && why == "" {
				b.lo, b.hi = entry.Data, entry.Data
				if entry.DataEnd != nil {
					b.hi = entry.DataEnd
				}
				if len(set.Data) == 2 && len(entry.Data) >= set.Data[0].Width()+set.Data[1].Size {
					n, w := set.Data[0].Size, set.Data[0].Width()
					b.port = entry.Data[w : w+set.Data[1].Size]
					b.lo, b.hi = b.lo[:n], b.hi[:n]
				}
			}
			out = append(out, b)
		}
		return out
	}
	var out []bounds
	for _, v := range r.nftEval(at, e, x) {
		out = append(out, bounds{progress: v.progress, lo: v.data, hi: v.data, prefix: -1, none: v.none, why: v.why})
	}
	return out
}

// textWith is a rule's text with the entries that its maps chose: of a long map in place only those.
func textWith(text string, entries []string) string {
	if len(entries) == 0 {
		return text
	}
	chosen := strings.Join(entries, ", ")
	from := strings.Index(text, "map {")
	if from < 0 {
		return text + " { " + chosen + " }"
	}
	from += len("map {")
	quoted := false
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '}':
			if quoted {
				continue
			}
			if strings.TrimSpace(text[from:i]) == chosen {
				return text
			}
			return text[:from] + " " + chosen + ", … " + text[i:]
		}
	}
	return text
}
