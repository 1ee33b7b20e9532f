package traits

import (
	"fmt"
	"strconv"
	"strings"
)

// floor is the oldest version that a range can start with: from 1.2 on iptables is the default mode.
var floor = Version{1, 2, -1}

// AtLeast says whether v is of that release or a newer one. A version that is not known counts as newest.
func (v Version) AtLeast(major, minor int) bool {
	if v == (Version{}) {
		return true
	}
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String is the version as "1.36.3", "1.36" when the patch level is not known, empty when nothing is.
func (v Version) String() string {
	switch {
	case v == Version{}:
		return ""
	case v.Patch < 0:
		return fmt.Sprintf("%d.%d", v.Major, v.Minor)
	default:
		return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	}
}

// ParseVersion reads a version as Kubernetes and its distributions write them: "v1.36.3", "1.19", "v1.31.4+k3s1",
// "v1.29.6-eks-036c24b". ok is false for anything else, and for the 0.0.0 of a build without version.
func ParseVersion(s string) (v Version, ok bool) {
	s = strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(s, "+-"); i >= 0 {
		s = s[:i]
	}
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, false
	}
	numbers := [3]int{0, 0, -1}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Version{}, false
		}
		numbers[i] = int(n)
	}
	if numbers[0] == 0 {
		return Version{}, false
	}
	return Version{numbers[0], numbers[1], numbers[2]}, true
}

// span is a range of minor releases of Kubernetes 1.x, both ends included; 0 is no bound. The facts are the
// evidence of each bound.
type span struct {
	oldest, newest         int
	oldestFact, newestFact Fact
}

// narrow takes over a bound that is tighter.
func (s *span) narrow(t tell, f Fact) {
	f.Name, f.Value = "version", t.versions()
	f.Text = clip(f.Text)
	if t.oldest > s.oldest {
		s.oldest, s.oldestFact = t.oldest, f
	}
	if t.newest > 0 && (s.newest == 0 || t.newest < s.newest) {
		s.newest, s.newestFact = t.newest, f
	}
}

// intersect takes over the bounds of another span where they are tighter.
func (s *span) intersect(o span) {
	if o.oldest > s.oldest {
		s.oldest, s.oldestFact = o.oldest, o.oldestFact
	}
	if o.newest > 0 && (s.newest == 0 || o.newest < s.newest) {
		s.newest, s.newestFact = o.newest, o.newestFact
	}
}

// empty says whether the bounds exclude each other: evidence of two versions.
func (s *span) empty() bool { return s.newest > 0 && s.newest < s.oldest }

// holds says whether a version is within the bounds.
func (s *span) holds(v Version) bool {
	return v.AtLeast(1, s.oldest) && (s.newest == 0 || !v.AtLeast(1, s.newest+1))
}

// facts are the evidence of the bounds, each once.
func (s *span) facts() []Fact {
	var fs []Fact
	if s.oldest > 0 {
		fs = append(fs, s.oldestFact)
	}
	if s.newest > 0 && s.newestFact != s.oldestFact {
		fs = append(fs, s.newestFact)
	}
	return fs
}

// tell is something that only some releases write: it narrows the version down.
type tell struct {
	// sign is what is looked for: a feature of rules (ruleSigns), a metric, a field.
	sign           string
	oldest, newest int // minor releases of 1.x, 0: no bound
}

func (t tell) versions() string {
	switch {
	case t.newest == 0:
		return fmt.Sprintf("1.%d or newer", t.oldest)
	case t.oldest == 0:
		return fmt.Sprintf("1.%d or older", t.newest)
	default:
		return fmt.Sprintf("1.%d to 1.%d", t.oldest, t.newest)
	}
}

// iptablesTells are what kube-proxy's iptables mode has written when. Only chains and rules of kube-proxy
// itself tell: KUBE-MARK-DROP, KUBE-FIREWALL, KUBE-IPTABLES-HINT and the kubelet's canary are the kubelet's,
// which may be of another version. Sorted by sign; each has its test in ruleSigns.
var iptablesTells = []tell{
	{sign: "cluster IP masquerade in a KUBE-SVC chain", oldest: 22},
	{sign: "cluster IP masquerade in KUBE-SERVICES", newest: 21},
	{sign: "colon after a service without port name", newest: 18},
	{sign: "comment names the endpoint", oldest: 24},
	{sign: "counter on the drop of invalid packets", oldest: 31},
	{sign: "drop for no local endpoints in filter", oldest: 25},
	{sign: "external IP rules to a KUBE-SVC chain", newest: 23},
	{sign: "filter chain KUBE-NODEPORTS", oldest: 21},
	{sign: "filter chain KUBE-PROXY-FIREWALL", oldest: 25},
	{sign: "forwarding conntrack rule for any source", oldest: 23},
	{sign: "forwarding conntrack rules with the cluster CIDR", newest: 17},
	{sign: "forwarding conntrack rules, one for each direction", newest: 22},
	{sign: "jump to KUBE-EXTERNAL-SERVICES from FORWARD", oldest: 20},
	{sign: "jump to KUBE-SERVICES from filter INPUT", oldest: 13, newest: 19},
	{sign: "KUBE-EXT chain", oldest: 24},
	{sign: "KUBE-FW chain ends in KUBE-MARK-DROP", newest: 24},
	{sign: "KUBE-FW chain names KUBE-PROXY-FIREWALL", oldest: 27},
	{sign: "KUBE-PROXY-CANARY chain", oldest: 16},
	{sign: "KUBE-SVL chain", oldest: 24},
	{sign: "KUBE-XLB chain", newest: 23},
	{sign: "localhost counter on node ports", oldest: 31},
	{sign: "masquerade rule tests the mark itself", newest: 18},
	{sign: "masquerade with random ports", oldest: 16},
	{sign: "node port masquerade in KUBE-NODEPORTS", newest: 21},
	{sign: "node port rules spare the loopback addresses", oldest: 26},
	{sign: "node ports to a KUBE-SVC chain", newest: 23},
	{sign: "node ports without exception for ::1", newest: 25},
	{sign: "numbered balancing rules", newest: 22},
	{sign: "physdev test on external IP", newest: 20},
	{sign: "probability with 10 digits", oldest: 17},
	{sign: "probability with 5 digits", newest: 16},
	{sign: "return for unmarked packets in KUBE-POSTROUTING", oldest: 19},
	{sign: "service without port name, without colon", oldest: 19},
}

// ipvsTells are the same for IPVS mode.
var ipvsTells = []tell{
	{sign: "filter chain KUBE-IPVS-FILTER", oldest: 26},
	{sign: "filter chain KUBE-IPVS-OUT-FILTER", oldest: 29},
	{sign: "filter chain KUBE-NODE-PORT", oldest: 21},
	{sign: "filter chain KUBE-PROXY-FIREWALL", oldest: 25},
	{sign: "KUBE-PROXY-CANARY chain", oldest: 16},
	{sign: "masquerade rule tests the mark itself", newest: 18},
	{sign: "masquerade with random ports", oldest: 16},
	{sign: "nat chain KUBE-FIREWALL", newest: 24},
	{sign: "return for loopback sources in KUBE-SERVICES", oldest: 26},
	{sign: "return for unmarked packets in KUBE-POSTROUTING", oldest: 19},
	{sign: "set KUBE-EXTERNAL-IP-LOCAL", oldest: 18},
}

// nftTells are the same for the tables of nftables mode. That the checks run behind the translation came with 1.34,
// and was put back into 1.33.6.
var nftTells = []tell{
	{sign: "chain filter-prerouting-pre-dnat", oldest: 33},
	{sign: "chain mark-for-masquerade", newest: 35},
	{sign: "filter-input at priority -101", newest: 29},
	{sign: "filter-input at priority -110", oldest: 30, newest: 33},
	{sign: "set hairpin-connections", oldest: 36},
}

// userspaceTells: the mode is gone since 1.26.
var userspaceTells = []tell{
	{sign: "KUBE-PORTALS chain", newest: 25},
}

// metricTells are the names of metrics that began with a release.
var metricTells = []tell{
	{sign: "kubeproxy_conntrack_reconciler_sync_duration_seconds", oldest: 33},
	{sign: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total", oldest: 31},
	{sign: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total", oldest: 31},
	{sign: "kubeproxy_proxy_healthz_total", oldest: 28},
	{sign: "kubeproxy_sync_full_proxy_rules_duration_seconds", oldest: 28},
	{sign: "kubeproxy_sync_proxy_rules_iptables_last", oldest: 28},
	{sign: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", oldest: 26},
	{sign: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total", oldest: 16},
	{sign: "kubeproxy_sync_proxy_rules_iptables_total", oldest: 21},
	{sign: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", oldest: 31},
	{sign: "kubeproxy_sync_proxy_rules_no_local_endpoints_total", oldest: 24},
}

// configzTells are the fields that /configz shows: it prints every field with its default, so that one that is
// not there tells too ("no nftables"). "kind" is the only one at the top that came later than its document.
var configzTells = []tell{
	{sign: "bindAddressHardFail", oldest: 19},
	{sign: "detectLocal", oldest: 24},
	{sign: "iptables.localhostNodePorts", oldest: 26},
	{sign: "kind", oldest: 36},
	{sign: "logging", oldest: 28},
	{sign: "nftables", oldest: 29},
	{sign: "no detectLocal", newest: 23},
	{sign: "no iptables.localhostNodePorts", newest: 25},
	{sign: "no kind", newest: 35},
	{sign: "no logging", newest: 27},
	{sign: "no nftables", newest: 28},
	{sign: "udpIdleTimeout", newest: 25},
}

// healthzTells are the shapes of the answer of /healthz.
var healthzTells = []tell{
	{sign: "healthy", oldest: 33},
	{sign: "nodeEligible", oldest: 28},
	{sign: "time not in RFC 3339", newest: 32},
}

// tellOf returns the entry of that sign.
func tellOf(table []tell, sign string) (tell, bool) {
	for _, t := range table {
		if t.sign == sign {
			return t, true
		}
	}
	return tell{}, false
}
