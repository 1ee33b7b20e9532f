package kubeproxy

import "github.com/svcnet/svcnet/explain/netfilter"

// IPTables is what a kube-proxy keeps in the tables of iptables (IPv4) or ip6tables (IPv6). The two are programmed by two
// proxies that know nothing of each other.
type IPTables struct {
	Family netfilter.Family
	// Tables in the order filter, mangle, nat, each once.
	Tables []*Table
}

// Table returns the table of that name, nil where kube-proxy keeps nothing in it.
func (s *IPTables) Table(name string) *Table {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Table is kube-proxy's part of one table.
type Table struct {
	Name string
	// Chains are those that kube-proxy makes and fills whole, by name.
	Chains []*Chain
	// Jumps are its rules in built-in chains, which hold rules of other programs too. kube-proxy puts each in front of
	// what is there and leaves it where it is afterwards, so that their order says when they were made, and nothing else.
	Jumps []Jump

	byName map[string]*Chain
}

// index lets Chain find chains.
func (t *Table) index() {
	t.byName = make(map[string]*Chain, len(t.Chains))
	for _, c := range t.Chains {
		t.byName[c.Name] = c
	}
}

// Chain returns the chain of that name, nil where kube-proxy makes none.
func (t *Table) Chain(name string) *Chain { return t.byName[name] }

// Chain is a chain that kube-proxy makes.
type Chain struct {
	Name string
	// Service is "namespace/name" of the Service whose chain it is; empty for a chain that serves all.
	Service string
	Rules   []Rule
	// AnyOrder is true where the order of rules of different service ports is none: kube-proxy walks through Services in
	// an order that changes from sync to sync. Rules with Last stand behind them all.
	AnyOrder bool
	// Kubelets is true for a chain that kubelet makes too, with the same rules or with others: it is never removed.
	Kubelets bool
	// Exists is true where kube-proxy sees to it that the chain is there, and leaves its rules to others.
	Exists bool
}

// Rule is a rule of such a chain.
type Rule struct {
	// Text is the rule as iptables-save 1.8.9 prints it, without counters: "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp …".
	Text string
	// Service is "namespace/name" of the Service that it is for; empty for what serves all.
	Service string
	// Last is true for rules that stand behind all others of a chain with AnyOrder.
	Last bool
}

// Jump is a rule by which packets get from a built-in chain to one of kube-proxy's.
type Jump struct {
	// From is the built-in chain, To where the rule leads.
	From, To string
	// Text is the rule as iptables-save prints it.
	Text string
}
