package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftPlace is a chain of kube-proxy's tables of nftables, by name: it may not be there.
type nftPlace struct {
	rules *nft.Ruleset
	table *nft.Table
	name  string
}

func (at nftPlace) chain() *nft.Chain { return at.table.Chain(at.name) }

// evidence is the chain with how much it holds: the text of a rule of nftables does not say where it stands.
func (at nftPlace) evidence() report.Evidence {
	e := report.Evidence{Source: "nftables", File: at.rules.File, Line: at.table.Line, Text: fmt.Sprintf("table %s, no chain %s", at.table, at.name)}
	if c := at.chain(); c != nil {
		e.Line, e.Text = c.Line, fmt.Sprintf("table %s chain %s (%s)", at.table, c.Name, plural(len(c.Rules), "rule"))
	}
	return e
}

func nftPlaces(all []nftPlace) []report.Evidence {
	var out []report.Evidence
	for _, at := range all {
		out = append(out, at.evidence())
	}
	return out
}

// nftTables calls f for kube-proxy's tables of the port's family.
func (p *Port) nftTables(f func(rs *nft.Ruleset, t *nft.Table)) {
	if p.On.Proxy.Mode != "nftables" {
		return
	}
	dataplane.EachNFTTable(p.On.NFT, func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		if int(family) == p.Family {
			f(rs, t)
		}
	})
}

// maxWay bounds the chains of a way: a Service with session affinity has one for each endpoint.
const maxWay = 8

// nftWay are the chains of a Service's own to which kube-proxy's maps lead packets for a frontend, in the order in which
// packets may meet them; none in other modes, or where the maps have no entry for it.
func (p *Port) nftWay(path *report.Path) []nftPlace {
	var out []nftPlace
	p.nftTables(func(rs *nft.Ruleset, t *nft.Table) {
		for _, e := range p.nftAsked(t, path, dataplane.NFTServiceIPs, dataplane.NFTServiceNodePorts) {
			if have := t.Set(e.Set).Find(e.Entry.Start); have != nil && !have.CatchAll && have.Verdict != nil {
				out = append(out, nftPlace{rs, t, have.Verdict.Chain})
			}
		}
		for i := 0; i < len(out) && len(out) < maxWay; i++ {
			c := out[i].chain()
			if c == nil {
				continue
			}
			for _, r := range c.Rules {
				for _, next := range nftLeadsTo(r) {
					at := nftPlace{rs, t, next}
					if _, _, _, own := dataplane.ServicePortOfNFT(next); own && !slices.Contains(out, at) {
						out = append(out, at)
					}
				}
			}
		}
	})
	return out[:min(len(out), maxWay)]
}

// nftAsked are the entries of some sets that the Service asks for at a frontend.
func (p *Port) nftAsked(t *nft.Table, path *report.Path, sets ...string) []dataplane.WantedEntry {
	var out []dataplane.WantedEntry
	addr, err := netip.ParseAddr(path.Frontend.Address)
	if err != nil {
		return nil
	}
	for _, w := range dataplane.NFTEntries(p.ServicePort, &p.On.Proxy) {
		set := t.Set(w.Set)
		if set == nil || !slices.Contains(sets, w.Set) {
			continue
		}
		to, _, port, ok := dataplane.EntryKey(set, &w.Entry)
		if !ok || int(port) != path.Frontend.Port || to.IsValid() == (path.Frontend.Kind == string(intent.NodePort)) || to.IsValid() && to != addr {
			continue
		}
		out = append(out, w)
	}
	return out
}

// nftLeadsTo are the chains to which a rule leads by itself.
func nftLeadsTo(r *nft.Rule) []string {
	var out []string
	add := func(v *nft.Verdict) {
		if v != nil && v.Chain != "" {
			out = append(out, v.Chain)
		}
	}
	for _, s := range r.Statements {
		switch s := s.(type) {
		case *nft.Verdict:
			add(s)
		case *nft.VerdictMap:
			if lit, ok := s.Map.(nft.SetLit); ok {
				for i := range lit.Entries {
					add(lit.Entries[i].Verdict)
				}
			}
		}
	}
	return out
}

// nftDeadEnd says in words where packets come out of a way untranslated.
func nftDeadEnd(way []nftPlace) string {
	for _, at := range way {
		switch c := at.chain(); {
		case c == nil:
			return fmt.Sprintf("their way leads to chain %s, which is not there", at.name)
		case len(c.Rules) == 0:
			return fmt.Sprintf("the chain %s is empty", at.name)
		}
	}
	return fmt.Sprintf("chain %s translates nothing", way[len(way)-1].name)
}

// nftUnprogrammed is unprogrammed in nftables mode.
func (p *Port) nftUnprogrammed(path *report.Path, message string) (string, []report.Evidence) {
	if way := p.nftWay(path); len(way) > 0 {
		return fmt.Sprintf("packets to %s (%s) pass untranslated: %s", frontend(path), p.Key(), nftDeadEnd(way)), nftPlaces(way)
	}
	there := false
	p.nftTables(func(*nft.Ruleset, *nft.Table) { there = true })
	if there || len(p.On.NFT) == 0 {
		return message, nil // nft-map-entry-missing and kube-jump-missing say where
	}
	table := map[int]string{4: "ip kube-proxy", 6: "ip6 kube-proxy"}[p.Family]
	return message + fmt.Sprintf(" (there is no table %s)", table), []report.Evidence{{Source: "nftables", File: p.On.NFT[0].File, Text: "no table " + table}}
}

// nftGates are the chains in which kube-proxy refuses packets to a frontend in nftables mode.
func (p *Port) nftGates(path *report.Path) []report.Evidence {
	var out []report.Evidence
	p.nftTables(func(rs *nft.Ruleset, t *nft.Table) {
		chains := []string{"filter-input", "filter-forward", "filter-output", "service-endpoints-check"}
		if path.Frontend.Kind == string(intent.NodePort) {
			chains = []string{"filter-input", "nodeport-endpoints-check"}
		}
		sets := []string{dataplane.NFTNoEndpointServices, dataplane.NFTNoEndpointNodePorts}
		if len(p.nftAsked(t, path, dataplane.NFTFirewallIPs)) > 0 {
			chains = []string{"filter-prerouting-pre-dnat", "filter-output-pre-dnat", "firewall-check", dataplane.NFTFirewallName(p.Key(), p.Protocol)}
			sets = []string{dataplane.NFTFirewallIPs}
		}
		for _, w := range p.nftAsked(t, path, sets...) {
			set := t.Set(w.Set)
			text := fmt.Sprintf("map %s, no entry %s", set.Name, set.EntryText(&w.Entry))
			if have := set.Find(w.Entry.Start); have != nil {
				text = fmt.Sprintf("map %s { %s }", set.Name, set.EntryText(have))
			}
			out = append(out, report.Evidence{Source: "nftables", File: rs.File, Line: set.Line, Text: text})
		}
		for _, name := range chains {
			out = append(out, nftPlace{rs, t, name}.evidence())
		}
	})
	return out
}

// nftEndpointPlace says what there is of an endpoint's own chain in nftables mode, as placeOf does.
func (p *Port) nftEndpointPlace(endpoint string) (place string, evidence []report.Evidence) {
	p.nftTables(func(rs *nft.Ruleset, t *nft.Table) {
		at := nftPlace{rs, t, dataplane.NFTEndpointName(p.Key(), p.Protocol, endpoint)}
		c := at.chain()
		switch {
		case c == nil:
			return
		case len(c.Rules) == 0:
			place = fmt.Sprintf(": its chain %s is empty", c.Name)
		default:
			place = fmt.Sprintf(": its chain %s is there, and no packet gets a translation from it", c.Name)
		}
		evidence = append(evidence, at.evidence())
	})
	return place, evidence
}
