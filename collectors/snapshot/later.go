package snapshot

import (
	"regexp"
	"strings"
)

var (
	nftTable  = regexp.MustCompile(`^table (ip|ip6|inet|arp|bridge|netdev) \S+ \{`)
	nftInside = regexp.MustCompile(`^\t(chain|set|map|counter|flowtable|quota|limit|ct helper) .*\{`)
	ipsetSave = regexp.MustCompile(`^(create \S+ (hash|bitmap|list):\S+|add \S+ \S+)`)
	ipsetList = regexp.MustCompile(`^(Name: \S+|Type: (hash|bitmap|list):\S+|Revision: \d+|Header: |Size in memory: \d+|References: \d+|Number of entries: \d+|Members:)`)
	ipvsRule  = regexp.MustCompile(`^-[Aa] (-[tuf]|--tcp-service|--udp-service|--sctp-service|--fwmark-service) \S+`)
	ipvsList  = regexp.MustCompile(`^(IP Virtual Server version |Prot LocalAddress:Port|\s*-> RemoteAddress:Port|(TCP|UDP|SCTP)\s+[\[\]0-9A-Fa-f.:]+\s+[a-z]+|FWM\s+\S+\s+[a-z]+|\s+-> \S+\s+(Masq|Route|Tunnel|Local)\s+\d+)`)
	// ipvsStats are the lines below that heading where a list shows counters, or rates.
	ipvsStats = regexp.MustCompile(`^((TCP|UDP|SCTP)\s+\S+:\S+|FWM\s+\d+( IPv6)?|\s+-> \S+)(\s+\d+[KMGT]?){5}\s*$`)
	ipvsConns = regexp.MustCompile(`^(IPVS connection entries|pro expire state\s+source|(TCP|UDP|SCTP|IP)\s+\d+:\d\d[.0-9]*\s+\S+\s+\S+:\S+\s+\S+:\S+\s+\S+:\S+|Pro FromIP\s+FPrt ToIP)`)

	ciliumLine = regexp.MustCompile(`^(SERVICE ADDRESS\s+BACKEND ADDRESS|ID\s+Frontend\s+Service Type\s+Backend|ID\s+BACKEND ADDRESS|ID\s+FRONTEND|KubeProxyReplacement:\s|KVStore:\s+|Cilium:\s+|Controller Status:\s|\d+\s+\S+:\d+(/\S+)?\s+(ClusterIP|NodePort|LoadBalancer|ExternalIPs|HostPort|LocalRedirect)\b|\S+:\d+(/[A-Z]+)?( \(\d+\))?\s+\S+:\d+(/[A-Z]+)?\s+\(\d+\)( \(\d+\))?)`)
	calicoLine = regexp.MustCompile(`^\S+ port \d+ proto \d+ (src \S+ )?id \d+ count \d+ local \d+`)
	bpfMapLine = regexp.MustCompile(`^key:( [0-9a-f]{2})+`)
	hnsLine    = regexp.MustCompile(`^((Networks|Endpoints|Namespaces|Load ?Balancers|Policy Lists?):$|ID\s+\| (Virtual IPs|Endpoint IDs)|Name\s+ID(\s+Virtual Network Name)?$|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12} \||\S+\s+[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}( \S+)?$)`)
	// hnsField is a field of PowerShell's list form, or of JSON that follows a heading.
	hnsField  = regexp.MustCompile(`^((ActivityId|AdditionalParams|CreateProcessingStartTime|DNSServerList|EncapOverhead|GatewayAddress|Health|InterfaceConstraint|IsApplied|IsRemoteEndpoint|MacAddress|IPAddress|PrefixLength|References|Policies|Resources|SharedContainers|State|Version|VirtualNetwork(Name)?)\s+:( |$)|\s*"(HostComputeEndpoints|HostComputeNetwork|FrontendVIPs|PortMappings|IpConfigurations|IsRemoteEndpoint|ActivityId|SchemaVersion)":)`)
	eventLine = regexp.MustCompile(`^(NAMESPACE\s+)?LAST SEEN\s+TYPE\s+REASON\s+OBJECT`)
)

// laterTells are the outputs of dataplanes that are recognised and kept, but not evaluated yet.
var laterTells = []tell{
	{NFTText, func(l string) bool {
		return strings.HasPrefix(l, "table ") && nftTable.MatchString(l) || l[0] == '\t' && nftInside.MatchString(l)
	}},
	{IPSetList, func(l string) bool { return ipsetList.MatchString(l) }},
	{IPSetSave, func(l string) bool {
		return (l[0] == 'c' || l[0] == 'a') && ipsetSave.MatchString(l)
	}},
	{IPVSConns, func(l string) bool { return ipvsConns.MatchString(l) }},
	{IPVSList, func(l string) bool { return ipvsList.MatchString(l) || ipvsStats.MatchString(l) }},
	{CalicoBPF, func(l string) bool { return calicoLine.MatchString(l) }},
	{CiliumText, func(l string) bool { return ciliumLine.MatchString(l) }},
	{BPFMap, func(l string) bool { return strings.HasPrefix(l, "key:") && bpfMapLine.MatchString(l) }},
	{WindowsHNS, func(l string) bool { return hnsLine.MatchString(l) || hnsField.MatchString(l) }},
	{Events, func(l string) bool { return eventLine.MatchString(l) }},
}

// NotEvaluated says of a recognised format in one line why this version does not answer from it; empty
// for those that it reads.
func NotEvaluated(f Format) string {
	switch f {
	case CiliumText, BPFMap:
		return "BPF service maps: this version does not evaluate Cilium yet; capture iptables-save for what iptables decides"
	case CalicoBPF:
		return "BPF service maps: this version does not evaluate Calico's eBPF dataplane yet; capture iptables-save for what iptables decides"
	case Events:
		return "a table of events: this version does not read events; capture them with -o yaml to keep them whole"
	}
	return ""
}
