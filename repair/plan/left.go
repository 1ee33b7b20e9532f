package plan

import (
	"cmp"

	"github.com/svcnet/svcnet/explain/report"
)

// A reason is why no step mends a finding.
type reason string

const (
	ofObjects  reason = "it is of the objects, which svcnet does not change"
	ofPlugin   reason = "the network plugin makes it, or lets it be"
	ofSettings reason = "it is a setting of kube-proxy's, which reads it when it starts"
	ofProxy    reason = "kube-proxy has to do it itself"
	ofMachine  reason = "it is of the machine or its kernel, and not of what a command sets for the running one"
	ofOthers   reason = "it is another program's, and what it is for is not known here"
	ofWindows  reason = "svcnet reads Windows nodes and changes nothing there"
	ofClients  reason = "it is of how clients connect"
	unplanned  reason = "what would mend it could not be told from what was read of the node"
)

// reasons are why findings are left, by id. Those that are not in the list are left only where a mender could not tell
// what is right.
var reasons = map[string]reason{
	"address-family-mismatch":                ofObjects,
	"cluster-cidr-not-set":                   ofSettings,
	"cluster-dns-mismatch":                   ofSettings,
	"conntrack-insert-failed":                ofClients,
	"duplicate-endpoint-address":             ofObjects,
	"duplicate-external-address":             ofObjects,
	"endpoint-extra-addresses-ignored":       ofObjects,
	"endpoint-without-pod":                   ofObjects,
	"endpoints-differ-from-slices":           ofObjects,
	"endpointslice-labelled-for-other-proxy": ofObjects,
	"endpointslice-manager-conflict":         ofObjects,
	"external-ip-is-node-ip":                 ofObjects,
	"hairpin-mode-off":                       ofPlugin,
	"hns-endpoint-unknown":                   ofWindows,
	"hns-policy-duplicate":                   ofWindows,
	"hns-policy-not-applied":                 ofWindows,
	"hostport-rule-missing":                  ofPlugin,
	"hostport-shadows-service":               ofObjects,
	"invalid-drop-hits-traffic":              ofMachine,
	"ipvs-conn-reuse-mode":                   ofMachine,
	"ipvs-strict-arp-off":                    ofSettings,
	"lb-ip-short-circuited":                  ofObjects,
	"load-balancer-pending":                  ofObjects,
	"local-policy-no-local-endpoints":        ofObjects,
	"local-endpoint-not-used":                ofSettings,
	"localhost-nodeport-unsupported":         ofSettings,
	"mtu-exceeds-underlay":                   ofPlugin,
	"node-name-mismatch":                     ofSettings,
	"nodeport-reply-bypasses-node":           ofClients,
	"nodeport-allocated-twice":               ofObjects,
	"nodeport-collides-with-host-listener":   ofObjects,
	"nodeport-in-ephemeral-range":            ofObjects,
	"nothing-listens":                        ofObjects,
	"no-route-to-backend":                    ofPlugin,
	"no-route-to-service":                    ofPlugin,
	"other-dataplane":                        ofOthers,
	"pod-missing-from-slices":                ofObjects,
	"pods-not-ready":                         ofObjects,
	"policy-drop":                            ofObjects,
	"proxy-sync-slow":                        ofProxy,
	"selector-matches-no-pods":               ofObjects,
	"service-cidr-overlaps-pod-cidr":         ofSettings,
	"service-ip-on-interface":                ofOthers,
	"service-without-endpoints":              ofObjects,
	"source-ranges-exclude-cluster":          ofObjects,
	"target-port-not-in-pod":                 ofObjects,
	"target-port-unresolved":                 ofObjects,
	"topology-hints-absent":                  ofObjects,
	"vxlan-checksum-offload-bug":             ofMachine,
}

// left are the findings that no step mends. What another finding causes goes with that.
func (s *site) left() []report.RepairLeft {
	causes := make(map[string]bool)
	for i := range s.findings {
		if s.mended[i] {
			causes[s.findings[i].ID] = true
		}
	}
	out := []report.RepairLeft{}
	for i := range s.findings {
		f := &s.findings[i]
		if s.mended[i] || f.CausedBy != "" && causes[f.CausedBy] {
			continue
		}
		l := report.RepairLeft{ID: f.ID, Object: f.Object, Subject: f.Subject, Instead: f.Remedy}
		if f.Pending != "" {
			l.Because, l.Instead = f.Pending, "look again in a moment"
		} else {
			l.Because = string(cmp.Or(reasons[f.ID], reason(s.because[i]), unplanned))
		}
		out = append(out, l)
	}
	return out
}
