package recorded

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// modeDifference is where a mode does something else with the same objects than iptables mode of the same version.
type modeDifference struct {
	mode string
	// services, frontends and class narrow it down: names that begin so; all when empty.
	services, frontends, class string
	versions                   span
	because                    string
	// chance: it need not be there.
	chance bool
}

// modeDifferences are all of them, for docs/proof.md too.
var modeDifferences = []modeDifference{
	{mode: "nftables", frontends: "NodePort 127.0.0.1:", because: "only iptables mode serves node ports on loopback addresses"},
	{mode: "nftables", frontends: "NodePort 10.244.1.1:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", frontends: "NodePort [fd00:244:1::1]:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", frontends: "HealthCheck 10.244.1.1:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", frontends: "HealthCheck [fd00:244:1::1]:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", frontends: "HealthCheck 127.0.0.1:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", frontends: "HealthCheck [::1]:", versions: span{from: 31}, because: onPrimary},
	{mode: "nftables", services: "balancer-none", frontends: "LoadBalancer", class: "node", because: "iptables mode refuses external addresses without endpoints at INPUT and FORWARD only, nftables mode at OUTPUT too"},
	{mode: "nftables", services: "balancer-ranges", frontends: "LoadBalancer", versions: span{to: 29}, because: "1.29 looks at source ranges behind the translation: they hold for the node's own connections alone"},
	{mode: "nftables", services: "balancer-local-none", frontends: "LoadBalancer", class: "node", versions: span{to: 32}, because: earlyDrop},
	{mode: "nftables", services: "balancer-local-none", frontends: "NodePort", class: "node", versions: span{to: 29}, because: earlyDrop},
	{mode: "nftables", services: "node-port-local-none", frontends: "NodePort", class: "node", versions: span{to: 29}, because: earlyDrop},
	{mode: "ipvs", frontends: "NodePort 127.0.0.1:", because: "only iptables mode serves node ports on loopback addresses"},
	{mode: "ipvs", services: "balancer-local", frontends: "NodePort", because: oneList},
	{mode: "ipvs", services: "balancer-local", frontends: "LoadBalancer", because: oneList},
	{mode: "ipvs", services: "balancer-ranges-local", frontends: "NodePort", because: oneList},
	{mode: "ipvs", services: "external-ip-local", frontends: "NodePort", because: oneList},
	{mode: "ipvs", services: "external-ip-local", frontends: "ExternalIP", because: oneList},
	{mode: "ipvs", services: "node-port-all-local", frontends: "NodePort", because: oneList},
	{mode: "ipvs", services: "node-port-local", frontends: "NodePort", because: oneList},
	{mode: "ipvs", services: "internal-local-none", frontends: "ClusterIP", because: "a virtual server without real servers refuses, where iptables mode drops"},
	{mode: "ipvs", services: "balancer-none", frontends: "LoadBalancer", class: "node", because: "a virtual server without real servers refuses the node's own connections too, which iptables mode lets pass"},
	{mode: "ipvs", services: "balancer-ranges-all", frontends: "LoadBalancer", versions: span{to: 35}, because: "a source range that holds everything is in no set, and the Service is closed to all but the node"},
	{mode: "nftables", services: "leaving-and-back", versions: span{to: 35}, because: "up to 1.35 chance decides between two copies of an endpoint", chance: true},
	{mode: "ipvs", services: "leaving-and-back", versions: span{to: 35}, because: "up to 1.35 chance decides between two copies of an endpoint", chance: true},
}

const (
	oneList   = "a virtual server has one list of real servers for all clients: policy Local holds for pods and the node itself too, and where it has no endpoint those of other nodes serve (since 1.24)"
	onPrimary = "nftables mode serves node ports, and health checks with them, on the primary addresses of the node unless it is told otherwise (since 1.31)"
	earlyDrop = "up to 1.33.5 the node's own connections are dropped before the translation where policy Local has no endpoint (in 1.29 to node ports too)"
)

func (d *modeDifference) covers(mode string, minor int, service, frontend, class string) bool {
	return d.mode == mode && d.versions.has(minor) && strings.HasPrefix(service, d.services) && strings.HasPrefix(frontend, d.frontends) && strings.HasPrefix(class, d.class)
}

// TestConformance: the same objects give the same frontends, backends and shares in every mode, but for the differences
// that are listed; those are there.
func TestConformance(t *testing.T) {
	met := map[int]bool{}
	compared := 0
	for _, r := range recordings(t, "") {
		if r.mode == "iptables" {
			continue
		}
		t.Run(r.folder, func(t *testing.T) {
			base := recordings(t, "iptables")
			i := slices.IndexFunc(base, func(b recording) bool { return b.minor == r.minor })
			if i < 0 {
				t.Fatalf("1.%d is not recorded in iptables mode", r.minor)
			}
			for _, s := range servicesOf(t, r) {
				want, got := cells(t, base[i], s), cells(t, r, s)
				for _, key := range keys(want, got) {
					compared++
					if want[key] == got[key] {
						continue
					}
					frontend, class, _ := strings.Cut(key, " from ")
					at := slices.IndexFunc(modeDifferences, func(d modeDifference) bool { return d.covers(r.mode, r.minor, s, frontend, class) })
					if met[at] = true; at < 0 {
						t.Errorf("%s, %s: other than in iptables mode (-):\n%s", s, key, gocmp.Diff(want[key], got[key]))
					}
				}
			}
		})
	}
	for i, d := range modeDifferences {
		if !met[i] && !d.chance {
			t.Errorf("%s mode is as iptables mode, though %s", d.mode, d.because)
		}
	}
	t.Logf("%d cells compared", compared)
	if compared < 3000 {
		t.Errorf("only %d cells compared", compared)
	}
}

func keys(a, b map[string]string) []string {
	var out []string
	for _, m := range []map[string]string{a, b} {
		for k := range m {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cells are the outcomes of a Service, by frontend and source class: result, shares of backends, whose address they see,
// and whether answers come back.
func cells(t *testing.T, r recording, service string) map[string]string {
	t.Helper()
	doc, err := explain.Trace(r.node, explain.TraceOptions{Namespace: "store", Service: service})
	if err != nil {
		t.Fatalf("%s: trace svc/%s: %v", r.folder, service, err)
	}
	lines := map[string][]string{}
	for i := range doc.Paths {
		p := &doc.Paths[i]
		f := p.Frontend
		key := fmt.Sprintf("%s %s/%s from %s", f.Kind, net.JoinHostPort(f.Address, strconv.Itoa(f.Port)), f.Protocol, p.SourceClass)
		lines[key] = append(lines[key], outcome(p))
	}
	out := map[string]string{}
	for key, all := range lines {
		slices.Sort(all)
		out[key] = strings.Join(slices.Compact(all), "\n")
	}
	return out
}

func outcome(p *report.Path) string {
	backends := slices.Clone(p.Backends)
	slices.SortFunc(backends, func(a, b report.Backend) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	result := p.Result
	if result == report.ResultIPVS {
		result = report.ResultDNAT // who translates is no difference
	}
	out := fmt.Sprintf("%s, share %.4f, masquerade %s, reply %s", result, p.Probability, word(p.Masquerade), reply(p.Reply))
	for _, u := range p.Uncertain {
		out += ", if " + u.Condition
	}
	if result == report.ResultDrop || result == report.ResultReject {
		return out // behind the translation or before it: nobody is met
	}
	for _, b := range backends {
		out += fmt.Sprintf("\n  %s:%d %s, share %.4f, masquerade %s, reply %s", b.Address, b.Port, b.State, b.Probability, word(b.Masquerade), reply(b.Reply))
	}
	return out
}
