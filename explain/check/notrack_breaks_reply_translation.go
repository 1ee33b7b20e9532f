package check

import (
	"fmt"
	"net/netip"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// notrackBreaksReplyTranslation: answers of endpoints are taken out of connection tracking, which alone could put the
// service address back into them: the client hears from an address that it did not dial.
var notrackBreaksReplyTranslation = Check{
	ID: "notrack-breaks-reply-translation", Rests: onGrid, Severity: Error,
	Title: "answers that a NOTRACK rule keeps from being translated back",
	Port: func(p *Port) []report.Finding {
		for _, paths := range p.Cells {
			if !certain(paths) {
				continue
			}
			for i := range paths {
				if f, found := p.untracked(&paths[i]); found {
					return []report.Finding{f}
				}
			}
		}
		return nil
	},
}

// untracked looks for a backend of a path whose answer stays untranslated because of a rule that takes it out of
// connection tracking.
func (p *Port) untracked(path *report.Path) (report.Finding, bool) {
	for i := range path.Backends {
		b := &path.Backends[i]
		r := b.Reply
		if r == nil {
			r = path.Reply
		}
		if r == nil || r.Result != report.ReplyUntranslated {
			continue
		}
		var (
			e      report.Evidence
			remedy string
		)
		if rs, rule := p.exemptsAnswers(b); rule != nil {
			e, remedy = RuleEvidence(rs, rule), "limit the rule to the address of the process that it is for, in table raw: "+rule.Text
		} else if of, rule, found := p.exemptsAnswersNFT(b); found {
			e, remedy = of, "limit the rule to the address of the process that it is for: "+rule
		} else {
			continue
		}
		return report.Finding{
			Object:  report.Object{Endpoint: joinAddr(b)},
			Subject: joinAddr(b),
			Message: fmt.Sprintf("answers of %s to clients of %s are taken out of connection tracking and stay untranslated: the client hears from an address that it did not dial, and discards it", joinAddr(b), frontend(path)),
			Want:    "the answer comes from " + address(path), Got: "the answer comes from " + joinAddr(b),
			Evidence: []report.Evidence{e, p.objectEvidence()},
			Causes:   []string{"a NOTRACK rule that is meant for a process of the node (NodeLocal DNSCache, a resolver) and covers endpoints as well"},
			Remedy:   remedy,
		}, true
	}
	return report.Finding{}, false
}

// exemptsAnswers is the rule that takes the answers of a backend out of connection tracking.
func (p *Port) exemptsAnswers(b *report.Backend) (*netfilter.Ruleset, *netfilter.Rule) {
	a, err := netip.ParseAddr(b.Address)
	if err != nil {
		return nil, nil
	}
	for _, hook := range []netfilter.Hook{netfilter.Prerouting, netfilter.Output} {
		for _, e := range p.On.exemptions(netfilter.Family(p.Family), hook) {
			if covers(e.rule.Src, a) && e.rule.Proto.Test(dataplane.ProtocolNumber(p.Protocol)) && fromPort(e.rule, b.Port) {
				return e.rules, e.rule
			}
		}
	}
	return nil, nil
}

// fromPort tells whether a rule is for packets from a port, or from all.
func fromPort(r *netfilter.Rule, port int) bool {
	for _, m := range r.Matches {
		var from netfilter.PortRange
		switch m := m.(type) {
		case *netfilter.TCP:
			from = m.Sport
		case *netfilter.UDP:
			from = m.Sport
		}
		if in := port >= int(from.Min) && port <= int(from.Max); from.Set && in == from.Not {
			return false
		}
	}
	return true
}
