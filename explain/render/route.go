package render

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// leg is the way through the chains of one table at one hook.
type leg struct {
	table string
	// chains from the built-in chain inwards. A chain that was left again is not in it.
	chains []string
	source report.Evidence
}

// legs returns the way that hops take. Rules that only mark a packet and return leave no trace in it.
func legs(hops []report.Hop) []leg {
	var out []leg
	for _, h := range hops {
		if h.Chain == "" || h.Kind == "route" || h.Kind == "conntrack" {
			continue
		}
		chain := strings.TrimSuffix(h.Chain, "(policy)")
		if len(out) > 0 {
			l := &out[len(out)-1]
			same := l.table == h.Table && l.source.File == h.Evidence.File && l.source.Source == h.Evidence.Source
			if i := slices.Index(l.chains, chain); same && i >= 0 {
				l.chains = l.chains[:i+1]
				continue
			}
			if same && !builtIn(chain) {
				l.chains = append(l.chains, chain)
				continue
			}
		}
		out = append(out, leg{table: h.Table, chains: []string{chain}, source: h.Evidence})
	}
	return out
}

func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// translation is the index of the hop that changes the destination, -1 when none does.
func translation(hops []report.Hop, by string) int {
	for i, h := range slices.Backward(hops) {
		switch h.Kind {
		case "virtual-server", "map":
			return i
		case "rule":
			switch target(h.Text) {
			case "DNAT", "REDIRECT", "TPROXY":
				return i
			}
		}
	}
	for i, h := range slices.Backward(hops) {
		if by != "" && h.Chain == by {
			return i
		}
	}
	return -1
}

// target is the word after -j or -g of a rule, empty when it has none.
func target(rule string) string {
	words := strings.Fields(withoutComment(rule))
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// journey is how a path with its backend (nil: none) got where it ended, as far as it tells something.
type journey struct {
	// legs to the translation, or to the verdict.
	legs []leg
	// picks is the rule that sent the connection into the translating chain; last is the final hop.
	picks, last *report.Hop
	// translates is the hop that changes the destination, nil when none does.
	translates *report.Hop
	// masquerades is the rule that marked the packet for masquerade, or masqueraded it.
	masquerades *report.Hop
}

func follow(p *report.Path, b *report.Backend) journey {
	hops := p.Hops
	if b != nil {
		hops = slices.Concat(p.Hops, b.Hops)
	}
	var j journey
	if len(hops) == 0 {
		return j
	}
	j.last = &hops[len(hops)-1]
	for i := range hops {
		switch t := target(hops[i].Text); {
		case hops[i].Kind != "rule":
		case t == "KUBE-MARK-MASQ":
			j.masquerades = &hops[i]
		case j.masquerades == nil && (t == "MASQUERADE" || t == "SNAT"):
			j.masquerades = &hops[i]
		}
	}
	i := translation(hops, p.TranslatedBy)
	if i >= 0 {
		j.translates = &hops[i]
		for k := i - 1; k >= 0; k-- {
			if target(hops[k].Text) == hops[i].Chain {
				j.picks = &hops[k]
				break
			}
		}
	}
	if i >= 0 && delivers(p.Result) {
		all := legs(hops[:i+1])
		if len(all) > 0 {
			j.legs = all[len(all)-1:]
		}
		return j
	}
	all := legs(hops)
	for k, l := range all {
		if len(l.chains) > 1 || k == len(all)-1 {
			j.legs = append(j.legs, l)
		}
	}
	return j
}

// withoutComment drops the comment match of a rule, which the tree says in better words.
func withoutComment(rule string) string {
	const match = "-m comment --comment "
	at := strings.Index(rule, match)
	if at < 0 {
		return rule
	}
	rest := rule[at+len(match):]
	end := strings.IndexByte(rest, ' ')
	if strings.HasPrefix(rest, `"`) {
		end = quoteEnd(rest)
	}
	if end < 0 {
		return strings.TrimSpace(rule[:at])
	}
	return strings.TrimSpace(rule[:at] + strings.TrimLeft(rest[end:], " "))
}

// quoteEnd is the index after the quoted string that s begins with, -1 when it does not end.
func quoteEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// brief is the text of a rule as the tree shows it: without its chain, which stands beside it, and its comment.
func brief(h *report.Hop) string {
	return strings.TrimPrefix(withoutComment(h.Text), "-A "+h.Chain+" ")
}
