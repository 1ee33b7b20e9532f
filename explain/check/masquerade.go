package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// masqueradeMissing: the backend sees the client's own address where its answers would then not come back through
// this node, and so would not be translated back.
var masqueradeMissing = Check{
	ID: "masquerade-missing", Severity: Error, Rests: onGrid,
	Title: "packets that keep their source where replies need another one",
	Port: func(p *Port) []report.Finding {
		return p.masquerades(true, "the backend answers the client directly, from an address that the client did not dial",
			"restart kube-proxy on this node; look at nat POSTROUTING for the jump to KUBE-POSTROUTING and what stands before it, and at KUBE-MARK-MASQ")
	},
}

// masqueradeUnexpected: the client's address is hidden where it should survive.
var masqueradeUnexpected = Check{
	ID: "masquerade-unexpected", Severity: Warning, Rests: onGrid,
	Title: "packets whose source is rewritten where the client's address should survive",
	Port: func(p *Port) []report.Finding {
		return p.masquerades(false, "the backend sees an address of this node instead of the client's, and NetworkPolicies and logs with it",
			"find the rule that masquerades (trace shows it): a network plugin's masquerade rule that does not leave the pod range out is the usual one")
	},
}

// masquerades finds the first backend of the port that is masqueraded though it should not be, or the reverse.
func (p *Port) masquerades(missing bool, effect, remedy string) []report.Finding {
	var classes, frontends []string
	var at *report.Path
	var backend *report.Backend
	harmless := missing
	for _, paths := range p.Cells {
		if !certain(paths) || translatedAtHome(&paths[0]) {
			continue
		}
		for i := range paths {
			for j := range paths[i].Backends {
				b := &paths[i].Backends[j]
				if b.Masquerade == nil || b.MasqueradeIntended == nil || *b.MasqueradeIntended != missing || *b.Masquerade == missing {
					continue
				}
				if at == nil {
					at, backend = &paths[i], b
				}
				classes, frontends = once(classes, clientWords(&paths[i])), once(frontends, frontend(&paths[i]))
				harmless = harmless && returnsHome(&paths[i])
			}
		}
	}
	if at == nil {
		return nil
	}
	what, want, got := "keeps the client's address", "masqueraded", "not masqueraded"
	if !missing {
		what, want, got = "is masqueraded", "the client's address", "masqueraded"
		if backend.SnatTo != "" {
			got += " to " + backend.SnatTo
		}
	}
	var evidence []report.Evidence
	for i := range at.Hops {
		// A rule of somebody else that set the mark for it.
		if h := &at.Hops[i]; !missing && nativeTable(h.Table) && !tableOfProxy(h.Table) && strings.Contains(h.Text, " mark set ") {
			evidence = append(evidence, hopEvidence(h))
		}
		// The rule that sent the packet to be marked: one before it ought to have kept it away.
		if h := &at.Hops[i]; !missing && h.Kind == "rule" && i+1 < len(at.Hops) && at.Hops[i+1].Chain == "KUBE-MARK-MASQ" {
			evidence = append(evidence, hopEvidence(h))
		}
	}
	evidence = append(append(evidence, rules(backend)...), nftPlaces(p.nftWay(at))...)
	if missing {
		evidence = append(evidence, p.unmasked(at, backend)...)
	}
	for _, h := range backend.Hops {
		if h.Chain == "POSTROUTING" || strings.HasSuffix(h.Chain, "-POSTROUTING") {
			evidence = append(evidence, hopEvidence(&h))
		}
	}
	if harmless {
		effect = "that is an address of the node, as masquerading would give it one, and its answers come back"
	}
	f := report.Finding{
		Subject:  frontends[0],
		Message:  fmt.Sprintf("traffic of %s to %s %s: %s", list(classes, 4), p.Key(), what, effect),
		Want:     want,
		Got:      fmt.Sprintf("%s at %s", got, list(frontends, 3)),
		Evidence: append(evidence, p.objectEvidence()),
		Remedy:   remedy,
	}
	if harmless {
		f.Severity = Warning
	}
	return []report.Finding{f}
}

// returnsHome tells whether a connection of the node itself gets its answers though it keeps its source: an address that
// others know as this node's. A loopback address, or one that every node has for a Service, is none.
func returnsHome(p *report.Path) bool {
	if p.Origin != "node" || p.SourceClass == string(intent.Localhost) || p.Reply == nil || p.Reply.Result != report.ReplyDelivered {
		return false
	}
	return p.Source != p.Frontend.Address || p.Frontend.Kind == string(intent.NodePort)
}

// unmasked shows where the masquerading of a packet fails: a packet that has the mark, in the chain that should act on it;
// one that has not, in the chains of its Service, one of which should have set it.
func (p *Port) unmasked(path *report.Path, b *report.Backend) []report.Evidence {
	var out []report.Evidence
	marked := false
	var chains []string
	for i, h := range slices.Concat(path.Hops, b.Hops) {
		if h.Chain == "KUBE-MARK-MASQ" {
			marked = true
			if i < len(path.Hops) && h.Kind == "rule" {
				out = append(out, hopEvidence(&h)) // the hops of the backend are shown already
			}
		}
		if dataplane.PerService(h.Chain) {
			chains = once(chains, h.Chain)
		}
	}
	if p.On.Proxy.Mode == ipvsMode {
		// The rules there are for all Services.
		chains = []string{"KUBE-SERVICES"}
		switch path.Frontend.Kind {
		case string(intent.NodePort):
			chains = append(chains, "KUBE-NODE-PORT")
		case string(intent.LoadBalancer):
			chains = append(chains, "KUBE-LOAD-BALANCER")
		}
	}
	for _, rs := range p.On.served() {
		t := rs.Table("nat")
		if int(rs.Family) != p.Family || t == nil {
			continue
		}
		if marked {
			chains = []string{"KUBE-POSTROUTING"}
		}
		if c := t.Chain("KUBE-MARK-MASQ"); c != nil && len(c.Rules) == 0 {
			empty, _ := vacant([]gate{{rs, c}})
			out = append(out, empty...)
		}
		for _, name := range chains {
			c := t.Chain(name)
			if c == nil {
				continue
			}
			out = append(out, ChainEvidence(rs, c))
			for i := range c.Rules {
				if r := &c.Rules[i]; marked && i < 3 {
					out = append(out, RuleEvidence(rs, r))
				}
			}
		}
	}
	return out
}
