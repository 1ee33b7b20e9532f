package snapshot

import (
	"path"
	"regexp"
	"strings"
)

// baseName is the last element of a name as used in a snapshot: "a.tgz:node-1/nft.txt" gives "nft.txt".
// Lower case, with "-" for the separators that people use instead.
func baseName(name string) string {
	if _, inner, ok := strings.Cut(name, ":"); ok && inner != "" {
		name = inner
	}
	name = strings.ToLower(path.Base(name))
	return strings.NewReplacer("_", "-", " ", "-").Replace(name)
}

func familyOfName(name string) int {
	b := baseName(name)
	switch {
	case strings.Contains(b, "ip6"), strings.Contains(b, "ipv6"), strings.Contains(b, "ip--6"), strings.Contains(b, "inet6"):
		return 6
	case strings.Contains(b, "iptables"), strings.Contains(b, "ipv4"), strings.Contains(b, "ip--4"):
		return 4
	}
	return 0
}

func backendOfName(name string) string {
	b := baseName(name)
	switch {
	case strings.Contains(b, "legacy"):
		return "legacy"
	case strings.Contains(b, "tables-nft"), strings.Contains(b, "nft-save"), strings.Contains(b, "nf-tables"):
		return "nft"
	}
	return ""
}

// namedFormats lists what the name of a file promises, used where content cannot tell: for files that are
// empty or cannot be read, and to settle doubt. The first that fits counts.
var namedFormats = []struct {
	name   *regexp.Regexp
	format Format
}{
	{regexp.MustCompile(`(ip6?|x)tables(-legacy|-nft)?-+save`), IPTablesSave},
	{regexp.MustCompile(`ip6?tables.*-l(ist)?\b`), IPTablesList},
	{regexp.MustCompile(`ip6?tables`), IPTablesRules},
	{regexp.MustCompile(`ipvsadm.*stat`), IPVSList},
	{regexp.MustCompile(`ipvsadm-+(s|save)`), IPVSSave},
	{regexp.MustCompile(`ipvsadm.*(c|conn)\b`), IPVSConns},
	{regexp.MustCompile(`ipvsadm`), IPVSList},
	{regexp.MustCompile(`ipset.*list`), IPSetList},
	{regexp.MustCompile(`ipset`), IPSetSave},
	{regexp.MustCompile(`^(nft|nftables)\b.*json$`), NFTJSON},
	{regexp.MustCompile(`^(nft|nftables)\b.*nl$`), NFTNetlink},
	{regexp.MustCompile(`^(nft|nftables)\b`), NFTText},
	{regexp.MustCompile(`conntrack-+s(tats)?\b`), ConntrackStats},
	{regexp.MustCompile(`conntrack`), Conntrack},
	{regexp.MustCompile(`^ip6?[-46]*addr`), IPAddr},
	{regexp.MustCompile(`^ip6?[-46]*link`), IPLink},
	{regexp.MustCompile(`^ip6?[-46]*route`), IPRoute},
	{regexp.MustCompile(`^ip6?[-46]*rule`), IPRule},
	{regexp.MustCompile(`^xt-recent`), XTRecent},
	{regexp.MustCompile(`^sysctl`), Sysctl},
	{regexp.MustCompile(`^ss\b`), SocketList},
	{regexp.MustCompile(`^tool-versions`), ToolVersions},
	{regexp.MustCompile(`dmesg`), Dmesg},
	{regexp.MustCompile(`uname`), Uname},
	{regexp.MustCompile(`ethtool`), Ethtool},
	{regexp.MustCompile(`brctl`), Bridge},
	{regexp.MustCompile(`hairpin`), Hairpin},
	{regexp.MustCompile(`configz`), ProxyConfigz},
	{regexp.MustCompile(`healthz`), ProxyHealthz},
	{regexp.MustCompile(`proxymode`), ProxyMode},
	{regexp.MustCompile(`metrics`), ProxyMetrics},
	{regexp.MustCompile(`kubeconfig`), Kubeconfig},
	{regexp.MustCompile(`kube-?proxy.*(args|flags|cmdline)`), ProxyArgs},
	{regexp.MustCompile(`kube-?proxy.*conf`), ProxyConfig},
	{regexp.MustCompile(`kube-?proxy.*log|kube-?proxy\.txt`), ProxyLog},
	{regexp.MustCompile(`apiserver`), APIServerFlags},
	{regexp.MustCompile(`(weave|calico|flannel|cilium-agent|kindnet|canal|aws-node|antrea).*log`), CNILog},
	{regexp.MustCompile(`cilium`), CiliumText},
	{regexp.MustCompile(`calico.*(bpf|nat)`), CalicoBPF},
	{regexp.MustCompile(`\bhns`), WindowsHNS},
	{regexp.MustCompile(`^cni\b|\.conflist$`), CNIConfig},
	{regexp.MustCompile(`^(objects?|services?|svc|endpointslices?|endpoints|nodes?|pods?)\b.*\.(ya?ml|json)$`), Objects},
	{regexp.MustCompile(`^events\b`), Events},
}

// formatOfName is what the name promises, or Unrecognised.
func formatOfName(name string) Format {
	b := baseName(name)
	for _, n := range namedFormats {
		if n.name.MatchString(b) {
			return n.format
		}
	}
	return Unrecognised
}
