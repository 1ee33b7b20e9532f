package kubeproxy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// TestRulesOfRecordings: kube-proxy's own rules in IPVS mode are those that are said to be its, in its order.
func TestRulesOfRecordings(t *testing.T) {
	for version, n := range inIPVSMode(t) {
		for _, rs := range n.Rulesets {
			w, err := kubeproxy.IPVSRulesFor(rs.Family, n.Plan, &n.Proxy, &kubeproxy.IPTablesNode{Rulesets: n.Rulesets, Host: n.Host}, n.Name)
			if err != nil {
				t.Fatal(err)
			}
			rules := 0
			for _, table := range rs.Tables {
				want := w.Table(table.Name)
				for _, c := range table.Chains {
					var got, said []string
					for i := range c.Rules {
						got = append(got, c.Rules[i].Text)
					}
					sorted := false
					if strings.HasPrefix(c.Name, "KUBE-") {
						if want == nil || want.Chain(c.Name) == nil {
							t.Errorf("%s, IPv%d: chain %s of %s is not said to be kube-proxy's", version, rs.Family, c.Name, table.Name)
							continue
						}
						for _, r := range want.Chain(c.Name).Rules {
							said = append(said, r.Text)
						}
						sorted = want.Chain(c.Name).AnyOrder
					} else if want != nil {
						sorted = true
						for _, j := range want.Jumps {
							if j.From == c.Name {
								said = append(said, j.Text)
							}
						}
					}
					if sorted {
						slices.Sort(got)
						slices.Sort(said)
					}
					if diff := cmp.Diff(said, got); diff != "" {
						t.Errorf("%s, IPv%d: chain %s of %s as it is said to be (-), and as it is (+):\n%s", version, rs.Family, c.Name, table.Name, diff)
					}
					rules += len(said)
				}
				if want == nil {
					continue
				}
				for _, c := range want.Chains {
					if table.Chain(c.Name) == nil {
						t.Errorf("%s, IPv%d: there is no chain %s in %s", version, rs.Family, c.Name, table.Name)
					}
				}
			}
			if rules < 45 {
				t.Errorf("%s, IPv%d: only %d rules", version, rs.Family, rules)
			}
		}
	}
}
