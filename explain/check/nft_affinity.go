package check

import (
	"fmt"
	"time"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftAffinity compares what the chains of a service port do for affinity in nftables mode with what the Service asks
// for, and says the first difference.
func (p *Port) nftAffinity() (found report.Finding, ok bool) {
	dataplane.EachNFTTable(p.On.NFT, func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		if ok || int(family) != p.Family {
			return
		}
		for _, name := range []string{dataplane.NFTServiceName(p.Key(), p.Protocol), dataplane.NFTLocalName(p.Key(), p.Protocol)} {
			c := t.Chain(name)
			if c == nil {
				continue
			}
			if want, got, what, r := p.nftSticks(t, c); r != nil {
				found = report.Finding{
					Subject: p.Key(), Message: fmt.Sprintf("chain %s %s", c.Name, what), Want: want, Got: got,
					Evidence: []report.Evidence{nftEvidence(rs, t, c, r), p.objectEvidence()},
					Causes: []string{
						"kube-proxy has not synced since sessionAffinity of the Service was changed",
						"something other than kube-proxy changed its table",
					},
					Remedy: restartProxy,
				}
				ok = true
				return
			}
		}
	})
	return found, ok
}

// nftSticks is the first difference in what one chain does, with the rule that shows it; a nil rule for none.
func (p *Port) nftSticks(t *nft.Table, c *nft.Chain) (want, got, what string, at *nft.Rule) {
	// Packets meet the rules in their order: what stands behind the choice keeps nobody.
	kept := make(map[string]*nft.Rule)
	lists := make(map[string]string)
	asked := fmt.Sprintf("%d s", p.AffinitySeconds)
	for _, r := range c.Rules {
		if endpoint, list, ok := nftKeeps(r); ok {
			kept[endpoint], lists[endpoint] = r, list
		}
		for _, endpoint := range nftChooses(r) {
			switch list := lists[endpoint]; {
			case p.AffinitySeconds == 0 && kept[endpoint] != nil:
				return "none", "kept", "keeps clients at their backend, and the Service does not ask for session affinity", kept[endpoint]
			case p.AffinitySeconds == 0:
			case kept[endpoint] == nil:
				return asked, "none", fmt.Sprintf("does not send clients back to their backend (%s), and the Service asks for session affinity for %s", endpoint, asked), r
			case nftSeconds(t, list) != p.AffinitySeconds:
				return asked, fmt.Sprintf("%d s", nftSeconds(t, list)), fmt.Sprintf("keeps clients at their backend for %d s, and the Service asks for %s", nftSeconds(t, list), asked), kept[endpoint]
			case !nftRemembers(t.Chain(endpoint), list):
				return asked, "never remembered", fmt.Sprintf("looks for clients of %s in a set into which no rule puts them, and the Service asks for session affinity for %s", endpoint, asked), kept[endpoint]
			}
		}
	}
	return "", "", "", nil
}

// nftKeeps reads a rule that sends known clients back to an endpoint's chain.
func nftKeeps(r *nft.Rule) (endpoint, list string, ok bool) {
	for _, s := range r.Statements {
		switch s := s.(type) {
		case *nft.Match:
			if ref, is := s.Right.(nft.SetRef); is && s.Op == "==" && nftClient(s.Left) {
				list = ref.Name
			}
		case *nft.Verdict:
			endpoint = s.Chain
		}
	}
	_, _, _, named := dataplane.ServicePortOfNFT(list)
	return endpoint, list, named && endpoint != ""
}

// nftChooses are the endpoint chains among which a rule distributes, or the words for what it translates to by itself
// (since 1.36, without affinity).
func nftChooses(r *nft.Rule) []string {
	var out []string
	for _, s := range r.Statements {
		switch s := s.(type) {
		case *nft.VerdictMap:
			lit, ok := s.Map.(nft.SetLit)
			if !ok {
				return nil
			}
			for i := range lit.Entries {
				if v := lit.Entries[i].Verdict; v != nil {
					out = append(out, v.Chain)
				}
			}
		case *nft.NAT:
			if s.Kind == nft.DNAT {
				out = append(out, "all endpoints")
			}
		}
	}
	return out
}

func nftSeconds(t *nft.Table, set string) int {
	if s := t.Set(set); s != nil {
		return int(s.Timeout / time.Second)
	}
	return 0
}

// nftRemembers tells whether an endpoint's chain puts clients into a set, before it translates and so ends.
func nftRemembers(c *nft.Chain, set string) bool {
	if c == nil {
		return false
	}
	for _, r := range c.Rules {
		for _, s := range r.Statements {
			switch s := s.(type) {
			case *nft.SetUpdate:
				if s.Set == set && s.Op != "delete" && nftClient(s.Key) {
					return true
				}
			case *nft.NAT:
				return false
			}
		}
	}
	return false
}

// nftClient tells whether an expression is the client's address.
func nftClient(e nft.Expr) bool {
	p, ok := e.(*nft.Payload)
	return ok && p.Field == "saddr" && (p.Protocol == "ip" || p.Protocol == "ip6")
}

// nftEvidence is a rule of nftables, for a finding.
func nftEvidence(rs *nft.Ruleset, t *nft.Table, c *nft.Chain, r *nft.Rule) report.Evidence {
	return report.Evidence{Source: "nftables", File: rs.File, Line: r.Line, Text: nativeRule(t.String(), c.Name, r.Text)}
}
