package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// generatedServersDiffer sets what a kube-proxy in IPVS mode keeps (virtual servers, IP sets, the addresses of kube-ipvs0,
// rules) beside what repair/kubeproxy says it keeps. Empty: they are the same.
func generatedServersDiffer(s *snapshot.Snapshot) (string, error) {
	reading, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		return "", err
	}
	n := reading.Node()
	var out strings.Builder
	differ := func(what string, live, generated []string) {
		slices.Sort(live)
		slices.Sort(generated)
		if d := cmp.Diff(live, generated); d != "" {
			fmt.Fprintf(&out, "%s (-live +generated):\n%s", what, d)
		}
	}
	live, generated := serversSaid(n)
	differ("virtual servers", live, generated)
	live, generated = setsSaid(n)
	differ("IP sets", live, generated)

	live, generated = nil, nil
	for i := range n.Host.Addrs {
		if a := &n.Host.Addrs[i]; a.Link == check.KubeIPVS0 && !a.Prefix.Addr().IsLinkLocalUnicast() {
			live = append(live, a.Prefix.String())
		}
	}
	for _, a := range kubeproxy.Addresses(n.Plan, n.Host) {
		generated = append(generated, a.Prefix().String())
	}
	differ("addresses of kube-ipvs0", live, generated)

	for _, rs := range n.Rulesets {
		want, err := kubeproxy.IPVSRulesFor(rs.Family, n.Plan, &n.Proxy, &kubeproxy.IPTablesNode{Rulesets: n.Rulesets, Host: n.Host}, n.Name)
		if err != nil {
			return "", err
		}
		saved, generated := savedText(rs), generatedText(want, nil)
		for _, all := range []map[string][]string{saved, generated} {
			slices.Sort(all["filter KUBE-IPVS-OUT-FILTER"])
		}
		for name := range saved {
			if table, _, _ := strings.Cut(name, " "); want.Table(table) == nil {
				delete(saved, name)
			}
		}
		if d := cmp.Diff(saved, generated); d != "" {
			fmt.Fprintf(&out, "rules of IPv%d (-live +generated):\n%s", rs.Family, d)
		}
	}
	return out.String(), nil
}

// serversSaid are the virtual servers and real servers that are there, and those that are generated. Those with weight 0
// are on their way out; where chance decides, real servers are left out.
func serversSaid(n *check.Node) (live, generated []string) {
	open := map[string]bool{}
	may := map[string]bool{}
	for _, v := range kubeproxy.Servers(n.Plan, &n.Proxy, n.Host, n.IPVS) {
		if v.May {
			may[v.String()] = true
			continue
		}
		generated = append(generated, v.String())
		if open[v.String()] = v.Open != ""; v.Open != "" {
			continue
		}
		for i := range v.Dests {
			generated = append(generated, v.DestString(&v.Dests[i]))
		}
	}
	for i := range n.IPVS.Services {
		v := &n.IPVS.Services[i]
		if may[v.String()] {
			continue
		}
		live = append(live, v.String())
		if open[v.String()] {
			continue
		}
		for j := range v.Dests {
			if d := &v.Dests[j]; d.Weight > 0 || d.Method != ipvs.Masq {
				live = append(live, v.DestString(d))
			}
		}
	}
	return live, generated
}

// setsSaid are the sets and entries that are there, and those that are generated.
func setsSaid(n *check.Node) (live, generated []string) {
	tolerated := map[string]bool{}
	for _, s := range kubeproxy.IPSets(n.Plan, &n.Proxy, n.Host, n.Name) {
		generated = append(generated, "create "+s.Name+" "+s.Made())
		for _, e := range s.Entries {
			line := "add " + s.Name + " " + e.Text
			switch {
			case e.Leave, e.May && s.Open != "":
				tolerated[line] = true
			case strings.HasSuffix(e.Text, "/0"): // ipset takes no such network
			default:
				generated = append(generated, line)
			}
		}
	}
	for name, s := range n.Sets {
		made := s.Captured.Type + " " + s.Captured.Header
		made, _, _ = strings.Cut(made, " bucketsize ")
		// The hash grows with its entries.
		words := strings.Fields(made)
		if i := slices.Index(words, "hashsize"); i >= 0 && i+1 < len(words) {
			words[i+1] = "1024"
		}
		live = append(live, "create "+name+" "+strings.Join(words, " "))
		for i := range s.Captured.Entries {
			if line := "add " + name + " " + s.Captured.Entries[i].Text; !tolerated[line] {
				live = append(live, line)
			}
		}
	}
	return live, generated
}
