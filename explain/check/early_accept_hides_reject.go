package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// earlyAcceptHidesReject: kube-proxy has a rule that refuses a connection, and an ACCEPT of another program comes
// before it. Clients of a Service without endpoints then wait for a timeout, and source ranges do not hold.
var earlyAcceptHidesReject = Check{
	ID: "early-accept-hides-reject", Rests: onGrid, Severity: Warning,
	Title: "ACCEPT rules that keep packets from kube-proxy's refusals",
	Port: func(p *Port) []report.Finding {
		for _, paths := range p.Cells {
			if h := p.On.hidden(paths); h != nil {
				return []report.Finding{h.finding(p)}
			}
		}
		return nil
	},
	Fold:     oneForEachAccept,
	Explains: []string{"refusal-missing"},
}

// oneForEachAccept makes one finding of what one ACCEPT hides.
func oneForEachAccept(n *Node, found []portFinding) []report.Finding {
	return foldByRule(n, found, func(f *report.Finding, ports []string) {
		f.Message = hides(f.Subject, list(ports, 3))
	})
}

func hides(place, ports string) string {
	return fmt.Sprintf("a rule of %s accepts connections to %s before kube-proxy's rules refuse or drop them: they leave untranslated and wait for a timeout", place, ports)
}

// foldByRule makes one finding of those whose first evidence is the same rule. say speaks of several service ports.
func foldByRule(n *Node, found []portFinding, say func(f *report.Finding, ports []string)) []report.Finding {
	type place struct {
		file string
		line int
	}
	var out []report.Finding
	at := make(map[place]int)
	ports := make(map[place][]string)
	for i := range found {
		e := &found[i].Evidence[0]
		where := place{e.File, e.Line}
		if _, ok := at[where]; !ok {
			at[where] = len(out)
			out = append(out, found[i].Finding)
		}
		ports[where] = once(ports[where], found[i].port.Key())
	}
	for where, i := range at {
		if len(ports[where]) > 1 {
			out[i].Object = report.Object{Kind: "Node", Name: n.Name}
			say(&out[i], ports[where])
		}
	}
	return out
}

// hiding is an ACCEPT that hides refusals, with the first one that it hides.
type hiding struct {
	rules           *netfilter.Ruleset
	accept, refusal *netfilter.Rule
	place           string
	path            *report.Path
}

// hidden finds the ACCEPT by which connections of one cell escape a refusal; nil for none.
func (n *Node) hidden(paths []report.Path) *hiding {
	path := &paths[0]
	w := path.Intended
	if w == nil || w.Result != report.ResultReject && w.Result != report.ResultDrop ||
		len(paths) != 1 || !certain(paths) || path.Result != report.ResultNoMatch {
		return nil
	}
	for i := range path.Hops {
		h := &path.Hops[i]
		if h.Table != "filter" || dataplane.Stock(h.Table, h.Chain) {
			continue
		}
		rs, r := n.hopRule(h)
		if r == nil || !accepts(r) {
			continue
		}
		if refusal := n.refusals.of(rs, path); refusal != nil {
			return &hiding{rules: rs, accept: r, refusal: refusal, place: h.Table + "/" + h.Chain, path: path}
		}
	}
	return nil
}

// refusals are kube-proxy's rules that refuse frontends, by rule set.
type refusals map[*netfilter.Ruleset]map[refused]*netfilter.Rule

// refused is what such a rule names; a node port has no address.
type refused struct {
	addr  string
	proto uint8
	port  int
}

// of is the rule that would refuse connections to a frontend; nil for none.
func (r *refusals) of(rs *netfilter.Ruleset, path *report.Path) *netfilter.Rule {
	if *r == nil {
		*r = make(refusals)
	}
	of := (*r)[rs]
	if of == nil {
		of = make(map[refused]*netfilter.Rule)
		(*r)[rs] = of
		for _, rule := range dataplane.Refusing(rs) {
			addr, proto, port, hasAddr, hasProto, hasPort := rule.ExactDst()
			if !hasProto || !hasPort {
				continue
			}
			key := refused{proto: proto, port: int(port)}
			if hasAddr {
				key.addr = addr.String()
			}
			of[key] = rule
		}
	}
	key := refused{path.Frontend.Address, dataplane.ProtocolNumber(path.Frontend.Protocol), path.Frontend.Port}
	if rule := of[key]; rule != nil {
		return rule
	}
	key.addr = ""
	return of[key]
}

func (h *hiding) finding(p *Port) report.Finding {
	return report.Finding{
		Subject:  h.place,
		Message:  hides(h.place, p.Key()),
		Want:     fmt.Sprintf("%s (%s)", h.path.Intended.Result, h.path.Intended.Because),
		Got:      h.accept.Text,
		Evidence: []report.Evidence{RuleEvidence(h.rules, h.accept), RuleEvidence(h.rules, h.refusal), p.objectEvidence()},
		Causes:   []string{"a network plugin or firewall inserts its rules at the top of the chain"},
		Remedy:   "let the other program append its rules, or put its ACCEPT behind the jumps to KUBE-SERVICES, KUBE-EXTERNAL-SERVICES and KUBE-PROXY-FIREWALL (Calico: ChainInsertMode Append)",
	}
}
