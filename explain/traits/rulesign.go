package traits

import (
	"math"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// ruleSign is a feature of a chain or rule: what the tables of tells name.
type ruleSign struct {
	sign string
	// table and chain say where to look; a chain that ends in "-" is a prefix, one without name holds the rules
	// of a listing whose chain headers are lost.
	table, chain string
	// rule is the feature; nil where the chain being there is the feature.
	rule func(rs *netfilter.Ruleset, r *netfilter.Rule) bool
}

// ruleSigns are sorted by sign; one sign may have several places. Texts are looked at only for what has no
// field in a rule, in a spelling that iptables-save and iptables -L share.
var ruleSigns = []ruleSign{
	{"cluster IP masquerade in a KUBE-SVC chain", "nat", "KUBE-SVC-", masqueradesClusterIP},
	{"cluster IP masquerade in KUBE-SERVICES", "nat", "KUBE-SERVICES", masqueradesClusterIP},
	{"colon after a service without port name", "filter", "KUBE-EXTERNAL-SERVICES", unnamedWithColon},
	{"colon after a service without port name", "filter", "KUBE-SERVICES", unnamedWithColon},
	{"colon after a service without port name", "nat", "", unnamedWithColon},
	{"colon after a service without port name", "nat", "KUBE-NODEPORTS", unnamedWithColon},
	{"colon after a service without port name", "nat", "KUBE-SEP-", unnamedWithColon},
	{"colon after a service without port name", "nat", "KUBE-SERVICES", unnamedWithColon},
	{"colon after a service without port name", "nat", "KUBE-SVC-", unnamedWithColon},
	{"comment names the endpoint", "nat", "KUBE-SVC-", namesEndpoint},
	{"comment names the endpoint", "nat", "KUBE-SVL-", namesEndpoint},
	{"counter on the drop of invalid packets", "filter", "KUBE-FORWARD", hasText("nfacct")},
	{"drop for no local endpoints in filter", "filter", "KUBE-EXTERNAL-SERVICES", commentEnds(" has no local endpoints")},
	{"drop for no local endpoints in filter", "filter", "KUBE-SERVICES", commentEnds(" has no local endpoints")},
	{"external IP rules to a KUBE-SVC chain", "nat", "KUBE-SERVICES", externalIPToSVC},
	{"filter chain KUBE-IPVS-FILTER", "filter", "KUBE-IPVS-FILTER", nil},
	{"filter chain KUBE-IPVS-OUT-FILTER", "filter", "KUBE-IPVS-OUT-FILTER", nil},
	{"filter chain KUBE-NODE-PORT", "filter", "KUBE-NODE-PORT", nil},
	{"filter chain KUBE-NODEPORTS", "filter", "KUBE-NODEPORTS", nil},
	{"filter chain KUBE-PROXY-FIREWALL", "filter", "KUBE-PROXY-FIREWALL", nil},
	{"forwarding conntrack rule for any source", "filter", "KUBE-FORWARD", commentIs("kubernetes forwarding conntrack rule")},
	{"forwarding conntrack rules with the cluster CIDR", "filter", "KUBE-FORWARD", conntrackWithCIDR},
	{"forwarding conntrack rules, one for each direction", "filter", "KUBE-FORWARD", commentIs("kubernetes forwarding conntrack pod source rule")},
	{"jump to KUBE-EXTERNAL-SERVICES from FORWARD", "filter", "FORWARD", jumpsTo("KUBE-EXTERNAL-SERVICES")},
	{"jump to KUBE-SERVICES from filter INPUT", "filter", "INPUT", jumpsTo("KUBE-SERVICES")},
	{"KUBE-EXT chain", "nat", "KUBE-EXT-", nil},
	{"KUBE-FW chain ends in KUBE-MARK-DROP", "nat", "KUBE-FW-", jumpsTo("KUBE-MARK-DROP")},
	{"KUBE-FW chain names KUBE-PROXY-FIREWALL", "nat", "KUBE-FW-", commentEnds("dropped by KUBE-PROXY-FIREWALL")},
	{"KUBE-PORTALS chain", "nat", "KUBE-PORTALS-", nil},
	{"KUBE-PROXY-CANARY chain", "filter", "KUBE-PROXY-CANARY", nil},
	{"KUBE-PROXY-CANARY chain", "mangle", "KUBE-PROXY-CANARY", nil},
	{"KUBE-PROXY-CANARY chain", "nat", "KUBE-PROXY-CANARY", nil},
	{"KUBE-SVL chain", "nat", "KUBE-SVL-", nil},
	{"KUBE-XLB chain", "nat", "KUBE-XLB-", nil},
	{"localhost counter on node ports", "nat", "KUBE-NODEPORTS", hasText("nfacct")},
	{"masquerade rule tests the mark itself", "nat", "KUBE-POSTROUTING", masqueradesMarked},
	{"masquerade with random ports", "nat", "KUBE-POSTROUTING", masqueradesRandomly},
	{"nat chain KUBE-FIREWALL", "nat", "KUBE-FIREWALL", nil},
	{"node port masquerade in KUBE-NODEPORTS", "nat", "KUBE-NODEPORTS", masqueradesAnySource},
	{"node port rules spare the loopback addresses", "nat", "KUBE-SERVICES", nodePortsSpareLoopback},
	{"node ports to a KUBE-SVC chain", "nat", "KUBE-NODEPORTS", jumpsToService},
	{"node ports without exception for ::1", "nat", "KUBE-SERVICES", nodePortsOnLoopback6},
	{"numbered balancing rules", "nat", "KUBE-XLB-", commentBegins("Balancing rule ")},
	{"physdev test on external IP", "nat", "KUBE-SERVICES", hasText("physdev")},
	{"probability with 10 digits", "nat", "KUBE-SVC-", probabilityOf(10)},
	{"probability with 10 digits", "nat", "KUBE-SVL-", probabilityOf(10)},
	{"probability with 10 digits", "nat", "KUBE-XLB-", probabilityOf(10)},
	{"probability with 5 digits", "nat", "KUBE-SVC-", probabilityOf(5)},
	{"probability with 5 digits", "nat", "KUBE-XLB-", probabilityOf(5)},
	{"return for loopback sources in KUBE-SERVICES", "nat", "KUBE-SERVICES", returnsLoopback},
	{"return for unmarked packets in KUBE-POSTROUTING", "nat", "KUBE-POSTROUTING", returns},
	{"service without port name, without colon", "filter", "KUBE-SERVICES", unnamedWithoutColon},
	{"service without port name, without colon", "nat", "KUBE-SERVICES", unnamedWithoutColon},
	{"set KUBE-EXTERNAL-IP-LOCAL", "filter", "KUBE-IPVS-FILTER", hasText("KUBE-EXTERNAL-IP-LOCAL")},
	{"set KUBE-EXTERNAL-IP-LOCAL", "nat", "KUBE-SERVICES", hasText("KUBE-EXTERNAL-IP-LOCAL")},
}

// place is a chain of a table, or all chains with a prefix.
type place struct{ table, chain string }

// seen is where a sign was seen first.
type seen struct {
	file string
	line int
	text string
}

// maxChains bounds how many per-service chains of a kind are looked at: kube-proxy writes all of them the same
// way, and tens of thousands say no more than the first thousand.
const maxChains = 1000

// findSigns looks for every sign in the rule sets, in order; the first place counts.
func findSigns(rulesets []*netfilter.Ruleset) map[string]seen {
	wanted := make(map[place][]ruleSign)
	for _, s := range ruleSigns {
		p := place{s.table, s.chain}
		wanted[p] = append(wanted[p], s)
	}
	found := make(map[string]seen)
	for _, rs := range rulesets {
		looked := make(map[place]int)
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				p := place{t.Name, signChain(c.Name)}
				if looked[p]++; looked[p] > maxChains {
					continue
				}
				if signs := wanted[p]; len(signs) > 0 && (c.Declared || len(c.Rules) > 0) {
					wanted[p] = findIn(found, signs, rs, c)
				}
			}
		}
	}
	return found
}

// findIn looks for signs in one chain and returns those still to be found, in place: a large capture is then
// read almost without tests.
func findIn(found map[string]seen, signs []ruleSign, rs *netfilter.Ruleset, c *netfilter.Chain) []ruleSign {
	rest := signs[:0]
	for _, s := range signs {
		if _, known := found[s.sign]; known {
			continue
		}
		if s.rule == nil {
			found[s.sign] = seen{rs.File, c.Line, ":" + c.Name}
		} else if r := firstRule(rs, c, s.rule); r != nil {
			found[s.sign] = seen{rs.File, r.Line, r.Text}
		} else {
			rest = append(rest, s)
		}
	}
	return rest
}

func firstRule(rs *netfilter.Ruleset, c *netfilter.Chain, test func(*netfilter.Ruleset, *netfilter.Rule) bool) *netfilter.Rule {
	for i := range c.Rules {
		if test(rs, &c.Rules[i]) {
			return &c.Rules[i]
		}
	}
	return nil
}

// servicePrefixes are the beginnings of per-service chain names.
var servicePrefixes = [...]string{"KUBE-EXT-", "KUBE-FW-", "KUBE-PORTALS-", "KUBE-SEP-", "KUBE-SVC-", "KUBE-SVL-", "KUBE-XLB-"}

// signChain is the name under which ruleSigns know a chain.
func signChain(name string) string {
	if strings.HasPrefix(name, "KUBE-") {
		for _, p := range servicePrefixes {
			if strings.HasPrefix(name, p) {
				return p
			}
		}
	}
	return name
}

func jumpsTo(chain string) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return jumpTarget(r) == chain }
}

func jumpTarget(r *netfilter.Rule) string {
	j, _ := r.Target.(netfilter.Jump)
	return j.Chain
}

func jumpsToService(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return strings.HasPrefix(jumpTarget(r), "KUBE-SVC-")
}

func externalIPToSVC(rs *netfilter.Ruleset, r *netfilter.Rule) bool {
	return strings.HasSuffix(r.Comment, " external IP") && jumpsToService(rs, r)
}

func commentIs(text string) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return r.Comment == text }
}

func commentBegins(text string) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return strings.HasPrefix(r.Comment, text) }
}

func commentEnds(text string) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return strings.HasSuffix(r.Comment, text) }
}

func hasText(part string) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return strings.Contains(r.Text, part) }
}

func masqueradesClusterIP(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return jumpTarget(r) == "KUBE-MARK-MASQ" && strings.HasSuffix(r.Comment, " cluster IP")
}

// masqueradesAnySource leaves out the rule for 127.0.0.0/8 that releases up to 1.23 write under
// externalTrafficPolicy Local.
func masqueradesAnySource(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return jumpTarget(r) == "KUBE-MARK-MASQ" && !r.Src.Prefix.IsValid()
}

func namesEndpoint(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return strings.Contains(r.Comment, " -> ") && strings.HasPrefix(jumpTarget(r), "KUBE-SEP-")
}

func conntrackWithCIDR(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return strings.Contains(r.Comment, "forwarding conntrack") && (r.Src.Prefix.IsValid() || r.Dst.Prefix.IsValid())
}

func isMasquerade(r *netfilter.Rule) (*netfilter.Translate, bool) {
	t, ok := r.Target.(*netfilter.Translate)
	return t, ok && t.Kind == netfilter.Masquerade
}

func masqueradesRandomly(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	t, ok := isMasquerade(r)
	return ok && t.RandomFully
}

// masqueradesMarked tells "-m mark --mark 0x4000/0x4000 -j MASQUERADE" and, in a listing, "mark match".
func masqueradesMarked(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	_, ok := isMasquerade(r)
	return ok && (strings.Contains(r.Text, "-m mark ") || strings.Contains(r.Text, "mark match"))
}

func returns(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	_, ok := r.Target.(netfilter.Return)
	return ok
}

func returnsLoopback(rs *netfilter.Ruleset, r *netfilter.Rule) bool {
	return returns(rs, r) && r.Src.Prefix.IsValid() && !r.Src.Not && r.Src.Prefix.Addr().IsLoopback()
}

func nodePortsSpareLoopback(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return jumpTarget(r) == "KUBE-NODEPORTS" && r.Dst.Not && r.Dst.Prefix.Addr().IsLoopback()
}

// nodePortsOnLoopback6 is the rule for all node addresses in IPv6 without "! -d ::1".
func nodePortsOnLoopback6(rs *netfilter.Ruleset, r *netfilter.Rule) bool {
	return rs.Family == netfilter.IPv6 && jumpTarget(r) == "KUBE-NODEPORTS" && !r.Dst.Prefix.IsValid()
}

// serviceWord is the service port in a comment that begins with one: "ns/name:" of "ns/name: cluster IP".
func serviceWord(r *netfilter.Rule) string {
	word, rest, _ := strings.Cut(r.Comment, " ")
	switch rest {
	case "", "cluster IP", "external IP", "loadbalancer IP", "has no endpoints", "has no local endpoints":
		if strings.Count(word, "/") == 1 {
			return word
		}
	}
	return ""
}

func unnamedWithColon(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	return strings.HasSuffix(serviceWord(r), ":")
}

func unnamedWithoutColon(_ *netfilter.Ruleset, r *netfilter.Rule) bool {
	w := serviceWord(r)
	return w != "" && !strings.Contains(w, ":") && strings.HasPrefix(jumpTarget(r), "KUBE-SVC-")
}

func probabilityOf(digits int) func(*netfilter.Ruleset, *netfilter.Rule) bool {
	return func(_ *netfilter.Ruleset, r *netfilter.Rule) bool { return probabilityDigits(r.Text) == digits }
}

// probabilityDigits says with how many decimals a share 1/n was written: 5 (up to 1.16) or 10. It is 0 where
// the rule has no probability, where both spellings come to the same (1/2, 1/5), and for shares that are
// no 1/n at all.
func probabilityDigits(text string) int {
	const word = "probability "
	i := strings.LastIndex(text, word)
	if i < 0 {
		return 0
	}
	number := text[i+len(word):]
	if j := strings.IndexByte(number, ' '); j >= 0 {
		number = number[:j]
	}
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || p <= 0 || p >= 1 {
		return 0
	}
	n := math.Round(1 / p)
	short := math.Round(1e5/n) / 1e5
	// The kernel keeps multiples of 2^-31, and prints 11 decimals.
	const step = 1.0 / (1 << 31)
	switch {
	case math.Abs(short-1/n) < 2*step:
		return 0
	case math.Abs(p-1/n) < 2*step:
		return 10
	case math.Abs(p-short) < 2*step:
		return 5
	}
	return 0
}
