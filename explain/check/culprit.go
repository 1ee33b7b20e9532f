package check

import "strings"

// namedBy is the id of the check that names the mechanism behind an obstacle, empty where none does. What such a
// check raises is not said a second time in general words.
func (o *Obstacle) namedBy() string {
	switch {
	case o.Chain == "FORWARD(policy)":
		return forwardPolicyDropID
	case o.Chain == "KUBE-FIREWALL":
		return "unconditional-drop-in-kube-firewall"
	case PolicyOwner(o.Chain) != "":
		return policyDropID
	case isHostPort(o.Chain):
		return "hostport-shadows-service"
	case (o.Result == "martian" || o.Result == "no-route") && strings.Contains(o.Text, "forward"):
		return "ip-forward-off"
	case o.Result == "no-route":
		if o.toService() {
			return noRouteToServiceID
		}
		return noRouteToBackendID
	case o.Result == "martian" && strings.Contains(o.Text, "rp_filter"):
		return "rp-filter-strict-multi-interface"
	case o.Result == "bypasses":
		return nodePortReplyBypassesID
	case o.Result == "untranslated":
		return "notrack-breaks-reply-translation"
	}
	return ""
}

// names tells whether a finding of another check says what an obstacle is.
func (fs Findings) names(o *Obstacle) bool {
	// Where the jumps to kube-proxy's chains are gone, it is they that are missing, whatever comes behind.
	if o.Chain == "FORWARD(policy)" && fs.Has("kube-jump-missing", "FORWARD") {
		return true
	}
	id := o.namedBy()
	return id != "" && fs.Has(id, "")
}

// policyOwners are the programs that enforce NetworkPolicy with chains of their own, by the beginning of chain names.
var policyOwners = []struct{ prefix, owner string }{
	{"cali-", "Calico"},
	{"felix-", "Calico"},
	{"KUBE-POD-FW-", "kube-router"},
	{"KUBE-NWPLCY-", "kube-router"},
	{"KUBE-ROUTER-", "kube-router"},
	{"WEAVE-NPC", "Weave Net"},
	{"ANTREA-", "Antrea"},
	{"CILIUM_", "Cilium"},
	{"AZURE-NPM", "Azure NPM"},
	{"KUBE-NETWORK-POLICIES", "kube-network-policies"},
}

// PolicyOwner is the program that enforces NetworkPolicy with this chain, empty for other chains.
func PolicyOwner(chain string) string {
	for _, p := range policyOwners {
		if strings.HasPrefix(chain, p.prefix) {
			return p.owner
		}
	}
	return ""
}
