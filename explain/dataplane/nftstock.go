package dataplane

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// NFTStockRule is a rule that kube-proxy keeps in a chain of its table whatever Services there are. Does says what it
// does, in the words of NFTDoes.
type NFTStockRule struct{ Chain, Does string }

// nftStock are the stock rules of nftables mode, with the minor releases that have them; 0 is no bound. They are those
// that packets cannot do without; what differs between patch releases of 1.33 is left out.
var nftStock = []struct {
	NFTStockRule
	oldest, newest int
}{
	{NFTStockRule{"nat-prerouting", "jump services"}, 0, 0},
	{NFTStockRule{"nat-output", "jump services"}, 0, 0},
	{NFTStockRule{"nat-postrouting", "jump masquerading"}, 0, 0},
	{NFTMarkClusterIPs, 36, 0},
	{NFTStockRule{"services", "vmap @service-ips"}, 0, 0},
	{NFTStockRule{"services", "vmap @service-nodeports"}, 0, 0},
	{NFTStockRule{"masquerading", "masquerade"}, 0, 0},
	{NFTStockRule{"masquerading", "masquerade @hairpin-connections"}, 36, 0},
	{NFTStockRule{"service-endpoints-check", "vmap @no-endpoint-services"}, 30, 0},
	{NFTStockRule{"nodeport-endpoints-check", "vmap @no-endpoint-nodeports"}, 30, 0},
	{NFTStockRule{"firewall-check", "vmap @firewall-ips"}, 30, 0},
	{NFTStockRule{"cluster-ips-check", "reject @cluster-ips"}, 31, 0},
	{NFTStockRule{"reject-chain", "reject"}, 0, 0},
	{NFTStockRule{"endpoints-check", "vmap @no-endpoint-services"}, 0, 29},
	{NFTStockRule{"endpoints-check", "vmap @no-endpoint-nodeports"}, 0, 29},
	{NFTStockRule{"filter-input", "jump endpoints-check"}, 0, 29},
	{NFTStockRule{"filter-forward", "jump endpoints-check"}, 0, 29},
	{NFTStockRule{"filter-output", "jump endpoints-check"}, 0, 29},
	{NFTStockRule{"filter-input", "jump nodeport-endpoints-check"}, 30, 0},
	{NFTStockRule{"filter-input", "jump service-endpoints-check"}, 30, 0},
	{NFTStockRule{"filter-forward", "jump service-endpoints-check"}, 30, 0},
	{NFTStockRule{"filter-output", "jump service-endpoints-check"}, 30, 0},
	{NFTStockRule{"filter-forward", "jump cluster-ips-check"}, 31, 0},
	{NFTStockRule{"filter-output", "jump cluster-ips-check"}, 34, 0},
	{NFTStockRule{"filter-output-post-dnat", "jump cluster-ips-check"}, 31, 32},
	{NFTStockRule{"filter-prerouting", "jump firewall-check"}, 30, 32},
	{NFTStockRule{"filter-prerouting-pre-dnat", "jump firewall-check"}, 34, 0},
	{NFTStockRule{"filter-output-pre-dnat", "jump firewall-check"}, 34, 0},
}

// NFTMarkClusterIPs has packets to cluster IPs masqueraded that do not come from pods. It is there where kube-proxy can tell.
var NFTMarkClusterIPs = NFTStockRule{"services", "mark @cluster-ips"}

// NFTStock are the stock rules that a proxy surely keeps. within is traits.Proxy.Within.
func NFTStock(within func(oldest, newest int) bool) []NFTStockRule {
	var out []NFTStockRule
	for _, s := range nftStock {
		if within(s.oldest, s.newest) {
			out = append(out, s.NFTStockRule)
		}
	}
	return out
}

// NFTStockBase is where kube-proxy hooks one of its chains in, whatever Services there are.
type NFTStockBase struct {
	Chain, Type, Hook string
	Priority          int
}

// nftBases are the base chains of nftables mode, with the minor releases that have them so (nftablesBaseChains of
// pkg/proxy/nftables/proxier.go). Those for filtering stood before translation up to some patch release of 1.33.
var nftBases = []struct {
	NFTStockBase
	oldest, newest int
}{
	{NFTStockBase{"nat-prerouting", "nat", "prerouting", -100}, 0, 0},
	{NFTStockBase{"nat-output", "nat", "output", -100}, 0, 0},
	{NFTStockBase{"nat-postrouting", "nat", "postrouting", 100}, 0, 0},
	{NFTStockBase{"filter-prerouting-pre-dnat", "filter", "prerouting", -110}, 34, 0},
	{NFTStockBase{"filter-output-pre-dnat", "filter", "output", -110}, 34, 0},
	{NFTStockBase{"filter-input", "filter", "input", 0}, 34, 0},
	{NFTStockBase{"filter-forward", "filter", "forward", 0}, 34, 0},
	{NFTStockBase{"filter-output", "filter", "output", 0}, 34, 0},
}

// NFTStockBases are the base chains that a proxy surely has so. within is traits.Proxy.Within.
func NFTStockBases(within func(oldest, newest int) bool) []NFTStockBase {
	var out []NFTStockBase
	for _, b := range nftBases {
		if within(b.oldest, b.newest) {
			out = append(out, b.NFTStockBase)
		}
	}
	return out
}

// nftShared are the rules that kube-proxy 1.30 to 1.36 makes in the chains that all Services share, as nft prints them
// without comments; IP stands for ip or ip6, MARK for the mark for masquerading.
var nftShared = map[string][]*regexp.Regexp{
	"nat-prerouting":             shared(`jump services`),
	"nat-output":                 shared(`jump services`),
	"nat-postrouting":            shared(`jump masquerading`),
	"filter-prerouting":          shared(`ct state new jump firewall-check`),
	"filter-prerouting-pre-dnat": shared(`ct state new jump firewall-check`),
	"filter-output-pre-dnat":     shared(`ct state new jump firewall-check`),
	"filter-input":               shared(`ct state new jump (nodeport-endpoints-check|service-endpoints-check|firewall-check)`),
	"filter-forward":             shared(`ct state new jump (service-endpoints-check|cluster-ips-check|firewall-check)`),
	"filter-output":              shared(`ct state new jump (service-endpoints-check|cluster-ips-check|firewall-check)`),
	"filter-output-post-dnat":    shared(`ct state new jump cluster-ips-check`),
	"nodeport-endpoints-check":   shared(nftToNode + `meta l4proto \. th dport vmap @no-endpoint-nodeports`),
	"service-endpoints-check":    shared(`IP daddr \. meta l4proto \. th dport vmap @no-endpoint-services`),
	"firewall-check":             shared(`IP daddr \. meta l4proto \. th dport vmap @firewall-ips`),
	"services": shared(`IP daddr @cluster-ips( IP saddr != (\S+|\{ [^}]* \})| iif(name)? != \S+)? meta mark set meta mark \| MARK`,
		`IP daddr \. meta l4proto \. th dport vmap @service-ips`, nftToNode+`meta l4proto \. th dport vmap @service-nodeports`),
	"masquerading": shared(`meta mark & MARK == 0x00000000 return`, `meta mark set meta mark \^ MARK`, `masquerade fully-random`,
		`meta mark & MARK != 0x00000000 meta mark set meta mark \^ MARK masquerade fully-random`,
		`ct status dnat IP saddr \. IP daddr \. meta l4proto \. th dport @hairpin-connections masquerade fully-random`),
	"mark-for-masquerade": shared(`meta mark set meta mark \| MARK`),
	"cluster-ips-check":   shared(`IP daddr @cluster-ips reject`, `IP daddr (\S+|\{ [^}]* \}) drop`),
	"reject-chain":        shared(`reject`),
}

// nftToNode are the tests for packets to a node port.
const nftToNode = `(IP daddr @nodeport-ips |(fib daddr type local )?(IP daddr != \S+ )?)`

func shared(rules ...string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, r := range rules {
		out = append(out, regexp.MustCompile("^"+strings.ReplaceAll(r, "IP ", "ip6? ")+"$"))
	}
	return out
}

// NFTSharedRule tells whether a rule in one of the chains that all Services share is one that kube-proxy makes there, in
// any of the releases 1.30 to 1.36. Of chains that are not known it says so of every rule. mark is that for masquerading.
func NFTSharedRule(chain string, r *nft.Rule, mark uint32) bool {
	known, ok := nftShared[chain]
	text, _, _ := strings.Cut(r.Text, ` comment "`)
	text = strings.ReplaceAll(text, fmt.Sprintf("0x%08x", mark), "MARK")
	return !ok || slices.ContainsFunc(known, func(re *regexp.Regexp) bool { return re.MatchString(text) })
}

// NFTDoes is what a rule of kube-proxy's does, in a few words: "jump services", "vmap @service-ips", "masquerade",
// "masquerade @hairpin-connections", "reject", "reject @cluster-ips", "mark @cluster-ips"; empty for others.
func NFTDoes(r *nft.Rule) string {
	set, marks := "", false
	for _, s := range r.Statements {
		switch s := s.(type) {
		case *nft.Match:
			if ref, ok := s.Right.(nft.SetRef); ok && s.Op == "==" {
				set = " @" + ref.Name
			}
		case *nft.VerdictMap:
			if ref, ok := s.Map.(nft.SetRef); ok {
				return "vmap @" + ref.Name
			}
		case *nft.Verdict:
			if s.Kind == nft.Jump || s.Kind == nft.Goto {
				return fmt.Sprintf("%s %s", s.Kind, s.Chain)
			}
		case *nft.NAT:
			return string(s.Kind) + set
		case *nft.Reject:
			return "reject" + set
		case *nft.Assign:
			to, ok := s.To.(*nft.Meta)
			marks = marks || ok && to.Key == "mark"
		}
	}
	if marks {
		return "mark" + set
	}
	return ""
}
