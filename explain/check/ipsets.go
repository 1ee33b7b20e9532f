package check

import (
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// captured is a set as it was captured, nil where it is not there.
func (n *Node) captured(name string) *ipset.Set {
	if s := n.Sets[name]; s != nil {
		return s.Captured
	}
	return nil
}

// readIPSets tells whether all sets of the node were read. A capture of one set is what somebody was interested in.
func (n *Node) readIPSets() bool {
	if !n.Needs(IPSets) {
		return false
	}
	if len(n.Sets) == 1 {
		n.lacks(IPSets)
		return false
	}
	return true
}

// setQuestion is a rule that asks a set.
type setQuestion struct {
	rules *netfilter.Ruleset
	chain *netfilter.Chain
	rule  *netfilter.Rule
	asks  *netfilter.SetMatch
}

// setQuestions are the rules that ask sets, in the order of the rules.
func (n *Node) setQuestions() []setQuestion {
	var out []setQuestion
	for _, rs := range n.Rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				for i := range c.Rules {
					for _, m := range c.Rules[i].Matches {
						if s, ok := m.(*netfilter.SetMatch); ok {
							out = append(out, setQuestion{rs, c, &c.Rules[i], s})
						}
					}
				}
			}
		}
	}
	return out
}

// kubeSets are the sets that kube-proxy keeps on this node, of the families that have Services.
func (n *Node) kubeSets() []dataplane.IPVSSet {
	if n.Proxy.Mode != ipvsMode {
		return nil
	}
	var out []dataplane.IPVSSet
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if n.familiesInUse()[family] {
			out = append(out, dataplane.IPVSSets(&n.Proxy, int(family))...)
		}
	}
	return out
}

// setDifference is an entry of one of kube-proxy's sets that is not what the objects ask for: want is nil for one too
// many, have for one that lacks.
type setDifference struct {
	set  *ipset.Set
	does string
	want *dataplane.WantedElement
	have *ipset.Entry
}

// setDifferences compares kube-proxy's sets with what the objects ask for: what lacks in the order of the plan, then what
// is too many in the order of the sets. Sets that are not there, or of another type, have findings of their own.
func (n *Node) setDifferences() []setDifference {
	kube := n.kubeSets()
	if len(kube) == 0 || !n.readIPSets() || !n.Needs(Services) {
		return nil
	}
	type id struct{ set, text string }
	var (
		out  []setDifference
		sets = make(map[string]dataplane.IPVSSet)
		// open are sets of which not everything is known.
		open   = make(map[string]bool)
		wanted = make(map[*ipset.Entry]bool)
		lacks  = make(map[id]bool)
	)
	for _, s := range kube {
		if c := n.captured(s.Name); c != nil && c.Type == s.Type && c.Missing == "" {
			sets[s.Name] = s
		}
	}
	for _, sp := range n.Plan.Ports {
		if sp.EndpointsUnknown || sp.ByChance || n.Name == "" {
			open[dataplane.LoopBackSet(sp.Family)] = true
		}
		for _, w := range dataplane.IPVSElements(sp) {
			of, ok := sets[w.Set]
			if !ok {
				continue
			}
			set := n.captured(w.Set)
			if e := set.Find(w.Text); e != nil {
				wanted[e] = true
			} else if key := (id{w.Set, w.Text}); !w.May && !open[w.Set] && !lacks[key] {
				lacks[key] = true
				out = append(out, setDifference{set, of.Does, &w, nil})
			}
		}
	}
	for _, s := range kube {
		if _, ok := sets[s.Name]; !ok || open[s.Name] {
			continue
		}
		set := n.captured(s.Name)
		for i := range set.Entries {
			if e := &set.Entries[i]; !wanted[e] && !n.toleratesElement(e) {
				out = append(out, setDifference{set, s.Does, nil, e})
			}
		}
	}
	return out
}

// toleratesElement tells whether an entry may stand there though no Service asks for it: a load balancer address that
// some versions leave out (ipMode Proxy).
func (n *Node) toleratesElement(e *ipset.Entry) bool {
	if len(e.Nets) == 0 || !e.Nets[0].Net.IsValid() {
		return false
	}
	for _, sp := range n.Plan.Ports {
		if slices.Contains(n.ingressOf(sp), e.Nets[0].Net.Addr()) {
			return true
		}
	}
	return false
}

// evidence is the entry, or where the set that lacks it begins.
func (d *setDifference) evidence() report.Evidence {
	if d.have != nil {
		return HostEvidence("ipset", d.set.At(d.have))
	}
	return HostEvidence("ipset", d.set.Evidence)
}

// of is the service port that an entry is about, nil where none is known.
func (d *setDifference) of(n *Node) *intent.ServicePort {
	if d.want != nil {
		return d.want.Port
	}
	for _, sp := range n.Plan.Ports {
		if !d.have.Nets[0].Net.IsValid() {
			if dataplane.NodePortSet(d.set.Name, sp) && sp.NodePort == int(d.have.Port) {
				return sp
			}
			continue
		}
		if dataplane.ProtocolNumber(sp.Protocol) != d.have.Proto && d.have.Proto != 0 {
			continue
		}
		for _, f := range sp.Frontends {
			if f.Addr == d.have.Nets[0].Net.Addr() && f.Port == int(d.have.Port) {
				return sp
			}
		}
	}
	return nil
}
