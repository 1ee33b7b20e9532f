package recorded

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// What repair/kubeproxy says that a kube-proxy in iptables mode writes is what every recorded one wrote: the same chains
// and the same rules in each, in the same order but where kube-proxy has none.
func TestGeneratedIPTables(t *testing.T) {
	for _, r := range recordings(t, "iptables") {
		t.Run(r.folder, func(t *testing.T) {
			reading, err := explain.Read(r.node, explain.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n := reading.Node()
			families := 0
			for _, rs := range n.Rulesets {
				families++
				want, err := kubeproxy.IPTablesFor(rs.Family, n.Plan, &n.Proxy, &kubeproxy.IPTablesNode{Rulesets: n.Rulesets, Host: n.Host})
				if err != nil {
					t.Fatal(err)
				}
				saved, generated := savedChains(rs), generatedChains(want)
				for _, sp := range n.Plan.Ports {
					if sp.ByChance {
						withoutPort(saved, sp)
						withoutPort(generated, sp)
					}
				}
				if d := cmp.Diff(saved, generated); d != "" {
					t.Errorf("IPv%d (-recorded +generated):\n%s", rs.Family, d)
				}
			}
			if families != 2 {
				t.Errorf("%d families", families)
			}
		})
	}
}

// savedChains are the rules of each chain as iptables-save printed them, sorted where their order is none. Of built-in chains they are
// kube-proxy's jumps.
func savedChains(rs *netfilter.Ruleset) map[string][]string {
	out := map[string][]string{}
	for _, table := range rs.Tables {
		for _, c := range table.Chains {
			rules := []string{}
			for i := range c.Rules {
				rules = append(rules, c.Rules[i].Text)
			}
			out[table.Name+" "+c.Name] = inOrder(table.Name, c.Name, rules)
		}
	}
	return out
}

func generatedChains(s *kubeproxy.IPTables) map[string][]string {
	out := map[string][]string{}
	for _, table := range s.Tables {
		for _, c := range table.Chains {
			rules := []string{}
			for _, r := range c.Rules {
				rules = append(rules, r.Text)
			}
			out[table.Name+" "+c.Name] = inOrder(table.Name, c.Name, rules)
		}
		for _, c := range map[string][]string{"filter": {"INPUT", "FORWARD", "OUTPUT"}, "nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
			"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}}[table.Name] {
			rules := []string{}
			for _, j := range table.Jumps {
				if j.From == c {
					rules = append(rules, j.Text)
				}
			}
			out[table.Name+" "+c] = rules
		}
	}
	return out
}

// withoutPort takes the chains of a service port out whose endpoints are one of several possibilities.
func withoutPort(chains map[string][]string, sp *intent.ServicePort) {
	delete(chains, "nat "+dataplane.SVCName(sp.Key(), sp.Protocol))
	delete(chains, "nat "+dataplane.SVLName(sp.Key(), sp.Protocol))
	for _, e := range sp.Endpoints {
		delete(chains, "nat "+dataplane.SEPName(sp.Key(), sp.Protocol, e.String()))
	}
}

// inOrder sorts the rules of chains in which each sync has another order; the rule for node ports stays the last one.
func inOrder(table, chain string, rules []string) []string {
	switch chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL":
	default:
		return rules
	}
	last := len(rules)
	if last > 0 && table == "nat" && chain == "KUBE-SERVICES" {
		last--
	}
	slices.Sort(rules[:last])
	return rules
}
