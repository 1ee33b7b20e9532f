package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// entrance is a rule by which packets for a frontend leave the shared chains for the Service's own.
type entrance struct {
	rules *netfilter.Ruleset
	rule  *netfilter.Rule
	// chain is the Service's own.
	chain *netfilter.Chain
}

type dialled struct {
	family netfilter.Family
	addr   netip.Addr // not valid for a node port
	proto  uint8
	port   uint16
}

// entrances finds the rules of KUBE-SERVICES and KUBE-NODEPORTS by what they are for. It is built at the first question.
func (n *Node) entrances() map[dialled]entrance {
	if n.entranceOf != nil {
		return n.entranceOf
	}
	n.entranceOf = make(map[dialled]entrance)
	for _, rs := range n.Rulesets {
		t := rs.Table("nat")
		if t == nil {
			continue
		}
		for _, name := range []string{"KUBE-SERVICES", "KUBE-NODEPORTS"} {
			c := t.Chain(name)
			if c == nil {
				continue
			}
			for i := range c.Rules {
				r := &c.Rules[i]
				jump, ok := r.Target.(netfilter.Jump)
				addr, proto, port, _, hasProto, hasPort := r.ExactDst()
				if !ok || !hasProto || !hasPort || !strings.HasPrefix(jump.Chain, "KUBE-") || jump.Chain == "KUBE-MARK-MASQ" {
					continue
				}
				key := dialled{rs.Family, addr, proto, port}
				if _, known := n.entranceOf[key]; !known {
					n.entranceOf[key] = entrance{rs, r, t.Chain(jump.Chain)}
				}
			}
		}
	}
	return n.entranceOf
}

// entrance is the rule for a path's frontend, if the shared chains have one.
func (p *Port) entrance(path *report.Path) (entrance, bool) {
	a, err := netip.ParseAddr(path.Frontend.Address)
	if err != nil {
		return entrance{}, false
	}
	key := dialled{netfilter.Family(p.Family), a, protocolNumber(path.Frontend.Protocol), uint16(path.Frontend.Port)}
	if e, ok := p.On.entrances()[key]; ok {
		return e, true
	}
	key.addr = netip.Addr{}
	e, ok := p.On.entrances()[key]
	return e, ok
}

// leadsTo says in words what the rule leads to, for packets that come out untranslated all the same.
func (e entrance) leadsTo() string {
	switch {
	case e.chain == nil:
		return "its rule leads to a chain that is not there"
	case len(e.chain.Rules) == 0:
		return fmt.Sprintf("its chain %s is empty", e.chain.Name)
	}
	return fmt.Sprintf("its chain %s translates nothing", e.chain.Name)
}

func protocolNumber(name string) uint8 {
	switch name {
	case "UDP":
		return netfilter.ProtoUDP
	case "SCTP":
		return netfilter.ProtoSCTP
	}
	return netfilter.ProtoTCP
}
