package audit

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (x *nftables) deleted() *mutant { return x.without(nil) }

// without is a mutant that lacks a rule.
func (x *nftables) without(fits func(s spot) bool) *mutant {
	family, t, s := x.some(fits)
	if s == nil {
		return nil
	}
	rule := s.text()
	s.lines = slices.Delete(s.lines, s.at, s.at+1)
	return x.of(family, t, *s, rule, "", "without "+rule)
}

func (x *nftables) jumpRemoved() *mutant {
	return x.without(func(s spot) bool { return s.base() != "" })
}

func (x *nftables) affinityForgotten() *mutant {
	return x.without(func(s spot) bool { return strings.HasPrefix(s.text(), "update @affinity-") })
}

func (x *nftables) duplicated() *mutant {
	family, t, s := x.some(nil)
	if s == nil {
		return nil
	}
	rule, at := s.text(), x.dice.IntN(len(s.lines)+1)
	s.lines = slices.Insert(s.lines, at, rule)
	u := x.of(family, t, *s, rule, rule, fmt.Sprintf("again as rule %d: %s", at+1, rule))
	u.byWalk = true
	return u
}

func (x *nftables) moved() *mutant {
	family, t, s := x.some(func(s spot) bool { return len(s.lines) > 1 })
	if s == nil {
		return nil
	}
	rule := s.text()
	s.lines = slices.Delete(s.lines, s.at, s.at+1)
	at := x.dice.IntN(len(s.lines) + 1)
	s.lines = slices.Insert(s.lines, at, rule)
	u := x.of(family, t, *s, rule, rule, fmt.Sprintf("rule %d becomes rule %d: %s", s.at+1, at+1, rule))
	u.byWalk = true
	return u
}

// replaced is a mutant with one rule in place of another.
func (x *nftables) replaced(family int, t *nftText, s *spot, rule string) *mutant {
	was := s.text()
	if rule == was {
		return nil
	}
	s.lines[s.at] = rule
	return x.of(family, t, *s, was, rule, was+"\n  now: "+rule)
}

var (
	nftTranslates = regexp.MustCompile(` dnat (ip6? )?to `)

	nftSlot   = regexp.MustCompile(`(\d+) : ([0-9a-f.:]+) \. (\d+)`)
	nftDNAT   = regexp.MustCompile(`dnat to (\S+)`)
	nftRandom = regexp.MustCompile(`numgen random mod (\d+) (v?map) \{ (.*) \}`)
)

func (x *nftables) target() *mutant {
	family, t, s := x.some(func(s spot) bool { return nftTranslates.MatchString(s.text()) })
	if s == nil {
		return nil
	}
	rule := s.text()
	if to := nftDNAT.FindStringSubmatch(rule); to != nil {
		now := x.elsewhere(family, netip.MustParseAddrPort(to[1]))
		return x.replaced(family, t, s, strings.Replace(rule, to[0], "dnat to "+now.String(), 1))
	}
	slot := choose(x.dice, nftSlot.FindAllStringSubmatch(rule, -1))
	now := x.elsewhere(family, netip.AddrPortFrom(netip.MustParseAddr(slot[2]), portOf(slot[3])))
	text := fmt.Sprintf("%s . %d", now.Addr(), now.Port())
	u := x.replaced(family, t, s, strings.Replace(rule, slot[0], slot[1]+" : "+text, 1))
	if u != nil {
		u.places = append(u.places, text)
	}
	return u
}

func portOf(text string) uint16 {
	n, _ := strconv.Atoi(text)
	return uint16(n)
}

// elsewhere is another place to translate to: another pod, nobody, or another port.
func (x *nftables) elsewhere(family int, was netip.AddrPort) netip.AddrPort {
	switch x.dice.IntN(3) {
	case 0:
		pod := x.pods[choose(x.dice, []string{"a1", "a2", "c1", "c2", "client-1b"})]
		return netip.AddrPortFrom(pod.Addr(family == 6), was.Port())
	case 1:
		return netip.AddrPortFrom(netip.MustParseAddr(map[int]string{4: "10.244.1.77", 6: "fd00:244:1::77"}[family]), was.Port())
	}
	return netip.AddrPortFrom(was.Addr(), was.Port()+1)
}

// sharesChanged changes the slots among which a rule chooses by chance.
func (x *nftables) sharesChanged() *mutant {
	family, t, s := x.some(func(s spot) bool {
		m := nftRandom.FindStringSubmatch(s.text())
		return m != nil && m[1] != "1"
	})
	if s == nil {
		return nil
	}
	m := nftRandom.FindStringSubmatch(s.text())
	n := int(portOf(m[1]))
	var to []string
	for _, slot := range strings.Split(m[3], ", ") {
		_, where, _ := strings.Cut(slot, " : ")
		to = append(to, where)
	}
	i, j := x.dice.IntN(len(to)), x.dice.IntN(len(to))
	switch x.dice.IntN(5) {
	case 0: // twice the share for one
		n, to = n+1, append(to, to[j])
	case 1: // much more of it
		n, to = n+3, append(to, to[j], to[j], to[j])
	case 2:
		to[i] = to[j]
	case 3: // a slot that leads nowhere
		n++
	case 4:
		to[i], to[j] = to[j], to[i]
	}
	var slots []string
	for i, where := range to {
		slots = append(slots, fmt.Sprintf("%d : %s", i, where))
	}
	now := fmt.Sprintf("numgen random mod %d %s { %s }", n, m[2], strings.Join(slots, ", "))
	u := x.replaced(family, t, s, strings.Replace(s.text(), m[0], now, 1))
	if u != nil {
		u.byWalk = true
	}
	return u
}

func (x *nftables) mark() *mutant {
	const bit = "0x00004000"
	family, t, s := x.some(func(s spot) bool { return strings.Contains(s.text(), bit) })
	if s == nil {
		return nil
	}
	rule := s.text()
	parts := strings.Split(rule, bit)
	which, now := x.dice.IntN(len(parts)), choose(x.dice, []string{"0x00008000", "0x00002000", "0x00000001"})
	if which == len(parts)-1 {
		return x.replaced(family, t, s, strings.ReplaceAll(rule, bit, now))
	}
	// One of them alone: where it is tested, or where it is set or cleared.
	return x.replaced(family, t, s, strings.Join(parts[:which+1], bit)+now+strings.Join(parts[which+1:], bit))
}

// edits are the ways to change a piece of a rule.
type edit struct{ is, becomes string }

// changed is a mutant with one of the edits that fit some rule. Comments stay.
func (x *nftables) changed(of func(family int) []edit) *mutant {
	family, t, s := x.some(nil)
	if s == nil {
		return nil
	}
	body, comment := cutComment(s.text())
	var now []string
	for _, e := range of(family) {
		re := regexp.MustCompile(e.is)
		if re.MatchString(body) {
			now = append(now, re.ReplaceAllString(body, e.becomes))
		}
	}
	if len(now) == 0 {
		return nil
	}
	return x.replaced(family, t, s, choose(x.dice, now)+comment)
}

func (x *nftables) test() *mutant { return x.changed(nftTests) }

// nftTests are other things to test for.
func nftTests(family int) []edit {
	out := []edit{
		{`meta l4proto tcp`, "meta l4proto udp"},
		{`meta l4proto udp`, "meta l4proto tcp"},
		{`fib saddr type local`, "fib saddr type unicast"},
		{`fib saddr type local`, "fib daddr type local"},
		{`ct state new`, "ct state established"},
		{`ct state new`, "ct state established,new"},
		{`ct state new`, "ct state invalid"},
		{`ct status dnat`, "ct status snat"},
		{`ct status dnat`, "ct status assured"},
		{`@cluster-ips`, "@nodeport-ips"},
		{`@nodeport-ips`, "@cluster-ips"},
		{`(ip6?) daddr`, "$1 saddr"},
		{`(ip6?) saddr`, "$1 daddr"},
		{`th dport`, "th sport"},
		{` saddr != `, " saddr "},
		{` saddr ([0-9a-f{])`, " saddr != $1"},
		{`\{ (\S+), \S+ \} drop`, "{ $1 } drop"},
		{`\{ \S+, (\S+) \} drop`, "{ $1 } drop"},
	}
	prefixes := []edit{
		{`10\.244\.0\.0/16`, "10.244.0.0/17"},
		{`10\.244\.0\.0/16`, "10.244.1.0/24"},
		{`10\.244\.0\.0/16`, "10.245.0.0/16"},
		{`10\.244\.0\.0/16`, "10.0.0.0/8"},
		{`10\.96\.0\.0/16`, "10.97.0.0/16"},
		{`10\.96\.0\.0/16`, "10.244.0.0/16"},
		{`10\.244\.1\.0/25`, "10.244.1.0/24"},
		{`172\.30\.0\.200`, "172.30.0.201"},
	}
	if family == 6 {
		prefixes = []edit{
			{`fd00:244::/32`, "fd00:244::/33"},
			{`fd00:244::/32`, "fd00:244:1::/48"},
			{`fd00:244::/32`, "fd00:245::/32"},
			{`fd00:244::/32`, "fd00::/16"},
			{`fd00:96::/112`, "fd00:97::/112"},
			{`fd00:96::/112`, "fd00:244::/32"},
			{`fd00:244:1::/65`, "fd00:244:1::/64"},
			{`fd00:30::200`, "fd00:30::201"},
		}
	}
	return append(out, prefixes...)
}

func (x *nftables) verdict() *mutant { return x.changed(nftVerdicts) }

// nftVerdicts are other ends of rules.
func nftVerdicts(int) []edit {
	return []edit{
		{`goto (\S+)$`, "jump $1"},
		{`goto (\S+)$`, "return"},
		{`jump (\S+)$`, "goto $1"},
		{`jump (\S+)$`, "accept"},
		{`drop$`, "accept"},
		{`drop$`, "reject"},
		{`reject$`, "drop"},
		{`reject$`, "accept"},
		{`masquerade fully-random$`, "masquerade"},
		{`masquerade fully-random$`, "accept"},
		{`masquerade fully-random$`, "return"},
	}
}

// added is a mutant with a rule more in one of the chains that all Services share.
func (x *nftables) added() *mutant {
	family, t := x.either()
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool {
		return b.kind != "chain" || strings.Contains(b.name, "/")
	}))
	tests := []string{"", "", "meta l4proto tcp ", fmt.Sprintf("%s saddr %s ", ipWord(family), x.halves(family)[0])}
	test, end := choose(x.dice, tests), choose(x.dice, []string{"accept", "accept", "return", "drop"})
	if family == 6 && end == "drop" && !strings.Contains(test, "l4proto") {
		return nil // neighbour discovery
	}
	rule, at := test+end, choose(x.dice, []int{0, 0, len(b.lines)})
	b.lines = slices.Insert(b.lines, at, rule)
	return x.of(family, t, spot{b, at}, "", rule, fmt.Sprintf("rule %d more: %s", at+1, rule))
}

func ipWord(family int) string { return map[int]string{4: "ip", 6: "ip6"}[family] }

func (x *nftables) flushed() *mutant {
	family, t, s := x.some(nil)
	if s == nil {
		return nil
	}
	rules := s.lines
	s.lines = nil
	u := x.of(family, t, *s, "", "", "flushed")
	u.places = append(u.places, nftLed(rules)...)
	return u
}

func (x *nftables) policy() *mutant {
	family, t := x.either()
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool {
		// Neighbour discovery of IPv6 passes the others too.
		return b.base() == "" || family == 6 && strings.Contains(b.base(), "type filter") && b.name != "filter-forward"
	}))
	for i, l := range b.head {
		b.head[i] = strings.Replace(l, "policy accept", "policy drop", 1)
	}
	return x.mutant(family, t, fmt.Sprintf("chain %s: policy drop", b.name), b.name)
}

var nftPriority = regexp.MustCompile(`priority [^;]+;`)

func (x *nftables) priority() *mutant {
	family, t := x.either()
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool { return b.base() == "" }))
	to := []int{-310, -150, -105, -95, -10, 10, 95, 110, 310}
	if strings.HasPrefix(b.base(), "type nat") {
		to = to[1:] // none before connection tracking
	}
	now := fmt.Sprintf("priority %d;", choose(x.dice, to))
	for i, l := range b.head {
		b.head[i] = nftPriority.ReplaceAllString(l, now)
	}
	u := x.mutant(family, t, fmt.Sprintf("chain %s: %s", b.name, now), b.name)
	u.places = append(u.places, nftLed(b.lines)...)
	return u
}

func (x *nftables) tableGone() *mutant {
	family, t := x.either()
	if x.dice.IntN(2) == 0 {
		t.head = append(t.head, "flags dormant")
		return x.mutant(family, t, "dormant", t.name)
	}
	u := x.mutant(family, t, "deleted", t.name)
	u.do = x.nft("delete table " + t.name)
	return u
}
