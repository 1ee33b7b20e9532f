// Package traits says what the service proxy of a node is: its mode, version and settings, each derived
// from evidence (log, configuration, command line, endpoints, the rules themselves) and kept with where
// it came from. Nothing is taken from a process name: k3s and others run kube-proxy inside another process.
//
// The package is pure. Differences between kube-proxy versions are data in version.go.
package traits

import (
	"net/netip"
	"time"
)

// Proxy is what is known of the service proxy. Zero values are not known unless stated.
type Proxy struct {
	// Mode is iptables, ipvs, nftables, userspace, kernelspace, cilium, calico-ebpf, none, or empty; svcnet where svcnet's own
	// fallback proxy serves, beside whatever kube-proxy is.
	Mode string
	// Backend is legacy or nft for rules written with iptables, empty when not known.
	Backend string
	Version Version
	// VersionFromRules is true when only the shape of the rules (or of an answer of the proxy's HTTP ports)
	// gave the version, which then is a range: Version is its oldest, Newest its newest member (both zero: no
	// bound). Where only the newest is known, Version is 1.2, the first release whose default is iptables:
	// never zero, which would read as "newest". Ask Proxy.AtLeast rather than Version.AtLeast.
	VersionFromRules bool
	Newest           Version

	NodeName string
	// LocalMode is how the proxy tells local pods: ClusterCIDR, NodeCIDR, BridgeInterface,
	// InterfaceNamePrefix; empty when not known. None (no detector: an empty ClusterCIDR) is "-".
	LocalMode string
	// ClusterCIDRs holds the first range of each family, as kube-proxy uses them (ClusterCIDR, NodeCIDR).
	ClusterCIDRs []netip.Prefix
	// LocalInterface is the bridge name or the name prefix (without "+") of the two interface modes.
	LocalInterface string

	MasqueradeAll bool
	// MasqueradeMark is 1 << masqueradeBit, 0x4000 unless set otherwise.
	MasqueradeMark uint32
	// NodePortAddresses are ranges as configured; nil: all local addresses (iptables, ipvs).
	NodePortAddresses []netip.Prefix
	// NodePortPrimary is true when node ports are served on the primary node address of each family only: the
	// keyword "primary" (1.31+), and what nftables mode does unless told otherwise.
	NodePortPrimary bool
	// LocalhostNodePorts is iptables.localhostNodePorts (1.26+), true unless turned off.
	LocalhostNodePorts bool
	// Scheduler is what kube-proxy gives its virtual servers in IPVS mode, as configured: "lc". Empty when nothing says it,
	// or when the setting is empty, which means rr.
	Scheduler string
	// ExcludeCIDRs are ranges of virtual servers that kube-proxy leaves to others in IPVS mode.
	ExcludeCIDRs []netip.Prefix
	// ProbabilityDigits is the number of decimals with which the rules' probabilities were written: 5 (up to
	// 1.16) or 10 (1.17+). 0: the rules have no probability that tells.
	ProbabilityDigits int

	// ServiceCIDRs and PodCIDRs are the cluster's ranges, the first of each family, IPv4 before IPv6; empty when
	// not known. PodCIDRs is the range of the whole cluster, not that of the node.
	ServiceCIDRs, PodCIDRs []netip.Prefix

	// SyncPeriod is the time after which a sync is due again, 30 s unless set otherwise.
	SyncPeriod time.Duration
	// Server is the address of the API server that the proxy is told to use; empty when not known.
	Server string

	// Presence is "running" when the proxy answered or its process was seen, "gone" when neither a process nor anybody
	// on its ports was found, and empty when that is not known.
	Presence string
	// PresenceEvidence is what Presence rests on, and what was found of only one of the two.
	PresenceEvidence []Fact
	// Health is what its HTTP ports say.
	Health Health

	// LogEnds is the time of the last line of the log, as Event.Time.
	LogEnds string
	// Others are other programs that serve Services on the node, by what they say of themselves: Name is the program.
	Others []Fact

	// Events are what the log says of failures and syncs, in the order of the log.
	Events []Event

	// Facts say where each trait came from, by name ("mode", "version", "localMode", "clusterCIDR"…), in
	// the order in which they were derived. Evidence that says otherwise follows the fact that it contradicts,
	// with a note.
	Facts []Fact
}

// Fact is one derived trait with its evidence.
type Fact struct {
	Name, Value string
	File        string
	Line        int
	Text        string
	// Note says why the value is not used, or what it assumes; empty for a plain fact.
	Note string
}

// AtLeast says whether the proxy is of that release or a newer one. A range of versions counts as its newest
// member, a version that is not known as newest.
func (p *Proxy) AtLeast(major, minor int) bool {
	if p.VersionFromRules {
		return p.Newest.AtLeast(major, minor)
	}
	return p.Version.AtLeast(major, minor)
}

// VersionText is the version for people: "1.36.3", "1.19 to 1.23", "1.25 or newer", "1.18 or older", or empty.
func (p *Proxy) VersionText() string {
	switch {
	case !p.VersionFromRules, p.Version == p.Newest:
		return p.Version.String()
	case p.Newest == Version{}:
		return p.Version.String() + " or newer"
	case p.Version == floor:
		return p.Newest.String() + " or older"
	default:
		return p.Version.String() + " to " + p.Newest.String()
	}
}

// The words of Proxy.Presence.
const (
	Running = "running"
	Gone    = "gone"
)

// Version is a kube-proxy version; the zero Version is unknown. Patch is -1 when not known.
type Version struct{ Major, Minor, Patch int }

// Within says whether the proxy is surely of a release between two minor ones of Kubernetes 1.x, both included; 0 is no
// bound. A range of versions is when all of it is, a version that is not known only when there is no bound.
func (p *Proxy) Within(oldest, newest int) bool {
	low, high := p.Version, p.Version
	if p.VersionFromRules {
		high = p.Newest
	}
	return (oldest == 0 || low != Version{} && low.AtLeast(1, oldest)) &&
		(newest == 0 || high != Version{} && !high.AtLeast(1, newest+1))
}
