// Package traits says what the service proxy of a node is: its mode, version and settings, each derived
// from evidence (log, configuration, command line, endpoints, the rules themselves) and kept with where
// it came from. Nothing is taken from a process name: k3s and others run kube-proxy inside another process.
//
// The package is pure. Differences between kube-proxy versions are data in version.go.
package traits

import "net/netip"

// Proxy is what is known of the service proxy. Zero values are not known unless stated.
type Proxy struct {
	// Mode is iptables, ipvs, nftables, userspace, kernelspace, cilium, calico-ebpf, none, or empty.
	Mode string
	// Backend is legacy or nft for rules written with iptables, empty when not known.
	Backend string
	Version Version
	// VersionFromRules is true when only the shape of the rules gave the version, which then is a range:
	// Version is its oldest, Newest its newest member (both zero: no bound).
	VersionFromRules bool
	Newest           Version

	NodeName string
	// LocalMode is how the proxy tells local pods: ClusterCIDR, NodeCIDR, BridgeInterface,
	// InterfaceNamePrefix; empty when not known. None (no detector: an empty ClusterCIDR) is "-".
	LocalMode string
	// ClusterCIDRs holds the first range of each family, as kube-proxy uses them (ClusterCIDR, NodeCIDR).
	ClusterCIDRs []netip.Prefix
	// LocalInterface is the bridge name or the name prefix of the two interface modes.
	LocalInterface string

	MasqueradeAll bool
	// MasqueradeMark is 1 << masqueradeBit, 0x4000 unless set otherwise.
	MasqueradeMark uint32
	// NodePortAddresses are ranges as configured; nil: all local addresses (iptables, ipvs).
	NodePortAddresses []netip.Prefix
	// LocalhostNodePorts is iptables.localhostNodePorts (1.26+), true unless turned off.
	LocalhostNodePorts bool

	// Facts say where each trait came from, by name ("mode", "version", "localMode", "clusterCIDR"…), in
	// the order in which they were derived.
	Facts []Fact
}

// Fact is one derived trait with its evidence.
type Fact struct {
	Name, Value string
	File        string
	Line        int
	Text        string
}

// Version is a kube-proxy version; the zero Version is unknown. Patch is -1 when not known.
type Version struct{ Major, Minor, Patch int }
