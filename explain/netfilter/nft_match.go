package netfilter

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
)

// nftMatch goes on with the rule where a relation holds. Packets for which it does not hold go on behind the rule.
func (r *run) nftMatch(at *nftPlace, m *nft.Match, x progress, over func(progress)) []progress {
	r.tellSource(at, m, &x)
	if a, ok := r.question(m, &x.state.p); ok {
		return answered(a, x, over)
	}
	var out []progress
	for _, v := range r.nftEval(at, m.Left, x) {
		if v.none {
			over(v.progress)
			continue
		}
		for _, w := range r.nftRight(at, m.Right, v.progress) {
			y := w.progress
			a := r.relation(at, m, &v.value, &w.value, &y)
			out = append(out, answered(a, y, over)...)
		}
	}
	return out
}

// answered goes on as an answer says.
func answered(a Answer, x progress, over func(progress)) []progress {
	switch a.Truth {
	case True:
		return []progress{x}
	case Undecided:
		return fork(x, a.Fact, over)
	}
	over(x)
	return nil
}

// nftRight evaluates what a value is compared with, where that is no set or range.
func (r *run) nftRight(at *nftPlace, e nft.Expr, x progress) []evaluated {
	switch e.(type) {
	case *nft.Range, *nft.Prefix, nft.SetRef, nft.SetLit:
		return []evaluated{{x, value{}}}
	}
	return r.nftEval(at, e, x)
}

// question puts tests whose answer may be open as rules of iptables put them too, so that both have one answer:
// interfaces, the client's port, what an address is, whose process sends. ok is false for all others, and where
// the evidence decides.
func (r *run) question(m *nft.Match, p *Packet) (a Answer, ok bool) {
	if m.AnyBit || m.Op != "==" && m.Op != "!=" {
		return a, false
	}
	not := m.Op == "!="
	switch left := m.Left.(type) {
	case *nft.Meta:
		switch left.Key {
		case "iifname", "oifname":
			out := left.Key == "oifname"
			i := p.In
			if out {
				i = p.Out
			}
			name, one := ifaceName(m.Right)
			if i.Known || !one {
				return a, false
			}
			return IfaceMatch{Name: name, Not: not}.Test(i, out), true
		case "skuid", "skgid":
			c, one := m.Right.(*nft.Const)
			if !p.Local || !one {
				return a, false
			}
			o := Owner{UID: fmt.Sprint(number(c.Data)), UIDNot: not}
			if left.Key == "skgid" {
				o = Owner{GID: o.UID, GIDNot: not}
			}
			return o.Test(r.Kernel, Output, p), true
		}
	case *nft.Fib:
		if c, one := m.Right.(*nft.Const); one {
			if a, open := r.fibFact(p, left, number(c.Data)); open {
				return a.Negate(not), true
			}
		}
	case *nft.Payload:
		if left.Field != "sport" && left.Field != "dport" || !hasPorts(p.Proto) || left.Protocol != "th" && !ofProtocol(p, left.Protocol) {
			return a, false
		}
		side := "source"
		port, known := p.sourcePort()
		if left.Field == "dport" {
			side = "destination"
			port, known = p.destinationPort()
		}
		ports, one := portRange(m.Right)
		if known || !one {
			return a, false
		}
		ports.Not = not
		return portAnswer(ports, side, port, known), true
	}
	return a, false
}

// ifaceName is the one interface that a constant names, with "+" for any ending.
func ifaceName(e nft.Expr) (string, bool) {
	switch e := e.(type) {
	case *nft.Const:
		return string(bytes.TrimRight(e.Data, "\x00")), true
	case *nft.Prefix:
		n := min(e.Bits/8, len(e.Value.Data))
		return string(e.Value.Data[:n]) + "+", true
	}
	return "", false
}

func portRange(e nft.Expr) (PortRange, bool) {
	switch e := e.(type) {
	case *nft.Const:
		n := uint16(number(e.Data))
		return PortRange{Min: n, Max: n, Set: true}, true
	case *nft.Range:
		return PortRange{Min: uint16(number(e.Lo.Data)), Max: uint16(number(e.Hi.Data)), Set: true}, true
	}
	return PortRange{}, false
}

// relation tells whether a value stands in the relation of a match. Where bits are not known and would decide, the
// answer is open.
func (r *run) relation(at *nftPlace, m *nft.Match, v, w *value, x *progress) Answer {
	if w.none {
		return No
	}
	not := m.Op == "!="
	open := func(why string) Answer {
		p := &x.state.p
		text := at.rule.Text
		return Maybe(Fact{
			Key:     fmt.Sprintf("nft %s %s %d %d %s %s", at.nft.table, at.chain.Name, at.index, slices.Index(at.rule.Statements, nft.Statement(m)), p.Src, p.Dst),
			Yes:     fmt.Sprintf("the test of rule %d of chain %s holds (%s)", at.index+1, at.chain.Name, text),
			No:      fmt.Sprintf("the test of rule %d of chain %s does not hold (%s)", at.index+1, at.chain.Name, text),
			Because: why,
		})
	}
	switch right := m.Right.(type) {
	case nft.SetRef, nft.SetLit:
		e, why := r.nftFind(at, m.Right, *v, x)
		if why != "" {
			return open(why)
		}
		return Is((e != nil) != not)
	case *nft.Range:
		return between(v, right.Lo.Data, right.Hi.Data, not, open)
	case *nft.Prefix:
		lo, hi := prefixEnds(right)
		if len(v.data) > len(lo) {
			// A name of an interface is compared by its beginning.
			lo, hi = pad(lo, len(v.data), 0), pad(hi, len(v.data), 0xff)
		}
		return between(v, lo, hi, not, open)
	}
	if w.open() {
		return open(w.why)
	}
	left, other := v.data, w.data
	unknown := v.unknown
	if key, ok := m.Left.(*nft.Meta); ok && (key.Key == "iif" || key.Key == "oif") && len(other) == 4 && !v.open() {
		if left, ok = r.ifIndex(left); !ok {
			return open("the number of the interface is not known")
		}
	}
	if n := max(len(left), len(other)); textual(m.Right) {
		left, other, unknown = pad(left, n, 0), pad(other, n, 0), pad(unknown, n, 0)
	} else {
		left, other, unknown = widen(left, n), widen(other, n), widen(unknown, n)
	}
	if v.open() && len(v.data) < len(left) {
		return open(v.why) // of how wide it is no more is known than of what it is
	}
	switch {
	case m.AnyBit:
		some, perhaps := false, false
		for i := range left {
			some = some || left[i]&other[i]&^unknown[i] != 0
			perhaps = perhaps || unknown[i]&other[i] != 0
		}
		if !some && perhaps {
			return open(v.why)
		}
		return Is(some != not)
	case m.Op == "==" || m.Op == "!=":
		same, perhaps := true, false
		for i := range left {
			same = same && (left[i]^other[i])&^unknown[i] == 0
			perhaps = perhaps || unknown[i] != 0
		}
		if same && perhaps {
			return open(v.why)
		}
		return Is(same != not)
	case v.open():
		return open(v.why)
	}
	c := bytes.Compare(left, other)
	switch m.Op {
	case "<":
		return Is(c < 0)
	case ">":
		return Is(c > 0)
	case "<=":
		return Is(c <= 0)
	case ">=":
		return Is(c >= 0)
	}
	return open("the operator " + m.Op + " is not evaluated")
}

func between(v *value, lo, hi []byte, not bool, open func(string) Answer) Answer {
	if v.open() {
		return open(v.why)
	}
	n := max(len(v.data), len(lo), len(hi))
	b := widen(v.data, n)
	return Is((bytes.Compare(b, widen(lo, n)) >= 0 && bytes.Compare(b, widen(hi, n)) <= 0) != not)
}

// textual tells whether a constant is a name, which is compared from its beginning.
func textual(e nft.Expr) bool {
	c, ok := e.(*nft.Const)
	return ok && (c.Type == nft.TypeIfname || c.Type == nft.TypeString)
}

// pad puts a byte behind a value until it is n long.
func pad(b []byte, n int, with byte) []byte {
	out := slices.Clone(b)
	for len(out) < n {
		out = append(out, with)
	}
	return out[:n]
}

// prefixEnds are the first and the last value of a prefix.
func prefixEnds(p *nft.Prefix) (lo, hi []byte) {
	lo, hi = slices.Clone(p.Value.Data), slices.Clone(p.Value.Data)
	for i := p.Bits; i < len(lo)*8; i++ {
		lo[i/8] &^= 0x80 >> (i % 8)
		hi[i/8] |= 0x80 >> (i % 8)
	}
	return lo, hi
}

// set is the set or map that an expression names, nil where the capture has none.
func (at *nftPlace) set(e nft.Expr) *nft.Set {
	switch e := e.(type) {
	case nft.SetRef:
		return at.nft.table.Set(e.Name)
	case nft.SetLit:
		return e.Set
	}
	return nil
}

// nftFind looks a key up in a set or map. why says why that cannot be told. A map's entry is noted in x.
func (r *run) nftFind(at *nftPlace, e nft.Expr, key value, x *progress) (entry *nft.Entry, why string) {
	if key.none {
		return nil, ""
	}
	set := at.set(e)
	if set == nil {
		return nil, fmt.Sprintf("set %v is not in the capture", e)
	}
	if slices.ContainsFunc(set.Key, func(f nft.Field) bool { return f.Type == nft.TypeIfindex && f.Size == 4 }) {
		var ok bool
		if key.data, ok = r.ifIndexes(set, key.data); !ok || key.open() {
			return nil, "the number of the interface is not known"
		}
	}
	data := fit(set, key.data)
	if set.Name != "" && at.nft.table.Updates(set.Name) {
		return r.inChanging(at, set, data, key, x)
	}
	if key.open() {
		if len(key.data) < keySize(set) {
			return nil, key.why // of how wide it is no more is known than of what it is
		}
		if !r.couldHold(set, data, fitUnknown(set, key.unknown, len(key.data))) {
			return nil, ""
		}
		return nil, key.why
	}
	if entry = set.Find(data); entry != nil {
		if set.IsMap {
			x.entries = append(slices.Clone(x.entries), set.EntryText(entry))
		}
		if slices.ContainsFunc(entry.Statements, limits) {
			return nil, "the entry has a limit, and how full that is at a given moment is in no capture"
		}
	}
	return entry, ""
}

// inChanging looks a key up in a set that rules change: what the walk itself did to it counts before what was captured.
// A new client is in no such set.
func (r *run) inChanging(at *nftPlace, set *nft.Set, data []byte, key value, x *progress) (*nft.Entry, string) {
	if key.open() {
		if r.Kernel.NewClient {
			return nil, ""
		}
		return nil, key.why
	}
	var entry *nft.Entry
	if !r.Kernel.NewClient {
		entry = set.Find(data)
	}
	name := setMember(at.nft.table, set.Name, key.data)
	for _, u := range x.state.p.Recent {
		switch {
		case u.List != name:
		case u.Removed:
			entry = nil
		case entry == nil || entry.CatchAll:
			// What an entry that is there already leads to, adding it again does not change (nft_dynset_eval).
			entry = &nft.Entry{Start: data, Data: []byte(u.Data)}
		}
	}
	return entry, ""
}

// fit lays a key out as a set's entries are.
func fit(s *nft.Set, key []byte) []byte {
	if len(s.Key) != 1 || s.Key[0].Size == 0 || s.Key[0].Size == len(key) {
		return key
	}
	if t := s.Key[0].Type; t == nft.TypeIfname || t == nft.TypeString {
		return pad(key, s.Key[0].Size, 0)
	}
	return widen(key, s.Key[0].Size)
}

func fitUnknown(s *nft.Set, unknown []byte, n int) []byte {
	if unknown == nil {
		unknown = make([]byte, n)
	}
	return fit(s, unknown)
}

// keySize is the width of a set's keys; 0 where it is not known.
func keySize(s *nft.Set) (n int) {
	for _, f := range s.Key {
		if n += f.Size; len(s.Key) > 1 {
			n += f.Width() - f.Size
		}
	}
	return n
}

// couldHold tells whether an entry may be meant by a key of which some bits are not known.
func (r *run) couldHold(s *nft.Set, key, unknown []byte) bool {
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.CatchAll || e.End != nil {
			return true
		}
		differs := len(e.Start) != len(key)
		for j := 0; j < len(key) && !differs; j++ {
			differs = (e.Start[j]^key[j])&^unknown[j] != 0
		}
		if !differs {
			return true
		}
	}
	return false
}

// maxTold bounds the entries of one set whose sources are told.
const maxTold = 64

// tellSource tells who asked which sources a rule tests.
func (r *run) tellSource(at *nftPlace, m *nft.Match, x *progress) {
	p, ok := m.Left.(*nft.Payload)
	if r.OnSource == nil || !ok || p.Field != "saddr" || p.Protocol == "ether" || x.state.p.SNATed {
		return
	}
	tell := func(start, end []byte) {
		if prefix, ok := nft.PrefixOf(start, end); ok {
			r.OnSource(prefix)
		} else if a := addrOf(start); a.IsValid() {
			r.OnSource(netip.PrefixFrom(a, a.BitLen()))
		}
	}
	switch right := m.Right.(type) {
	case *nft.Const:
		tell(right.Data, nil)
	case *nft.Prefix:
		lo, hi := prefixEnds(right)
		tell(lo, hi)
	case *nft.Range:
		tell(right.Lo.Data, right.Hi.Data)
	case nft.SetRef, nft.SetLit:
		set := at.set(right)
		if set == nil || len(set.Entries) > maxTold || set.Name != "" && at.nft.table.Updates(set.Name) {
			return
		}
		for i := range set.Entries {
			if e := &set.Entries[i]; len(set.Key) == 1 && !e.CatchAll {
				tell(e.Start, e.End)
			}
		}
	}
}

// SNATed tells whether the source is no longer the client's.
func (x *progress) SNATed() bool { return x.state.p.SNATed }
