package netfilter

import (
	"fmt"
	"slices"
	"strings"
)

// ruleReader reads the rules of the save form, "-A CHAIN -s 10.0.0.0/8 -m tcp --dport 80 -j X", one at a
// time. What it cannot read becomes an unreadable match or target of the rule, never a rule with fewer
// tests.
type ruleReader struct {
	arena
	words words
	opt   option
	// open are the matches of the rule so far, target its target once -j was read.
	open   []opened
	target targetReader
	plain  Target // a target without options
	named  string // the target's name
	// behind is true when the target was the last thing opened: options then belong to it first.
	behind bool
	// why is the first thing that could not be read, what its words.
	why, what string
	counts    string // "-c 1 2", taken out of the rule's text
	// jumped is the last jump, jumpTo the same as a target: many rules in a row jump to one chain.
	jumped Jump
	jumpTo Target
	// v4 and v6 count the addresses of each family, to tell the family of a capture that does not say.
	v4, v6 int
}

// opened is a match that was named by -m.
type opened struct {
	saved
	name string
}

// saved is a match that is read option by option. option answers false for an option that is not the
// match's own.
type saved interface {
	Match
	option(o *option) bool
}

// idler is a match that may turn out to test nothing, as -m tcp without any option.
type idler interface{ idle() bool }

// maxMatches bounds the matches of one rule; the kernel's limit on a rule's size leaves room for fewer.
const maxMatches = 256

// read fills r from a line; rule is what stands behind "-A CHAIN". It returns what could not be read,
// empty when all was.
func (p *ruleReader) read(rule string, r *Rule) (why string) {
	p.words = words{s: rule}
	p.open = p.open[:0]
	p.target, p.plain, p.named, p.behind = nil, nil, "", false
	p.why, p.what, p.counts = "", "", ""
	p.opt.rule, p.opt.words = r, &p.words

	for {
		w, ok := p.words.next()
		if !ok {
			break
		}
		not := w == "!"
		if not {
			if w, ok = p.words.next(); !ok {
				p.fail("!", "nothing follows")
				break
			}
		}
		p.word(w, not, r)
	}
	if p.words.open {
		p.fail(`"`, "a quote is not closed")
	}
	p.finish(r)
	return p.why
}

func (p *ruleReader) fail(what, why string) {
	if p.why == "" {
		p.what, p.why = what, why
	}
}

// word reads one option with its values.
func (p *ruleReader) word(w string, not bool, r *Rule) {
	o := &p.opt
	o.name, o.not, o.why = w, not, ""
	switch w {
	case "-m", "--match":
		p.match(o.value())
	case "-j", "--jump":
		p.jump(o.value(), false)
	case "-g", "--goto":
		p.jump(o.value(), true)
	case "-s", "--source", "--src":
		p.address(o, &r.Src, false)
	case "-d", "--destination", "--dst":
		p.address(o, &r.Dst, true)
	case "-i", "--in-interface":
		o.iface(&r.ifaces().In)
	case "-o", "--out-interface":
		o.iface(&r.ifaces().Out)
	case "-p", "--protocol":
		p.protocol(o, r)
	case "-f", "--fragments":
		r.Fragment = OnlyFragments
		if not {
			r.Fragment = NoFragments
		}
	case "-c", "--set-counters":
		start := p.words.i
		r.Packets, r.Bytes, r.HasCounters = o.number(64), o.number(64), true
		p.counts = "-c" + p.words.s[start:p.words.i]
	case "-4", "--ipv4":
		p.v4++
	case "-6", "--ipv6":
		p.v6++
	default:
		p.option(w)
		return
	}
	if o.why != "" {
		p.fail(w, o.why)
	}
}

func (r *Rule) ifaces() *Ifaces {
	if r.Ifaces == nil {
		r.Ifaces = new(Ifaces)
	}
	return r.Ifaces
}

// iface takes an interface. "+" alone is every interface, which tests nothing.
func (o *option) iface(into *IfaceMatch) {
	*into = IfaceMatch{Name: o.value()}
	if into.Not = o.not; into.Name == "+" && !into.Not {
		into.Name = ""
	}
}

func (p *ruleReader) address(o *option, m *AddrMatch, dst bool) {
	v := o.value()
	prefix, odd, ok := parseAddress(v)
	switch {
	case !ok:
		o.fail("%q is not an address", v)
		return
	case odd.Addr.IsValid():
		p.count(odd.Addr.Is4())
		p.open = append(p.open, opened{&MaskedAddr{Addr: odd.Addr, Mask: odd.Mask, Dst: dst, Not: o.not}, ""})
		return
	}
	p.count(prefix.Addr().Is4())
	if prefix.Bits() == 0 && !o.not {
		return
	}
	*m = AddrMatch{Prefix: prefix, Not: o.not}
}

func (p *ruleReader) count(is4 bool) {
	if is4 {
		p.v4++
	} else {
		p.v6++
	}
}

func (p *ruleReader) protocol(o *option, r *Rule) {
	v := o.value()
	m, ok := parseProto(v)
	if !ok {
		o.fail("protocol %q is not known", v)
		return
	}
	m.Not = o.not
	r.Proto = m
	if m.Set && m.Number == ProtoICMPv6 {
		p.v6++
	}
}

// match opens a match by name.
func (p *ruleReader) match(name string) {
	if name == "" {
		p.fail("-m", "names no match")
		return
	}
	if len(p.open) >= maxMatches {
		p.fail("-m "+name, "more matches than a rule can hold")
		return
	}
	p.behind = false
	p.open = append(p.open, opened{newMatch(&p.arena, name), name})
}

// jump opens the target.
func (p *ruleReader) jump(name string, isGoto bool) {
	if name == "" {
		const why = "names no target"
		p.fail("-j", why)
		p.plain = Unreadable{Name: "-j", Why: why}
		return
	}
	p.named, p.behind = name, true
	p.target, p.plain = nil, nil
	if isGoto {
		p.plain = Jump{Chain: name, Goto: true}
		return
	}
	if a := findAction(name); a != nil {
		p.plain = a.fixed
		if a.save != nil {
			p.target = a.save(&p.arena)
		}
		return
	}
	if name != p.jumped.Chain {
		p.jumped = Jump{Chain: name}
		p.jumpTo = p.jumped
	}
	p.plain = p.jumpTo
}

// option finds the owner of an option: what was opened last, then what was opened before, the last first, then
// the match that -p loads by itself. Matches that are not evaluated take what nobody else knows.
func (p *ruleReader) option(w string) {
	if strings.HasPrefix(w, "[unsupported") {
		p.words.next() // revision]
		p.unsupported()
		return
	}
	if !strings.HasPrefix(w, "--") {
		p.fail(w, "stands where an option is expected")
		return
	}
	if p.owned(false) {
		return
	}
	if name, value, ok := strings.Cut(w, "="); ok {
		p.opt.name, p.opt.words = name, &words{s: value}
		owned := p.owned(false)
		p.opt.name, p.opt.words = w, &p.words
		if owned {
			return
		}
	}
	if !p.owned(true) {
		p.fail(w, "belongs to no match or target of the rule")
		skipValues(&p.words)
	}
}

// owned offers the option to everything open. What takes every option is asked only when greedy is set.
func (p *ruleReader) owned(greedy bool) bool {
	if p.behind && p.offerTarget(greedy) {
		return true
	}
	for i := len(p.open) - 1; i >= 0; i-- {
		if p.offer(i, greedy) {
			return true
		}
	}
	if !p.behind && p.offerTarget(greedy) {
		return true
	}
	name := implied(p.opt.rule.Proto)
	if greedy || name == "" || slices.ContainsFunc(p.open, func(m opened) bool { return m.name == name }) {
		return false
	}
	p.open = append(p.open, opened{newMatch(&p.arena, name), name})
	if p.offer(len(p.open)-1, false) {
		return true
	}
	p.open = p.open[:len(p.open)-1]
	return false
}

// offer lets match i read the option.
func (p *ruleReader) offer(i int, greedy bool) bool {
	m := &p.open[i]
	if takesAll(m.saved) != greedy || !m.option(&p.opt) {
		return false
	}
	if p.opt.why != "" {
		p.fail("-m "+m.name, p.opt.why)
		m.saved = p.unreadable("-m "+m.name, p.opt.why)
	}
	return true
}

func (p *ruleReader) offerTarget(greedy bool) bool {
	if p.target == nil || takesAll(p.target) != greedy || !p.target.option(&p.opt) {
		return false
	}
	if p.opt.why != "" {
		p.fail("-j "+p.named, p.opt.why)
		p.target, p.plain = nil, Unreadable{Name: p.named, Why: p.opt.why}
	}
	return true
}

// takesAll tells apart what takes every option.
func takesAll(v any) bool {
	switch v.(type) {
	case *Other, *UnreadableMatch, *ignored:
		return true
	}
	return false
}

func (p *ruleReader) unreadable(text, why string) *UnreadableMatch {
	return &UnreadableMatch{Text: text, Why: why, Rule: p.words.s}
}

// implied names the match that iptables loads for -p when an option needs it: `-p tcp --dport 80`.
func implied(m ProtoMatch) string {
	if !m.Set || m.Not {
		return ""
	}
	switch m.Number {
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoUDPLite:
		return "udplite"
	case ProtoSCTP:
		return "sctp"
	case ProtoDCCP:
		return "dccp"
	case ProtoICMP:
		return "icmp"
	case ProtoICMPv6:
		return "icmp6"
	}
	return ""
}

// unsupported marks what was opened last as printed by a tool that could not decode it.
func (p *ruleReader) unsupported() {
	const why = "printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it"
	if p.behind {
		p.fail("-j "+p.named, why)
		p.target, p.plain = nil, Unreadable{Name: p.named, Why: why}
		return
	}
	if n := len(p.open); n > 0 {
		m := &p.open[n-1]
		p.fail("-m "+m.name, why)
		m.saved = p.unreadable("-m "+m.name, why)
		return
	}
	p.fail("[unsupported revision]", why)
}

// finish puts the matches and the target into the rule.
func (p *ruleReader) finish(r *Rule) {
	var matches [8]Match
	keep := matches[:0]
	unreadable := false
	for _, m := range p.open {
		if i, ok := m.saved.(idler); ok && i.idle() {
			continue
		}
		if _, ok := m.saved.(*UnreadableMatch); ok {
			unreadable = true
		}
		keep = append(keep, m.saved)
	}
	if r.Ifaces != nil && *r.Ifaces == (Ifaces{}) { // "-i +"
		r.Ifaces = nil
	}
	r.Target = p.plain
	if p.target != nil {
		r.Target = p.target.done(p)
	}
	if _, ok := r.Target.(Unreadable); !ok && p.why != "" && !unreadable {
		keep = append(keep, p.unreadable(p.what, p.why))
	}
	r.Matches = p.matches.copy(keep)
}

// skipValues takes the words up to the next option.
func skipValues(w *words) {
	for !optionAhead(w) {
		if _, ok := w.next(); !ok {
			return
		}
	}
}

// optionAhead tells whether the next word is an option or "!" before one. A quoted word never is.
func optionAhead(w *words) bool {
	i := w.i
	for i < len(w.s) && (w.s[i] == ' ' || w.s[i] == '\t') {
		i++
	}
	rest := w.s[i:]
	switch {
	case strings.HasPrefix(rest, "! "), strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "[unsupported"):
		return true
	case len(rest) > 2 && rest[0] == '-' && rest[2] == ' ':
		return true
	}
	return false
}

// appendedTo splits "-A CHAIN rule" behind the "-A ".
func appendedTo(s string) (chain, rule string) {
	i := strings.IndexByte(s, ' ')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}

// problem is what a Problem says of a rule that was not read in full.
func problem(what, why string) string {
	if what == "" {
		return why
	}
	return fmt.Sprintf("%s: %s", what, why)
}
