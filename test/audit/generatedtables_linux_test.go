package audit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/kubeproxy"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// tablesDiffer sets the tables of a kube-proxy in nftables mode beside those that repair/kubeproxy says it keeps, object by
// object. Empty: they are the same.
func tablesDiffer(s *snapshot.Snapshot) (differences string, objects int, err error) {
	reading, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		return "", 0, err
	}
	n := reading.Node()
	releases, err := kubeproxy.NFTReleases(&n.Proxy)
	if err != nil || len(releases) != 1 || len(n.NFT) != 1 {
		return "", 0, fmt.Errorf("%d releases, %d captures: %w", len(releases), len(n.NFT), err)
	}
	var out strings.Builder
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		t := n.NFT[0].Table(nft.Family(ipWord(int(family))), kubeproxy.NFTName)
		if t == nil {
			return "", 0, fmt.Errorf("no table for IPv%d", family)
		}
		want, err := kubeproxy.NFTables(family, releases[0], n.Plan, &n.Proxy, kubeproxy.NFTNode{Table: t, Host: n.Host})
		if err != nil {
			return "", 0, err
		}
		generated := generatedLines(want)
		objects += len(generated)
		if d := cmp.Diff(liveLines(t, want), generated); d != "" {
			fmt.Fprintf(&out, "table %s (-live +generated):\n%s", want, d)
		}
	}
	return out.String(), objects, nil
}

// setLine is what a declaration says. How much room nft gives a set that rules fill is its own.
func setLine(s *nft.Set) string {
	return fmt.Sprintf("set %s: key %v map %t interval %t dynamic %t timeout %s comment %q", s.Name, s.Key, s.IsMap, s.Interval, s.Dynamic, s.Timeout, s.Comment)
}

func chainLine(name, comment string, base *nft.Base) string {
	if base == nil {
		return fmt.Sprintf("chain %s: comment %q", name, comment)
	}
	return fmt.Sprintf("chain %s: comment %q type %s hook %s priority %d policy %s", name, comment, base.Type, base.Hook, base.Priority, base.Policy)
}

// liveLines are a table as it is, without what kube-proxy has given up and not yet removed.
func liveLines(t *nft.Table, want *kubeproxy.NFTable) []string {
	var out []string
	for _, s := range t.Sets {
		out = append(out, setLine(s))
		for i := range s.Entries {
			if e := &s.Entries[i]; !s.Dynamic && (want.Set(s.Name) == nil || !oneOf(want.Set(s.Name).Entry(e.Start), e)) {
				out = append(out, fmt.Sprintf("entry of %s: %s", s.Name, s.EntryText(e)))
			} else if !s.Dynamic {
				out = append(out, fmt.Sprintf("entry of %s: %s", s.Name, s.EntryText(&want.Set(s.Name).Entry(e.Start).Entry)))
			}
		}
	}
	bases := 0
	for _, c := range t.Chains {
		if strings.Contains(c.Name, "/") && len(c.Rules) == 0 && want.Chain(c.Name) == nil {
			continue
		}
		if c.Base != nil {
			out = append(out, fmt.Sprintf("base chain %d is %s", bases, c.Name))
			bases++
		}
		out = append(out, chainLine(c.Name, c.Comment, c.Base))
		for i, r := range c.Rules {
			out = append(out, fmt.Sprintf("chain %s rule %02d: %s", c.Name, i, r.Text))
		}
	}
	slices.Sort(out)
	return out
}

// oneOf tells whether an entry is one of those that may stand for its key: several where Services claim one address.
func oneOf(want *kubeproxy.NFTEntry, e *nft.Entry) bool {
	if want == nil || e.Verdict == nil {
		return want != nil
	}
	return *want.Verdict == *e.Verdict || slices.ContainsFunc(want.Others, func(o nft.Entry) bool { return *o.Verdict == *e.Verdict })
}

func generatedLines(t *kubeproxy.NFTable) []string {
	var out []string
	for _, s := range t.Sets {
		out = append(out, setLine(s.Set))
		for _, e := range s.Entries {
			out = append(out, fmt.Sprintf("entry of %s: %s", s.Name, s.EntryText(&e.Entry)))
		}
	}
	bases := 0
	for _, c := range t.Chains {
		if c.Base != nil {
			out = append(out, fmt.Sprintf("base chain %d is %s", bases, c.Name))
			bases++
		}
		out = append(out, chainLine(c.Name, c.Comment, c.Base))
		for i, r := range c.Rules {
			out = append(out, fmt.Sprintf("chain %s rule %02d: %s", c.Name, i, r))
		}
	}
	slices.Sort(out)
	return out
}

// tableSettings are those on which tables of nftables mode depend, each beside the lab's own.
var tableSettings = []struct {
	name   string
	change func(config map[string]any)
}{
	{"as the lab has it", func(map[string]any) {}},
	{"masquerade all, another mark", func(config map[string]any) {
		lab.Section(config, "nftables")["masqueradeAll"], lab.Section(config, "nftables")["masqueradeBit"] = true, 10
	}},
	{"local by bridge", func(config map[string]any) {
		config["detectLocalMode"], config["detectLocal"] = "BridgeInterface", map[string]any{"bridgeInterface": "cni0"}
	}},
	{"local by prefix", func(config map[string]any) {
		config["detectLocalMode"], config["detectLocal"] = "InterfaceNamePrefix", map[string]any{"interfaceNamePrefix": "veth"}
	}},
	{"no detector", func(config map[string]any) { config["clusterCIDR"] = "" }},
	{"cluster range of IPv4 alone, node port ranges", func(config map[string]any) {
		config["clusterCIDR"], config["nodePortAddresses"] = "10.244.0.0/16", []string{"172.30.0.0/24", "127.0.0.0/8", "fd00:30::/64"}
	}},
	{"node port range of one family", func(config map[string]any) { config["nodePortAddresses"] = []string{"172.30.0.0/24"} }},
	{"node ports everywhere", func(config map[string]any) { config["nodePortAddresses"] = []string{"0.0.0.0/0", "::/0"} }},
	{"no node ports anywhere", func(config map[string]any) { config["nodePortAddresses"] = []string{"192.0.2.0/24", "2001:db8::/64"} }},
	{"node range", func(config map[string]any) { config["detectLocalMode"], config["clusterCIDR"] = "NodeCIDR", "" }},
}

// sampleTables is how many sets of objects each setting meets.
const sampleTables = 3

// TestGeneratedTables starts kube-proxy in nftables mode with one setting after the other, on random objects that change,
// and sets what it wrote beside what repair/kubeproxy says it keeps. SVCNET_AUDIT_SETS says how many sets of objects each
// setting meets.
func TestGeneratedTables(t *testing.T) {
	l := labtest.Bring(t, lab.Options{Name: fmt.Sprintf("h%d", os.Getpid()), NoProxy: true, Mode: "nftables"})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	seed := setting(t, "SVCNET_AUDIT_SEED", worldSeed)
	w := &world{lab: l, dice: rand.New(rand.NewPCG(uint64(seed), 2)), services: map[string]*worldService{}}
	w.begin(t)
	must(l.Apply(ctx, overlappingRanges()))
	n := l.Node("n1")
	must(l.Patch(ctx, "Node", "", n.Name, "", `{"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24","fd00:244:1::/64"]}}`))
	r, err := newReader(l, n)
	must(err)
	objects, looks := 0, 0
	for _, s := range tableSettings {
		must(n.StopProxy())
		n.ConfigureProxy(func(config map[string]any) {
			clear(lab.Section(config, "nftables"))
			delete(config, "nodePortAddresses")
			config["clusterCIDR"], config["detectLocalMode"] = lab.ClusterCIDRs, ""
			s.change(config)
		})
		must(n.StartProxy(ctx))
		for set := range setting(t, "SVCNET_AUDIT_SETS", sampleTables) {
			if set > 0 {
				must(w.step(ctx))
			}
			must(l.WaitSynced(ctx, n))
			snap, err := r.read(ctx)
			must(err)
			d, seen, err := tablesDiffer(snap)
			if err != nil {
				t.Fatalf("%s, set %d of seed %d: %v", s.name, set, seed, err)
			}
			objects += seen
			looks++
			if d != "" {
				t.Errorf("%s, set %d of seed %d: %s", s.name, set, seed, d)
				keep(t, fmt.Sprintf("tables-%s-%d", strings.ReplaceAll(s.name, " ", "-"), set), snap)
			}
		}
	}
	t.Logf("%d tables compared, with %d chains, rules, declarations and entries", 2*looks, objects)
	if objects < 200*looks {
		t.Errorf("%d objects in %d looks: too few to tell", objects, looks)
	}
}

// overlappingRanges is a load balancer whose source ranges hold each other, or touch: nft makes fewer of them.
func overlappingRanges() *corev1.Service {
	both := corev1.IPFamilyPolicyRequireDualStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "ranges", Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &both, IPFamilies: bothFamilies,
			Ports: []corev1.ServicePort{{Name: "web", Port: 80}},
			LoadBalancerSourceRanges: []string{
				"192.0.2.128/25", "192.0.2.0/25", "10.0.0.0/8", "10.1.0.0/16", "172.30.0.11/32", "172.30.0.10/32", "172.30.0.16/30",
				"2001:db8::/33", "2001:db8:8000::/33", "fd00:30::11/128",
			},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "198.51.100.250"}, {IP: "fd00:1b::fa"}}}},
	}
}
