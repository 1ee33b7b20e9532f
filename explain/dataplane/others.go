package dataplane

import (
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// Other is a program that serves Services, or a part of them, in its own way, which is not evaluated here.
type Other struct {
	Name string
	// Serves says what it serves and where.
	Serves string
	// Look is where its own view of Services can be read.
	Look string

	// tables and chains by which it is recognised: "nat OVN-KUBE-NODEPORT"; a chain that ends in "-" is a prefix.
	chains []string
	links  []string
}

var others = []Other{
	{
		Name: "Antrea", Serves: "connections of pods to Services, in Open vSwitch flows (AntreaProxy)",
		Look:   "antctl get serviceendpoints, or ovs-ofctl dump-flows br-int, in the antrea-agent pod",
		chains: []string{"nat ANTREA-", "mangle ANTREA-"}, links: []string{"antrea-gw0"},
	},
	{
		Name: "Istio ambient mode", Serves: "connections of enrolled pods, which its ztunnel proxy takes over",
		Look:   "istioctl ztunnel-config services",
		chains: []string{"nat ISTIO_POSTRT"},
	},
	{
		Name: "kube-router", Serves: "Services with IPVS virtual servers of its own (its service proxy)",
		Look:   "ipvsadm -Ln on the node",
		chains: []string{"filter KUBE-ROUTER-SERVICES"}, links: []string{"kube-dummy-if"},
	},
	{
		Name: "loxilb", Serves: "load balancer addresses with eBPF programs on the node's interfaces",
		Look:  "loxicmd get lb -o wide in the loxilb pod",
		links: []string{"llb0"},
	},
	{
		Name: "OVN-Kubernetes", Serves: "Services with load balancers of OVN; of the node's own rules only node ports and external addresses are its",
		Look:   "ovn-nbctl lb-list in the ovnkube-node pod",
		chains: []string{"nat OVN-KUBE-NODEPORT", "nat OVN-KUBE-EXTERNALIP", "nat OVN-KUBE-ETP", "nat OVN-KUBE-ITP"}, links: []string{"ovn-k8s-mp0"},
	},
}

// Others are the programs that serve Services beside or instead of kube-proxy and that are recognised by chains or
// interfaces, by name.
func Others() []Other { return others }

// Chain is the first chain of a rule set that gives the program away, with its rules' table; nil for none. A chain
// without rules is what it left behind.
func (o *Other) Chain(rs *netfilter.Ruleset) *netfilter.Chain {
	for _, want := range o.chains {
		table, name, _ := strings.Cut(want, " ")
		t := rs.Table(table)
		if t == nil {
			continue
		}
		for _, c := range t.Chains {
			if len(c.Rules) > 0 && (c.Name == name || strings.HasSuffix(name, "-") && strings.HasPrefix(c.Name, name)) {
				return c
			}
		}
	}
	return nil
}

// OnLink tells whether an interface of this name is the program's.
func (o *Other) OnLink(name string) bool {
	for _, l := range o.links {
		if l == name {
			return true
		}
	}
	return false
}

// sidecars are the containers that take over the connections of their pod.
var sidecars = map[string]string{"istio-proxy": "Istio", "linkerd-proxy": "Linkerd"}

// Mesh is the service mesh whose proxy a container of this name is; empty for other containers.
func Mesh(container string) string { return sidecars[container] }
