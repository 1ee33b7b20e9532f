package table

import (
	"encoding/binary"

	"github.com/svcnet/svcnet/explain/nft"
)

// The chains that are there whatever Services there are.
const (
	chainServices           = "services"
	chainService            = "service"
	chainExternalLocal      = "external-local"
	chainNodePort           = "nodeport"
	chainLocalNodePort      = "local-nodeport"
	chainAny                = "any"
	chainHere               = "here"
	chainNodePortAny        = "nodeport-any"
	chainNodePortHere       = "nodeport-here"
	chainMasquerading       = "masquerading"
	chainFirewallCheck      = "firewall-check"
	chainServiceEndpoints   = "service-endpoints-check"
	chainNodePortEndpoints  = "nodeport-endpoints-check"
	chainClusterIPs         = "cluster-ips-check"
	chainNATPrerouting      = "nat-prerouting"
	chainNATOutput          = "nat-output"
	chainNATPostrouting     = "nat-postrouting"
	chainFirewallPrerouting = "filter-prerouting-pre-dnat"
	chainFirewallOutput     = "filter-output-pre-dnat"
	chainFilterInput        = "filter-input"
	chainFilterForward      = "filter-forward"
	chainFilterOutput       = "filter-output"
)

// Layout is the table of one family before any Service is in it.
func Layout(family nft.Family, f *Facts) *nft.Table {
	t := (&nft.Ruleset{}).AddTable(family, Name)
	t.Comment, t.Owner = tableComment, f.Owned
	for k := range setKinds {
		if !k.sized() {
			Set{Kind: k}.declare(t)
		}
	}
	l := layout{t, f}
	l.translation()
	l.refusal()
	l.masquerade()
	l.base(chainNATPrerouting, "nat", "prerouting", priorityDNAT, l.jump(chainServices))
	l.base(chainNATOutput, "nat", "output", priorityDNAT, l.jump(chainServices))
	l.base(chainNATPostrouting, "nat", "postrouting", prioritySNAT, l.jump(chainMasquerading))
	l.base(chainFirewallPrerouting, "filter", "prerouting", priorityFirewall, isNew(), l.jump(chainFirewallCheck))
	l.base(chainFirewallOutput, "filter", "output", priorityFirewall, isNew(), l.jump(chainFirewallCheck))
	l.base(chainFilterInput, "filter", "input", priorityFilter, isNew(), l.jump(chainNodePortEndpoints))
	l.rule(chainFilterInput, isNew(), l.jump(chainServiceEndpoints))
	for _, name := range []string{chainFilterForward, chainFilterOutput} {
		hook := "forward"
		if name == chainFilterOutput {
			hook = "output"
		}
		l.base(name, "filter", hook, priorityFilter, isNew(), l.jump(chainServiceEndpoints))
		l.rule(name, isNew(), l.jump(chainClusterIPs))
	}
	return t
}

type layout struct {
	t *nft.Table
	f *Facts
}

// translation are the chains that choose a backend.
func (l layout) translation() {
	l.rule(chainServices, l.in(serviceIPs), l.goTo(chainService))
	l.rule(chainServices, l.in(nodePortIPs), l.in(serviceNodePorts), l.goTo(chainNodePort))

	fromOutside := l.f.fromPod(l.t.Family, true)
	switch {
	case l.f.MasqueradeAll:
		l.rule(chainService, l.in(clusterIPs), l.mark())
	case fromOutside != nil:
		l.rule(chainService, l.in(clusterIPs), fromOutside, l.mark())
	}
	l.rule(chainService, l.verdict(affinityIPs))
	l.rule(chainService, l.in(externalLocalIPs), l.goTo(chainExternalLocal))
	l.rule(chainService, l.in(externalIPs), l.mark())
	l.rule(chainService, l.jump(chainAny))
	l.rule(chainService, l.jump(chainHere))
	l.rule(chainService, l.stay())

	l.local(chainExternalLocal, chainAny, chainHere)

	l.rule(chainNodePort, l.verdict(affinityNodePorts))
	l.rule(chainNodePort, l.in(localNodePorts), l.goTo(chainLocalNodePort))
	l.rule(chainNodePort, l.mark())
	l.rule(chainNodePort, l.jump(chainNodePortAny))
	l.rule(chainNodePort, l.stay())

	l.local(chainLocalNodePort, chainNodePortAny, chainNodePortHere)
	for _, c := range []string{chainAny, chainHere, chainNodePortAny, chainNodePortHere} {
		l.t.AddChain(c)
	}
}

// local is policy Local of frontends from outside: pods and the node itself may have any backend, others one that is
// here, or none.
func (l layout) local(chain, all, here string) {
	for _, r := range localPolicy(l.t, l.f, l.jump(all)) {
		l.rule(chain, r...)
	}
	l.rule(chain, l.jump(here))
	l.rule(chain, l.stay())
}

// localPolicy are the rules for those whom policy Local does not hold for.
func localPolicy(t *nft.Table, f *Facts, all nft.Statement) [][]nft.Statement {
	l := layout{t, f}
	fromNode := &nft.Match{
		Left: &nft.Fib{Flags: []string{"saddr"}, Result: "type"}, Op: "==",
		Right: &nft.Const{Type: nft.TypeFibType, Data: []byte{0, 0, 0, 2}}, // RTN_LOCAL
	}
	var out [][]nft.Statement
	if pods := f.fromPod(t.Family, false); pods != nil {
		out = append(out, []nft.Statement{pods, all})
	}
	return append(out, []nft.Statement{fromNode, l.mark()}, []nft.Statement{fromNode, all})
}

// refusal are the chains that keep packets from going on.
func (l layout) refusal() {
	l.rule(chainFirewallCheck, l.verdict(firewallIPs))
	l.rule(chainServiceEndpoints, l.in(refusedIPs), &nft.Reject{})
	l.rule(chainServiceEndpoints, l.in(droppedIPs), &nft.Verdict{Kind: nft.Drop})
	l.rule(chainNodePortEndpoints, l.in(nodePortIPs), l.in(refusedNodePorts), &nft.Reject{})
	l.rule(chainNodePortEndpoints, l.in(nodePortIPs), l.in(droppedNodePorts), &nft.Verdict{Kind: nft.Drop})
	l.rule(chainClusterIPs, l.in(clusterIPs), &nft.Reject{})
}

// masquerade hides the source of packets that were marked, and of those that go back to the pod that they come from.
func (l layout) masquerade() {
	mark := func() nft.Expr { return &nft.Meta{Key: "mark"} }
	bits := l.bits()
	masquerade := &nft.NAT{Kind: nft.Masquerade, FullyRandom: true}
	l.rule(chainMasquerading,
		&nft.Match{Left: &nft.Binary{Op: "&", Left: mark(), Right: bits}, Op: "!=", Right: &nft.Const{Type: nft.TypeMark, Data: make([]byte, 4)}},
		&nft.Assign{To: mark(), Value: &nft.Binary{Op: "^", Left: mark(), Right: bits}}, masquerade)
	translated := &nft.Match{
		Left: &nft.CT{Key: "status"}, Op: "==", AnyBit: true,
		Right: &nft.Const{Type: nft.TypeCTStatus, Data: []byte{0, 0, 0, 32}}, // IPS_DST_NAT
	}
	l.rule(chainMasquerading, translated, l.in(hairpins), masquerade)
}

func (l layout) bits() *nft.Const {
	return &nft.Const{Type: nft.TypeMark, Data: binary.BigEndian.AppendUint32(nil, l.f.Mark)}
}

func (l layout) mark() nft.Statement {
	return &nft.Assign{To: &nft.Meta{Key: "mark"}, Value: &nft.Binary{Op: "|", Left: &nft.Meta{Key: "mark"}, Right: l.bits()}}
}

func (l layout) in(k SetKind) nft.Statement {
	return &nft.Match{Left: k.key(l.t.Family, 0), Op: "==", Right: nft.SetRef{Name: forms[k].name}}
}

func (l layout) verdict(k SetKind) nft.Statement {
	return &nft.VerdictMap{Key: k.key(l.t.Family, 0), Map: nft.SetRef{Name: forms[k].name}}
}

// stay binds a translation to where the packet goes anyhow.
func (l layout) stay() nft.Statement {
	return &nft.NAT{Kind: nft.DNAT, Family: l.t.Family, Addr: &nft.MapExpr{
		Key: untranslated.key(l.t.Family, 0), Map: nft.SetRef{Name: forms[untranslated].name},
	}}
}

func (l layout) jump(chain string) nft.Statement { return &nft.Verdict{Kind: nft.Jump, Chain: chain} }
func (l layout) goTo(chain string) nft.Statement { return &nft.Verdict{Kind: nft.Goto, Chain: chain} }

func (l layout) base(name, kind, hook string, priority int, statements ...nft.Statement) {
	l.t.AddChain(name).Base = &nft.Base{Type: kind, Hook: hook, Priority: priority}
	l.rule(name, statements...)
}

func (l layout) rule(chain string, statements ...nft.Statement) {
	addRule(l.t, l.t.AddChain(chain), statements...)
}

func addRule(t *nft.Table, c *nft.Chain, statements ...nft.Statement) {
	r := &nft.Rule{Statements: statements}
	r.Text = t.RuleText(r)
	c.Rules = append(c.Rules, r)
}

// dispatch is the chain that holds a rule for each size of a kind.
func (k SetKind) dispatch() string { return forms[k].name }

// backends is the map that the chains of a sized kind choose from.
func (k SetKind) backends() SetKind {
	switch k {
	case hereSize:
		return hereEndpoints
	case anyNodePortSize:
		return nodePortEndpoints
	case hereNodePortSize:
		return hereNodePortEndpoints
	}
	return endpoints
}

// sizeChain is the chain of a sized kind: one of so many backends.
func (s Set) sizeChain(t *nft.Table) *nft.Chain {
	c := &nft.Chain{Name: s.Name()}
	from := s.Kind.backends()
	addRule(t, c, &nft.NAT{Kind: nft.DNAT, Family: t.Family, Addr: &nft.MapExpr{
		Key: from.key(t.Family, s.Size), Map: nft.SetRef{Name: forms[from].name},
	}})
	return c
}

// sizeRule leads the frontends of a sized set to its chain.
func (s Set) sizeRule(t *nft.Table) *nft.Rule {
	r := &nft.Rule{Statements: []nft.Statement{
		&nft.Match{Left: s.Kind.key(t.Family, 0), Op: "==", Right: nft.SetRef{Name: s.Name()}},
		&nft.Verdict{Kind: nft.Goto, Chain: s.Name()},
	}}
	r.Text = t.RuleText(r)
	return r
}

// isNew holds for packets that begin a connection: others were let in.
func isNew() nft.Statement {
	return &nft.Match{
		Left: &nft.CT{Key: "state"}, Op: "==", AnyBit: true, Right: &nft.Const{Type: nft.TypeCTState, Data: []byte{0, 0, 0, 8}},
	}
}
