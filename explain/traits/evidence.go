package traits

import (
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// Evidence is everything that may tell what the proxy of one node is, sorted by kind. Any part may be
// missing; nothing is concluded from what is missing.
type Evidence struct {
	// ProxyModes, Configz, Metrics and Healthz are answers of the proxy's HTTP ports.
	ProxyModes, Configz, Metrics, Healthz []Source
	// Configs are KubeProxyConfiguration files of the node.
	Configs []Source
	// Args are command lines: one line, one argument a line, NUL-separated, or a manifest's list. The flags of
	// k3s (--kube-proxy-arg, --service-cidr) are understood too.
	Args []Source
	// ConfigMaps are key config.conf of ConfigMap kube-system/kube-proxy, or the whole ConfigMap.
	ConfigMaps []Source
	// Kubeconfigs are the credentials that the proxy uses; only the server's address is read.
	Kubeconfigs []Source
	// NoProcess are sources that looked for a process of the proxy, all processes of the node being to be seen, and
	// found none; NoListener those that found nobody on a port where the proxy answers. Text is the reason given.
	NoProcess, NoListener []Source
	// Logs are kube-proxy's, or those of a program that runs it inside itself.
	Logs []Source
	// APIServerFlags hold --service-cluster-ip-range, e.g. a static pod manifest.
	APIServerFlags []Source
	// KubeadmConfigs are key ClusterConfiguration of ConfigMap kube-system/kubeadm-config, or the whole ConfigMap.
	KubeadmConfigs []Source
	// CNILogs are logs of a network plugin (weave).
	CNILogs []Source
	// NFT are the captures of nftables rules.
	NFT []*nft.Ruleset
	// VirtualServer is one of IPVS, as it was captured; without a file: there is none.
	VirtualServer Fact
	// HNS are load balancers that a Windows node holds, one is enough.
	HNS []Source
	// Cilium are outputs of `cilium` and its ConfigMap, CalicoBPF dumps of Calico's service maps.
	Cilium, CalicoBPF []Source
	// Rulesets are the iptables captures of both families and backends.
	Rulesets []*netfilter.Ruleset
	// Nodes are the Node objects of the cluster.
	Nodes []Node
	// NodeName is the node whose evidence this is, where a manifest or the user says so. It is not taken for
	// the proxy's own idea of its name, which may be wrong.
	NodeName string
}

// Source is one captured text.
type Source struct {
	File string
	// Line is the line of File at which Text begins; 0 and 1 both mean the first.
	Line int
	Text string
}

// lines calls f with each line without its end, and its line number in the file, until f returns false.
func (s Source) lines(f func(n int, line string) bool) {
	n := max(s.Line, 1)
	for line := range strings.Lines(strings.TrimPrefix(s.Text, "\ufeff")) {
		if !f(n, strings.TrimRight(line, "\r\n")) {
			return
		}
		n++
	}
}

// Node is what is needed of a Node object.
type Node struct {
	Name     string
	PodCIDRs []netip.Prefix
	File     string
	Line     int
}
