package recorded

import (
	"fmt"
	"slices"
	"testing"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// deserved is a finding of severity warning or worse that the objects ask for.
type deserved struct {
	id, service string
	versions    span
	because     string
	// mode is where: every one when empty. service is empty for what is of the node.
	mode string
	// chance: it need not be there.
	chance bool
}

// of tells whether a recording's objects ask for it.
func (d deserved) of(r *recording) bool {
	return d.versions.has(r.minor) && (d.mode == "" || d.mode == r.mode)
}

var allDeserved = []deserved{
	{id: "service-without-endpoints", service: "no-endpoints", because: "its slices are empty"},
	{id: "service-without-endpoints", service: "node-port-none", because: "its slices are empty"},
	{id: "service-without-endpoints", service: "balancer-none", because: "its slices are empty"},
	{id: "service-without-endpoints", service: "none-ready", because: "no endpoint is ready"},
	{id: "local-policy-no-local-endpoints", service: "internal-local-none", because: "all endpoints are on n3"},
	// In IPVS mode those of n3 serve then.
	{id: "local-policy-no-local-endpoints", service: "node-port-local-none", mode: "iptables", because: "all endpoints are on n3"},
	{id: "local-policy-no-local-endpoints", service: "node-port-local-none", mode: "nftables", because: "all endpoints are on n3"},
	// balancer-local-none has a health check port, which makes it a remark where only clients from elsewhere are concerned.
	{id: "local-policy-no-local-endpoints", service: "balancer-local-none", mode: "nftables", versions: span{to: 32}, because: earlyDrop},
	{id: "topology-hints-absent", service: "node-hints", versions: span{to: 30}, because: "kube-proxy looks at hints for nodes since 1.34, and up to 1.30 at none without the annotation"},
	{id: "missing-endpoint-rule", service: "leaving-and-back", versions: span{to: 35}, chance: true, because: "up to 1.35 chance decides which of two copies of an endpoint counts, and one is terminating"},
	{id: "ipset-entry-missing", service: "balancer-ranges-all", mode: "ipvs", versions: span{to: 35}, because: "a source range that holds everything is in no set"},
	{id: "frontend-unreachable", service: "balancer-ranges-all", mode: "ipvs", versions: span{to: 35}, because: "its clients are dropped for want of that entry"},
	{id: "proxy-sync-slow", mode: "ipvs", chance: true, because: "the kernel that IPVS is recorded in is slow"},
	{id: "endpointslice-labelled-for-other-proxy", service: "hidden-slice", versions: span{to: 35}, because: "kube-proxy leaves slices of another proxy alone up to 1.35"},
}

// key is what findings are compared by.
func (d deserved) key() string {
	if d.service == "" {
		return d.id + " of /n1" // the node
	}
	return fmt.Sprintf("%s of store/%s", d.id, d.service)
}

func keyOf(f *report.Finding) string {
	return fmt.Sprintf("%s of %s/%s", f.ID, f.Object.Namespace, f.Object.Name)
}

// TestAudit: a kube-proxy that works leaves nothing to find but what the objects deserve, whatever its version, and
// every check has what it needs.
func TestAudit(t *testing.T) {
	for _, r := range recordings(t, "") {
		t.Run(r.folder, func(t *testing.T) {
			doc, err := explain.Audit(r.node, explain.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if version := fmt.Sprintf("1.%d.", r.minor); doc.Node != "n1" || len(doc.Proxy.Version) < len(version) || doc.Proxy.Version[:len(version)] != version || doc.Proxy.Mode != r.mode || r.mode == "iptables" && doc.Proxy.Backend != "nft" || r.mode == "ipvs" && doc.Proxy.Backend != "legacy" {
				t.Errorf("node %q with kube-proxy %q in mode %q on backend %q", doc.Node, doc.Proxy.Version, doc.Proxy.Mode, doc.Proxy.Backend)
			}
			if doc.Services.Total < 40 || doc.Services.Unknown > 0 {
				t.Errorf("%d Services, %d not known", doc.Services.Total, doc.Services.Unknown)
			}
			for _, u := range doc.Unknown {
				t.Errorf("%s could not be answered: %s", u.ID, u.Text)
			}
			var found []string
			for i := range doc.Findings {
				f := &doc.Findings[i]
				if check.Rank(f.Severity) > check.Rank(check.Warning) {
					continue
				}
				found = append(found, keyOf(f))
				if !slices.ContainsFunc(allDeserved, func(d deserved) bool { return d.of(&r) && d.key() == keyOf(f) }) {
					t.Errorf("%s %s: %s\n  want %s\n  got  %s", f.Severity, keyOf(f), f.Message, f.Want, f.Got)
				}
			}
			for _, d := range allDeserved {
				if d.of(&r) && !d.chance && check.Lookup(d.id) != nil && !slices.Contains(found, d.key()) {
					t.Errorf("no %s, though %s (%s)", d.key(), d.because, d.versions)
				}
			}
		})
	}
}
