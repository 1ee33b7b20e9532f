package audit

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/test/lab"
)

// nftables changes the tables of a kube-proxy in nftables mode, as nft lists them.
type nftables struct {
	*maker
	// clean are the tables of the node as it should be, by family.
	clean map[int]*nftText
	// old are the rules of iptables mode, as a kube-proxy would have left them.
	old map[int]*ruleText
}

var nftTables = map[int]string{4: "ip kube-proxy", 6: "ip6 kube-proxy"}

func newNFTables(t *testing.T, m *maker) plane {
	t.Helper()
	x := &nftables{maker: m, clean: map[int]*nftText{}}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Node n2 has no kube-proxy. One in iptables mode comes and goes there, and leaves its rules.
	m.n2.ConfigureProxy(func(config map[string]any) { config["mode"] = "iptables" })
	must(m.n2.StartProxy(ctx))
	must(m.WaitSynced(ctx))
	must(m.n2.StopProxy())
	x.old = m.save(t, m.n2)
	for _, r := range x.old {
		for _, t := range r.tables {
			for i, rule := range t.rules {
				t.rules[i] = nfacct.ReplaceAllString(rule, "") // it names a counter of that node
			}
		}
	}
	_, err := m.n2.Run(ctx, withoutTables("nat", "filter", "mangle"), "nft", "-f", "-")
	must(err)
	m.stop(t)
	for _, family := range []int{4, 6} {
		text, err := m.n1.Run(ctx, "", append([]string{"nft", "list", "table"}, strings.Fields(nftTables[family])...)...)
		must(err)
		r := parseNFT(text)[0]
		r.sort()
		x.clean[family] = r
		for _, b := range r.blocks {
			if b.dynamic() {
				m.affinities = append(m.affinities, r.name+" "+b.name)
			}
		}
		must(x.load(family, r)(ctx))
	}
	return x
}

var nfacct = regexp.MustCompile(` -m nfacct --nfacct-name +\S+`)

// withoutTables is a script that removes the tables of iptables-nft, whether they are there or not.
func withoutTables(names ...string) string {
	var out strings.Builder
	for _, family := range []int{4, 6} {
		for _, name := range names {
			fmt.Fprintf(&out, "table %s %s {}\ndelete table %[1]s %[2]s\n", ipWord(family), name)
		}
	}
	return out.String()
}

func (x *nftables) kinds() []kind {
	return append([]kind{
		{"rule deleted", x.deleted},
		{"map entry deleted", x.entryDeleted},
		{"DNAT target changed", x.target},
		{"foreign DNAT", x.foreignDNAT},
		{"mark changed", x.mark},
		{"map entry changed", x.entryChanged},
		{"test changed", x.test},
		{"foreign drop for half", x.half},
		{"set entry deleted", x.setEntryDeleted},
		{"rule moved", x.moved},
		{"chain flushed", x.flushed},
		{"map entry added", x.entryAdded},
		{"priority changed", x.priority},
		{"leftover iptables rules", x.leftover},
		{"shares changed", x.sharesChanged},
		{"set entry added", x.setEntryAdded},
		{"jump removed", x.jumpRemoved},
		{"map or set emptied", x.emptied},
		{"foreign notrack", x.foreignNotrack},
		{"policy drop", x.policy},
		{"rule duplicated", x.duplicated},
		{"affinity timeout changed", x.affinityTimeout},
		{"foreign masquerade", x.foreignMasquerade},
		{"verdict changed", x.verdict},
		{"affinity update removed", x.affinityForgotten},
		{"foreign accept", x.foreignAccept},
		{"rule added", x.added},
		{"foreign mark", x.foreignMark},
		{"table gone", x.tableGone},
	}, x.common()...)
}

func (x *nftables) rules(ctx context.Context) (string, error) {
	text, err := x.n1.Run(ctx, "", "nft", "list", "ruleset")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	tables := parseNFT(text)
	slices.SortFunc(tables, func(a, b *nftText) int { return strings.Compare(a.name, b.name) })
	for _, t := range tables {
		t.sort()
		out.WriteString(t.String())
	}
	for _, program := range []string{"iptables-save", "ip6tables-save"} { // nft does not see these
		text, err := x.n1.Run(ctx, "", "xtables-legacy-multi", program)
		if err != nil {
			return "", err
		}
		for _, t := range parseRules(text).tables {
			for _, rule := range t.rules {
				fmt.Fprintln(&out, program, t.name, rule)
			}
		}
	}
	return out.String(), nil
}

// nft runs a script as one transaction.
func (x *nftables) nft(script string) func(ctx context.Context) error {
	return x.run(script, "nft", "-f", "-")
}

// load puts a table in place of the one of its family.
func (x *nftables) load(family int, t *nftText) func(ctx context.Context) error {
	return x.nft(fmt.Sprintf("table %s {}\ndelete table %[1]s\n%s", nftTables[family], t))
}

// mutant is one with another table of a family.
func (x *nftables) mutant(family int, t *nftText, what string, places ...string) *mutant {
	return &mutant{
		family: family, what: fmt.Sprintf("table %s: %s", t.name, what), places: places,
		do: x.load(family, t), undo: x.load(family, x.clean[family]),
	}
}

// either is IPv4 or IPv6, with a copy of the table to change.
func (x *nftables) either() (int, *nftText) {
	family := choose(x.dice, []int{4, 6})
	return family, x.clean[family].clone()
}

// a spot is one line of a block: a rule, or an entry.
type spot struct {
	*nftBlock
	at int
}

func (s spot) text() string { return s.lines[s.at] }

// spots are the lines of chains, or of sets and maps, that fit and are of Services of the stage, or of all.
func (x *nftables) spots(t *nftText, ofChains bool, fits func(s spot) bool) []spot {
	var out []spot
	for _, b := range t.blocks {
		if (b.kind == "chain") != ofChains {
			continue
		}
		for i := range b.lines {
			s := spot{b, i}
			if x.notOurs(s) || fits != nil && !fits(s) {
				continue
			}
			out = append(out, s)
		}
	}
	return out
}

// notOurs tells what is of the lab's own Services, which nobody dials.
func (x *nftables) notOurs(s spot) bool {
	of := nftServiceOf(s.name)
	if s.kind != "chain" {
		of = nftServiceOf(s.text())
		if s.name == "cluster-ips" {
			return len(x.servicesOf(s.nftBlock, s.text())) == 0
		}
	}
	return of != "" && !strings.HasPrefix(of, namespace+"/")
}

// servicesOf are the Services that a line is of; none for what is of all.
func (x *nftables) servicesOf(b *nftBlock, line string) []string {
	of := nftServiceOf(b.name)
	if b.kind != "chain" {
		of = nftServiceOf(line)
		if c := nftEntryComment.FindStringSubmatch(line); c != nil {
			of = c[1]
		}
	}
	if name, ok := strings.CutPrefix(of, namespace+"/"); ok {
		return []string{name}
	}
	key, _ := entryKey(line)
	parts := strings.Split(key, " . ")
	var out []string
	for _, a := range x.acts {
		switch {
		case b.name == "cluster-ips" && slices.Contains(a.svc.Spec.ClusterIPs, key):
			out = append(out, a.svc.Name)
		case b.name == "hairpin-connections" && parts[2] == strings.ToLower(string(a.svc.Spec.Ports[0].Protocol)) && x.listsAddr(a, parts[0]):
			out = append(out, a.svc.Name)
		}
	}
	return out
}

var nftEntryComment = regexp.MustCompile(` comment "([^:"]*)`)

func (x *nftables) listsAddr(a *act, addr string) bool {
	for _, sl := range a.slices {
		for _, e := range sl.Endpoints {
			if slices.Contains(e.Addresses, addr) {
				return true
			}
		}
	}
	return false
}

// some chooses a rule.
func (x *nftables) some(fits func(s spot) bool) (int, *nftText, *spot) {
	family, t := x.either()
	in := x.spots(t, true, fits)
	if len(in) == 0 {
		return family, t, nil
	}
	return family, t, new(choose(x.dice, in))
}

// of begins a mutant of a rule: about whom it is, and which places a finding may name: the chain, the rule as it was and
// is, and where it led.
func (x *nftables) of(family int, t *nftText, s spot, was, now, what string) *mutant {
	u := x.mutant(family, t, fmt.Sprintf("chain %s: %s", s.name, what), s.name)
	u.about = x.servicesOf(s.nftBlock, was)
	for _, rule := range []string{now, was} {
		if body, _ := cutComment(rule); body != "" {
			u.places = append(u.places, body)
		}
	}
	if led := nftLeads.FindStringSubmatch(was); led != nil && nftServiceOf(led[1]) != "" {
		u.places = append(u.places, led[1])
	}
	if !strings.Contains(s.name, "/") { // a chain that kube-proxy keeps whatever Services there are
		u.hazards = []string{"kube-jump-missing"}
	}
	return u
}

// nftLed are the chains to which rules lead.
func nftLed(rules []string) []string {
	var out []string
	for _, rule := range rules {
		if led := nftLeads.FindStringSubmatch(rule); led != nil {
			out = append(out, led[1])
		}
	}
	return out
}

var nftLeads = regexp.MustCompile(`^(?:[^{]* )?(?:goto|jump) (\S+)`)

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
	nftSlot   = regexp.MustCompile(`(\d+) : ([0-9a-f.:]+) \. (\d+)`)
	nftDNAT   = regexp.MustCompile(`dnat to (\S+)`)
	nftRandom = regexp.MustCompile(`numgen random mod (\d+) (v?map) \{ (.*) \}`)
)

func (x *nftables) target() *mutant {
	family, t, s := x.some(func(s spot) bool { return strings.Contains(s.text(), " dnat ") })
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
	u := x.replaced(family, t, s, strings.Replace(s.text(), m[0], fmt.Sprintf("numgen random mod %d %s { %s }", n, m[2], strings.Join(slots, ", ")), 1))
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
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool { return b.kind != "chain" || strings.Contains(b.name, "/") }))
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

// nftMaps are kube-proxy's maps, nftSets its sets that all Services share.
var (
	nftMaps = []string{"service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports", "firewall-ips"}
	nftSets = []string{"cluster-ips", "nodeport-ips", "hairpin-connections"}
)

// entry chooses an entry of one of the sets or maps.
func (x *nftables) entry(of []string) (int, *nftText, *spot) {
	family, t := x.either()
	name := choose(x.dice, of)
	in := x.spots(t, false, func(s spot) bool { return s.name == name })
	if len(in) == 0 {
		return family, t, nil
	}
	return family, t, new(choose(x.dice, in))
}

// ofEntry begins a mutant of an entry.
func (x *nftables) ofEntry(family int, t *nftText, b *nftBlock, entry, what string) *mutant {
	key, _ := entryKey(entry)
	u := x.mutant(family, t, fmt.Sprintf("%s %s: %s", b.kind, b.name, what), key)
	u.about = x.servicesOf(b, entry)
	return u
}

func (x *nftables) entryDeleted() *mutant    { return x.withoutEntry(nftMaps) }
func (x *nftables) setEntryDeleted() *mutant { return x.withoutEntry(nftSets) }

func (x *nftables) withoutEntry(of []string) *mutant {
	family, t, s := x.entry(of)
	if s == nil {
		return nil
	}
	entry := s.text()
	s.lines = slices.Delete(s.lines, s.at, s.at+1)
	u := x.ofEntry(family, t, s.nftBlock, entry, "without "+entry)
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

func (x *nftables) entryChanged() *mutant {
	family, t, s := x.entry(nftMaps)
	if s == nil {
		return nil
	}
	was := s.text()
	_, to := entryKey(was)
	now := choose(x.dice, []string{"drop", "accept", "goto reject-chain", "return"})
	if strings.HasPrefix(s.name, "service-") { // the chains of others translate, which only nat chains may lead to
		now = choose(x.dice, []string{"drop", "accept", "return", "goto " + x.chainOfAnother(t, to), "goto " + x.chainOfAnother(t, to)})
	}
	if now == to {
		return nil
	}
	s.lines[s.at] = strings.TrimSuffix(was, to) + now
	u := x.ofEntry(family, t, s.nftBlock, was, was+"\n  now: "+s.text())
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

// chainOfAnother is a chain like the one that an entry leads to, of another Service.
func (x *nftables) chainOfAnother(t *nftText, verdict string) string {
	kind := "service-"
	for _, k := range []string{"external-", "local-", "firewall-"} {
		if strings.HasPrefix(verdict, "goto "+k) && x.dice.IntN(2) == 0 {
			kind = k
		}
	}
	var out []string
	for _, b := range t.blocks {
		if b.kind == "chain" && strings.HasPrefix(b.name, kind) && nftServiceOf(b.name) != nftServiceOf(verdict) && strings.HasPrefix(nftServiceOf(b.name), namespace+"/") {
			out = append(out, b.name)
		}
	}
	if len(out) == 0 {
		return "reject-chain"
	}
	return choose(x.dice, out)
}

// entryAdded is a mutant with an entry for a frontend that another map has, or for one of nobody.
func (x *nftables) entryAdded() *mutant {
	family, t := x.either()
	name := choose(x.dice, nftMaps)
	b := t.block(name)
	service, addr, port, protocol := x.frontend(family)
	for addr.IsValid() == strings.HasSuffix(name, "-nodeports") {
		service, addr, port, protocol = x.frontend(family)
	}
	a := x.actOf(service)
	switch x.dice.IntN(3) {
	case 0:
		port++
		service = ""
	case 1:
		if addr.IsValid() {
			addr, service = x.pods[choose(x.dice, []string{"a1", "c1"})].Addr(family == 6), ""
			port = map[string]int32{"tcp": 8080, "udp": 5353}[protocol]
		}
	}
	key := fmt.Sprintf("%s . %d", protocol, port)
	if addr.IsValid() {
		key = addr.String() + " . " + key
	}
	if slices.ContainsFunc(b.lines, func(e string) bool { k, _ := entryKey(e); return k == key }) {
		return nil
	}
	var to string
	switch name {
	case "firewall-ips":
		to = "goto " + x.chainNamed(t, "firewall-")
	case "no-endpoint-services", "no-endpoint-nodeports":
		to = choose(x.dice, []string{"drop", "goto reject-chain"})
	default:
		to = "goto " + x.chainOfAnother(t, "")
	}
	entry := key + " : " + to
	if strings.HasPrefix(name, "no-endpoint") {
		entry = fmt.Sprintf("%s comment \"%s/%s:%s\" : %s", key, namespace, a.svc.Name, a.svc.Spec.Ports[0].Name, to)
	}
	b.lines = append(b.lines, entry)
	u := x.ofEntry(family, t, b, entry, "more: "+entry)
	u.about = nil
	if service != "" {
		u.about = []string{service}
	}
	return u
}

func (x *nftables) chainNamed(t *nftText, prefix string) string {
	for _, b := range t.blocks {
		if b.kind == "chain" && strings.HasPrefix(b.name, prefix) && nftServiceOf(b.name) != "" {
			return b.name
		}
	}
	return "reject-chain"
}

func (x *nftables) setEntryAdded() *mutant {
	family, t := x.either()
	b := t.block(choose(x.dice, nftSets))
	pod := func(names ...string) netip.Addr { return x.pods[choose(x.dice, names)].Addr(family == 6) }
	gateway, external := x.n1.PodCIDRIPv4.Addr().Next(), netip.MustParseAddr("198.51.100.10")
	if family == 6 {
		gateway, external = x.n1.PodCIDRIPv6.Addr().Next(), netip.MustParseAddr("fd00:1b::a")
	}
	var entry string
	switch b.name {
	case "cluster-ips":
		entry = choose(x.dice, []netip.Addr{pod("a1", "c1"), pod("client-1", "client-2"), gateway, external}).String()
	case "nodeport-ips":
		entry = choose(x.dice, []netip.Addr{gateway, external, pod("a1")}).String()
	default:
		from, to := pod("c1", "client-1", "a2"), pod("a1", "c1")
		entry = fmt.Sprintf("%s . %s . tcp . 8080", from, to)
	}
	if slices.Contains(b.lines, entry) {
		return nil
	}
	b.lines = append(b.lines, entry)
	u := x.ofEntry(family, t, b, entry, "more: "+entry)
	u.about = nil
	return u
}

func (x *nftables) emptied() *mutant {
	family, t := x.either()
	b := t.block(choose(x.dice, append(slices.Clone(nftMaps), nftSets...)))
	b.lines = nil
	u := x.mutant(family, t, fmt.Sprintf("%s %s: emptied", b.kind, b.name), b.name)
	u.hazards = []string{"nft-map-entry-missing"}
	return u
}

// affinityTimeout changes how long clients are remembered, which no connection of the grid shows.
func (x *nftables) affinityTimeout() *mutant {
	family, t := x.either()
	b := choose(x.dice, slices.DeleteFunc(slices.Clone(t.blocks), func(b *nftBlock) bool { return !b.dynamic() }))
	now := choose(x.dice, []string{"30s", "1h", "3h", "9m59s", ""})
	for i, l := range b.head {
		if strings.HasPrefix(l, "timeout ") {
			b.head[i] = "timeout " + now
			if now == "" {
				b.head = slices.Delete(b.head, i, i+1)
			}
			break
		}
	}
	u := x.mutant(family, t, fmt.Sprintf("set %s: timeout %s", b.name, now), b.name, strings.Replace(b.name, "affinity-", "endpoint-", 1))
	u.about, u.certain = []string{strings.TrimPrefix(nftServiceOf(b.name), namespace+"/")}, true
	return u
}

// leftover puts rules of iptables mode beside the tables.
func (x *nftables) leftover() *mutant {
	family := choose(x.dice, []int{4, 6})
	backend := choose(x.dice, []lab.Backend{lab.NFT, lab.NFT, lab.Legacy})
	if backend == lab.Legacy {
		empty := &ruleText{}
		empty.table("nat")
		empty.table("filter")
		return x.beside(family, x.old[family].clone(), backend, x.restore(backend, family, empty.String()))
	}
	return x.beside(family, x.old[family].clone(), backend, x.nft(withoutTables("nat", "filter")))
}

// foreign is a mutant with a table of another program, of one chain with one rule.
func (x *nftables) foreign(family int, kind, hook string, priority int, rule string) *mutant {
	name := choose(x.dice, []string{ipWord(family), ipWord(family), "inet"}) + " hostfw"
	text := fmt.Sprintf("table %s { chain %s { type %s hook %s priority %d; policy accept; %s; }; }", name, "guard", kind, hook, priority, rule)
	return &mutant{family: family, what: text, do: x.nft(text), undo: x.nft("delete table " + name), places: []string{rule, "hostfw"}}
}

// matches are those of a frontend of some Service.
func (x *nftables) matches(family int) (service, matches, protocol string) {
	service, addr, port, protocol := x.frontend(family)
	matches = fmt.Sprintf("%s dport %d", protocol, port)
	if addr.IsValid() {
		matches = fmt.Sprintf("%s daddr %s %s", ipWord(family), addr, matches)
	}
	return service, matches, protocol
}

// aroundDNAT are priorities before and behind those of kube-proxy's chains that translate, and theirs: the table that
// came last is first.
var aroundDNAT = []int{-150, -101, -100, -99, -50}

func (x *nftables) foreignDNAT() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, protocol := x.matches(family)
	port := map[string]uint16{"tcp": 8080, "udp": 5353}[protocol]
	to := netip.AddrPortFrom(x.pods[choose(x.dice, []string{"client-1b", "a2", "c2"})].Addr(family == 6), port)
	how := choose(x.dice, []string{fmt.Sprintf("dnat %s to %s", ipWord(family), to), fmt.Sprintf("dnat %s to %s", ipWord(family), to), "redirect to :9999"})
	u := x.foreign(family, "nat", choose(x.dice, []string{"prerouting", "prerouting", "output"}), choose(x.dice, aroundDNAT), matches+" "+how)
	// In a table of one family nft leaves out which one it is.
	u.places = append(u.places, strings.Replace(u.places[0], "dnat "+ipWord(family)+" to", "dnat to", 1))
	u.about = []string{service}
	return u
}

func (x *nftables) half() *mutant {
	family := choose(x.dice, []int{4, 6})
	at := choose(x.dice, []struct {
		hook     string
		priority []int
	}{
		{"prerouting", []int{-310, -150, -105, -95, 0}},
		{"forward", []int{-10, 0, 10}},
		{"input", []int{-10, 0, 10}},
		{"output", []int{-310, -150, -105, -95, 10}},
		{"postrouting", []int{-10, 90, 110}},
	})
	protocol := choose(x.dice, []string{"", "", " meta l4proto tcp", " meta l4proto udp"})
	if family == 6 && at.hook != "forward" && protocol == "" {
		return nil // neighbour discovery
	}
	end := "drop"
	if at.hook == "forward" || at.hook == "input" || at.hook == "output" {
		end = choose(x.dice, []string{"drop", "drop", "reject"})
	}
	rule := fmt.Sprintf("%s %s %s%s %s", ipWord(family), choose(x.dice, []string{"saddr", "daddr"}), choose(x.dice, x.halves(family)), protocol, end)
	return x.foreign(family, "filter", at.hook, choose(x.dice, at.priority), rule)
}

func (x *nftables) foreignNotrack() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, protocol := x.matches(family)
	hook, priority := choose(x.dice, []string{"prerouting", "output"}), choose(x.dice, []int{-300, -300, -250, -150})
	if x.dice.IntN(2) == 0 {
		u := x.foreign(family, "filter", hook, priority, matches+" notrack")
		u.about = []string{service}
		return u
	}
	// The answers of a backend.
	backend := x.pods[choose(x.dice, []string{"a1", "a2", "c1", "c2"})].Addr(family == 6)
	return x.foreign(family, "filter", hook, priority, fmt.Sprintf("%s saddr %s meta l4proto %s notrack", ipWord(family), backend, protocol))
}

func (x *nftables) foreignAccept() *mutant {
	family := choose(x.dice, []int{4, 6})
	hook := choose(x.dice, []string{"prerouting", "prerouting", "output", "postrouting"})
	match := choose(x.dice, []string{"", "meta l4proto tcp ", fmt.Sprintf("%s saddr %s ", ipWord(family), x.halves(family)[0])})
	priority := choose(x.dice, aroundDNAT)
	if hook == "postrouting" {
		priority = choose(x.dice, []int{50, 100, 110})
	}
	return x.foreign(family, choose(x.dice, []string{"nat", "nat", "filter"}), hook, priority, match+"accept")
}

func (x *nftables) foreignMasquerade() *mutant {
	family := choose(x.dice, []int{4, 6})
	match := choose(x.dice, []string{"", "", `oifname "eth0" `, `oifname "cni0" `, fmt.Sprintf("%s saddr %s ", ipWord(family), x.halves(family)[0])})
	return x.foreign(family, "nat", "postrouting", choose(x.dice, []int{50, 99, 100, 101, 150}), match+"masquerade")
}

func (x *nftables) foreignMark() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, _ := x.matches(family)
	at := choose(x.dice, []struct {
		hook     string
		priority int
	}{{"prerouting", -150}, {"prerouting", -50}, {"forward", 0}, {"postrouting", 50}, {"postrouting", 150}, {"output", -150}})
	set := choose(x.dice, []string{"meta mark set meta mark | 0x00004000", "meta mark set 0x00004000", "meta mark set meta mark & 0xffffbfff", "meta mark set 0x00000000"})
	if x.dice.IntN(2) == 0 {
		return x.foreign(family, "filter", at.hook, at.priority, set)
	}
	u := x.foreign(family, "filter", at.hook, at.priority, matches+" "+set)
	u.about = []string{service}
	return u
}
