//go:build linux

package oracle

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// captureNFT reads the node's ruleset in one of the forms that a user may give.
func (l *lab) captureNFT(form string) (*nft.Ruleset, error) {
	if form == "netlink" {
		data, err := l.dumpNFT()
		if err != nil {
			return nil, fmt.Errorf("dump rules: %w", err)
		}
		return read(form, func() (*nft.Ruleset, error) { return nft.ParseNetlink(data, form) })
	}
	kind, option, _ := strings.Cut(form, " ")
	argv := []string{"nft"}
	if option != "" {
		argv = append(argv, option)
	}
	if kind == "json" {
		argv = append(argv, "-j")
	}
	argv = append(argv, "list", "ruleset")
	text, err := l.node.run("", argv...)
	if err != nil {
		return nil, unprintedRules{fmt.Errorf("read rules back: %w", err)}
	}
	file := strings.Join(argv, " ")
	return read(form+"\n"+text, func() (*nft.Ruleset, error) {
		if kind == "json" {
			return nft.ParseJSON([]byte(text), file)
		}
		return nft.ParseText(text, file)
	})
}

// strayNumber is what nft 1.0.6 prints for some ranges of ports in place of the lower end.
var strayNumber = regexp.MustCompile(`th [sd]port (!= )?[0-9]{6,}-`)

// read runs a parser, of which everything must be readable.
func read(what string, parse func() (*nft.Ruleset, error)) (*nft.Ruleset, error) {
	rs, err := parse()
	if err != nil {
		return nil, unreadRules{fmt.Errorf("parse %s: %w", what, err)}
	}
	if len(rs.Problems) > 0 {
		p := rs.Problems[0]
		if strayNumber.MatchString(p.Text) {
			return rs, unprintedRules{fmt.Errorf("nft printed %q", p.Text)}
		}
		return rs, unreadRules{fmt.Errorf("parse %s: line %d %q: %s", strings.SplitN(what, "\n", 2)[0], p.Line, p.Text, p.Why)}
	}
	return rs, nil
}

// unprintedRules is the error of an nft that cannot print what it has loaded.
type unprintedRules struct{ error }

// unreadRules is the error of a parser that cannot read what nft prints.
type unreadRules struct{ error }

// nftWalker is the walk over a trial's rules as the kernel holds them.
func (l *lab) nftWalker(t *nftTrial) (*netfilter.Walker, error) {
	w := &netfilter.Walker{Kernel: &netfilter.Kernel{Host: l.host(), Sets: sets()}}
	for _, rs := range t.rulesets {
		file := program(rs.family, rs.backend, "save")
		text, err := l.node.run("", file, "-c")
		if err != nil {
			return nil, fmt.Errorf("read rules back: %w", err)
		}
		parsed, err := netfilter.ParseSave(text, file, netfilter.Hint{Family: rs.family, Backend: rs.backend})
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		w.Rulesets = append(w.Rulesets, parsed...)
	}
	rs, err := l.captureNFT(t.form)
	if beside := slices.ContainsFunc(t.rulesets, func(rs *ruleset) bool { return rs.backend == netfilter.NFT }); beside && rs != nil {
		err = nil // nft cannot print all rules of iptables so that they can be read; the walk has these from iptables-save
	}
	w.NFT = []*nft.Ruleset{rs}
	t.parsed = rs
	return w, err
}

// runNFT loads the rules of a trial, sends its packets and compares.
func (l *lab) runNFT(t *nftTrial) (*result, error) {
	if err := l.use(t.variant); err != nil {
		return nil, err
	}
	if err := l.loadNFT(t); err != nil {
		return nil, err
	}
	w, err := l.nftWalker(t)
	if err != nil {
		return nil, err
	}
	t.reread = func(w *netfilter.Walker) error {
		rs, err := l.captureNFT(t.form)
		w.NFT = []*nft.Ruleset{rs}
		return err
	}
	res := &result{}
	walk := func(s shot, o *observation) {
		entry, p := s.packet()
		res.verdicts = append(res.verdicts, t.compare(s, w.Walk(entry, p), o))
		res.obs = append(res.obs, o)
	}
	if t.single {
		for _, s := range t.shots {
			if err := l.refresh(w, &t.trial); err != nil {
				return nil, err
			}
			obs, err := l.fire([]shot{s})
			if err != nil {
				return nil, err
			}
			walk(s, obs[0])
		}
	} else {
		obs, err := l.fire(t.shots)
		if err != nil {
			return nil, err
		}
		for i, o := range obs {
			walk(t.shots[i], o)
		}
	}
	// An error that the node answers with belongs to the connection too, and may have changed its mark.
	quiet := &result{verdicts: slices.Clone(res.verdicts), obs: res.obs}
	for i, o := range res.obs {
		if len(o.answers) > 0 && strings.Contains(t.rules.text(false), "ct mark set") {
			quiet.verdicts[i].decided = false
		}
	}
	err = l.reply(w, &t.trial, quiet)
	res.replies = quiet.replies
	return res, err
}

// isNFT tells whether a hop is one of nftables.
func isNFT(h netfilter.Hop) bool { return h.NFT || h.Backend == nftBackend }

// compare sets what was seen beside the endings of the walk. The way through the rules is compared where nothing on it
// is a matter of chance, as the kernel tells.
func (t *nftTrial) compare(s shot, endings []netfilter.Ending, o *observation) verdict {
	if !t.certain(s, o) {
		return compareBy(endings, o, nil)
	}
	return compareBy(endings, o, t.wrongPath)
}

// certain tells whether nothing on the way of a packet was a matter of chance.
func (t *nftTrial) certain(s shot, o *observation) bool {
	if !t.traced || t.branched {
		return false
	}
	drawn := false // the source port, by a translation
	for _, p := range o.path {
		if t.chancy(p, s) {
			return false
		}
		if r := t.at(p); r != nil {
			if drawn && len(r.effects) > 0 && ofSourcePort.MatchString(r.String()) {
				return false
			}
			drawn = drawn || p.hit && drawsPort.MatchString(r.String())
		}
	}
	return true
}

// Rules that draw a port, and those that look at one which may have been drawn.
var (
	drawsPort    = regexp.MustCompile(`(masquerade|snat).*(random|:50000-51000)`)
	ofSourcePort = regexp.MustCompile(`sport|proto-dst|@th,0`)
)

// at is the rule at a point, nil for none of nftables.
func (t *nftTrial) at(p point) *nftRule {
	if p.backend != nftBackend || p.atEnd || t.rules == nil {
		return nil
	}
	for _, tab := range t.rules.tables {
		if tab.title() != p.table {
			continue
		}
		for _, c := range tab.chains {
			if i := (p.index - 1) / 2; c.name == p.chain && i < len(c.rules) {
				return &c.rules[i]
			}
		}
	}
	return nil
}

// chancy tells whether a packet may go on either way from a point: the walk then has several endings, or one that
// stands for several ways that come to the same.
func (t *nftTrial) chancy(p point, s shot) bool {
	if p.backend != nftBackend {
		return true // of iptables' rules TestKernel knows more
	}
	r := t.at(p)
	if r == nil || len(r.effects) == 0 {
		return false // of two ways that come to the same there is one, and no rule to be named
	}
	text := r.String()
	if r.only == "" && strings.Contains(text, "fib ") && strings.Contains(text, " oif ") {
		return true // not all routes are known to lead back or not
	}
	// What stands where other protocols have their ports is not known to a walk.
	return r.open || strings.Contains(text, "numgen") || strings.Contains(text, "hash") || !hasPorts(s.proto) && ofPorts(text)
}

// wrongPath compares the rules that the walk names with those whose tests the packet passed, both ways.
func (t *nftTrial) wrongPath(e netfilter.Ending, o *observation) string {
	at := 0
	for _, h := range e.Hops {
		if h.Kind != netfilter.HopRule {
			continue
		}
		i := slices.IndexFunc(o.path[at:], func(p point) bool {
			return p.backend == nftBackend && isNFT(h) && p.hit && p.table == h.Table && p.chain == h.Chain && p.index == h.Index
		})
		if i < 0 {
			return fmt.Sprintf("it did not pass the tests of %s %s[%d] %q in this order", h.Table, h.Chain, h.Index, h.Text)
		}
		at += i + 1
	}
	at = 0
	for _, p := range o.path {
		r := t.at(p)
		if r == nil || !p.hit || !r.tells {
			continue
		}
		i := slices.IndexFunc(e.Hops[at:], func(h netfilter.Hop) bool {
			return isNFT(h) && h.Table == p.table && h.Chain == p.chain && h.Index == p.index
		})
		if i < 0 {
			return fmt.Sprintf("it passed the tests of %s %s[%d] %q, which the walk does not name", p.table, p.chain, p.index, r)
		}
		at += i + 1
	}
	return ""
}

// rejectWord is the answer of an ending in the words of iptables.
func rejectWord(e netfilter.Ending) string {
	if !strings.Contains(e.Table, " ") { // a table of iptables
		return e.RejectWith
	}
	six := e.Packet.Family == netfilter.IPv6
	with := strings.Replace(e.RejectWith, " type ", " ", 1)
	if with == "" {
		with = "icmpx port-unreachable"
	}
	if with == "tcp reset" {
		return "tcp-reset"
	}
	kind, code, _ := strings.Cut(with, " ")
	switch {
	case kind == "icmpx" && !six:
		return "icmp-" + map[string]string{"no-route": "net-unreachable"}[code] + strings.TrimPrefix(code, "no-route")
	case kind == "icmpx" && code == "host-unreachable":
		code = "addr-unreachable"
	case kind == "icmp" && code == "prot-unreachable":
		code = "proto-unreachable"
	}
	if kind == "icmp" {
		return "icmp-" + code
	}
	if code == "admin-prohibited" {
		code = "adm-prohibited"
	}
	return "icmp6-" + code
}
