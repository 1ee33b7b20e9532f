package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// notrackMissingInOutput: a service address is taken out of connection tracking, so that packets to it reach a process of
// the node (NodeLocal DNSCache) and not an endpoint, but for packets from pods only: those of the node itself do not pass
// PREROUTING and are translated.
var notrackMissingInOutput = Check{
	ID: "notrack-missing-in-output", Rests: onGrid, Severity: Warning,
	Title: "service addresses that a process of the node serves for pods, and not for the node itself",
	Port: func(p *Port) []report.Finding {
		for _, f := range p.Frontends {
			if f.Kind != intent.ClusterIP {
				continue
			}
			rs, rule := p.exempted(netfilter.Prerouting, f)
			if rule == nil {
				continue
			}
			if _, also := p.exempted(netfilter.Output, f); also != nil || !p.On.whole(rs, rs.Table("raw")) {
				continue
			}
			return []report.Finding{p.onlyForPods(f, rs, rule)}
		}
		return nil
	},
}

// exempted is the rule that takes packets to a frontend out of connection tracking at a hook. In PREROUTING it has to
// name the frontend, in OUTPUT any rule that covers it will do.
func (p *Port) exempted(hook netfilter.Hook, f intent.Frontend) (*netfilter.Ruleset, *netfilter.Rule) {
	proto := dataplane.ProtocolNumber(p.Protocol)
	for _, e := range p.On.exemptions(netfilter.Family(p.Family), hook) {
		r := e.rule
		addr, _, port, hasAddr, hasProto, hasPort := r.ExactDst()
		fits := !r.Src.Prefix.IsValid() && covers(r.Dst, f.Addr) && r.Proto.Test(proto) && (!hasPort || int(port) == f.Port)
		names := hasAddr && addr == f.Addr && hasProto && hasPort
		if fits && (names || hook == netfilter.Output) {
			return e.rules, r
		}
	}
	return nil, nil
}

func (p *Port) onlyForPods(f intent.Frontend, rs *netfilter.Ruleset, rule *netfilter.Rule) report.Finding {
	at := fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, uint16(f.Port)), p.Protocol)
	want := fmt.Sprintf("-A OUTPUT -d %s -p %s --dport %d -j NOTRACK", f.Addr, strings.ToLower(p.Protocol), f.Port)
	out := report.Finding{
		Subject: at,
		Message: fmt.Sprintf("packets to %s skip translation when they come from pods (raw PREROUTING), but not when the node itself sends them: those of the node and of hostNetwork pods go to an endpoint past the process that listens on this address", at),
		Want:    want + " in table raw", Got: "such a rule in PREROUTING only",
		Evidence: []report.Evidence{RuleEvidence(rs, rule), p.objectEvidence()},
		Causes:   []string{"NodeLocal DNSCache up to 1.15.3 writes the rule for PREROUTING only (kubernetes/dns#318)"},
		Remedy:   fmt.Sprintf("upgrade NodeLocal DNSCache; until then %s -t raw %s", tool(rs), want),
	}
	if a, ok := p.On.onInterface(f.Addr); ok {
		out.Evidence = append(out.Evidence, HostEvidence("ip addr", a.Evidence))
	}
	return out
}
