package audit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	m.primaryOnly = true
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	x.old = m.oldRules(t)
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
		case b.name == "hairpin-connections" && parts[2] == strings.ToLower(string(a.svc.Spec.Ports[0].Protocol)) && a.listsAddr(parts[0]):
			out = append(out, a.svc.Name)
		}
	}
	return out
}

var nftEntryComment = regexp.MustCompile(` comment "([^:"]*)`)

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
