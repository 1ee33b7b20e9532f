package kubeproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
)

// IPSet is an IP set that kube-proxy keeps in IPVS mode.
type IPSet struct {
	// IPVSSet has its name, type and family, and what goes wrong without it.
	dataplane.IPVSSet
	// Entries are sorted by their text, each once.
	Entries []IPSetEntry
	// Open says why it is not known what ought to be in it, empty where it is. ByChance is true where that is because
	// chance decides: the entries are then one possibility, which is as right as any other.
	Open     string
	ByChance bool
}

// Known tells whether the set may be made with its entries.
func (s *IPSet) Known() bool { return s.Open == "" || s.ByChance }

// IPSetEntry is an entry of an IP set.
type IPSetEntry struct {
	// Text is the entry as `ipset save` prints it behind "add NAME": "10.96.0.1,tcp:80".
	Text string
	// Port is the first service port that asks for it.
	Port *intent.ServicePort
	// May is true where it is right both ways: with it and without. Leave is true for those that kube-proxy does not
	// write itself.
	May, Leave bool
}

// Entry is the entry of that text, nil where kube-proxy keeps none.
func (s *IPSet) Entry(text string) *IPSetEntry {
	i, ok := slices.BinarySearchFunc(s.Entries, text, func(e IPSetEntry, text string) int { return cmp.Compare(e.Text, text) })
	if !ok {
		return nil
	}
	return &s.Entries[i]
}

// Create is the line of `ipset restore` that makes the set as kube-proxy makes it (createSet of
// pkg/proxy/ipvs/ipset/ipset.go): sets of addresses with hashsize and maxelem, sets of ports over all ports.
func (s *IPSet) Create() string { return "create " + s.Name + " " + s.Made() }

// Made is what the set is made with: its type and options.
func (s *IPSet) Made() string {
	switch {
	case s.Type == "bitmap:port":
		return s.Type + " range 0-65535"
	case s.Family == 6:
		return s.Type + " family inet6 hashsize 1024 maxelem 65536"
	}
	return s.Type + " family inet hashsize 1024 maxelem 65536"
}

// IPSets are the sets that kube-proxy keeps for a plan, those of IPv4 before those of IPv6, each by name. Families without
// any service port have none. node is the node's own name, empty where it is not known.
func IPSets(plan *intent.Plan, p *traits.Proxy, h *host.Host, node string) []IPSet {
	families := map[int]bool{}
	for _, sp := range plan.Ports {
		families[sp.Family] = true
	}
	var out []IPSet
	at := make(map[string]int)
	for _, family := range []int{4, 6} {
		if !families[family] {
			continue
		}
		for _, s := range dataplane.IPVSSets(p, family) {
			at[s.Name] = len(out)
			out = append(out, IPSet{IPVSSet: s})
		}
	}
	add := func(set string, e IPSetEntry) {
		if i, ok := at[set]; ok {
			out[i].Entries = append(out[i].Entries, e)
		}
	}
	for _, sp := range plan.Ports {
		loopBack := dataplane.LoopBackSet(sp.Family)
		if i, ok := at[loopBack]; ok && out[i].Known() {
			switch set := &out[i]; {
			case sp.EndpointsUnknown:
				set.Open, set.ByChance = "the endpoints of "+sp.Key()+" were not read", false
			case node == "":
				set.Open, set.ByChance = "which endpoints are on this node is not known", false
			case sp.ByChance:
				set.Open, set.ByChance = "chance decides which of two copies of an endpoint of "+sp.Key()+" counts", true
			}
		}
		for _, w := range dataplane.IPVSElements(sp) {
			if w.Set == dataplane.AddressSet(sp.Family) {
				continue // what is on the device, below
			}
			// Since 1.21 endpoints that are not ready are in the set too.
			add(w.Set, IPSetEntry{Text: w.Text, Port: sp, May: w.May, Leave: w.May && (w.Set != loopBack || p.Within(0, 20))})
		}
		if sp.NodePort != 0 && sp.Protocol == "SCTP" {
			for _, f := range otherNodePorts(sp, p, h) {
				for _, set := range dataplane.NodePortSets(sp) {
					add(set, IPSetEntry{Text: f.Addr.String() + ",sctp:" + strconv.Itoa(sp.NodePort), Port: sp, May: true, Leave: true})
				}
			}
		}
	}
	for _, a := range Addresses(plan, h) {
		sp := a.Ports[0]
		add(dataplane.AddressSet(sp.Family), IPSetEntry{Text: a.Addr.String(), Port: sp, May: a.May, Leave: a.May})
	}
	for i := range out {
		out[i].sort()
	}
	return out
}

// sort puts entries in order, each once: one that has to be there before one that may.
func (s *IPSet) sort() {
	order := func(e *IPSetEntry) int {
		switch {
		case !e.May:
			return 0
		case !e.Leave:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(s.Entries, func(a, b IPSetEntry) int {
		return cmp.Or(cmp.Compare(a.Text, b.Text), cmp.Compare(order(&a), order(&b)))
	})
	s.Entries = slices.CompactFunc(s.Entries, func(a, b IPSetEntry) bool { return a.Text == b.Text })
}

// String is for messages: "KUBE-CLUSTER-IP (hash:ip,port family inet)".
func (s *IPSet) String() string {
	family := map[int]string{4: " family inet", 6: " family inet6"}[s.Family]
	return fmt.Sprintf("%s (%s%s)", s.Name, s.Type, family)
}
