package table

import (
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// Name is that of svcnet's tables.
const Name = "svcnet"

// The priorities of the base chains. Those of kube-proxy's nftables mode are -110, -100, 0 and 100, those of iptables
// -100, 0 and 100: translations of the smallest priority count, and refusals come before anybody accepts.
const (
	priorityFirewall = -115
	priorityDNAT     = -105
	priorityFilter   = -5
	prioritySNAT     = 95
)

// Facts are what the rules need to know of the node.
type Facts struct {
	// LocalMode, LocalRanges and LocalInterface tell pods of this node, or of the cluster, from others, as
	// traits.Proxy has them: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix, or "-" for no way to tell.
	LocalMode      string
	LocalRanges    []netip.Prefix
	LocalInterface string
	MasqueradeAll  bool
	// Mark is the bit of the packet's mark that asks for masquerading: kube-proxy's own, so that rules of other programs
	// that look for it (KUBE-FORWARD accepts it, network plugins spare it) hold for this proxy's packets too.
	Mark uint32
	// NodePortIPs are the addresses of the node on which node ports are served, of both families.
	NodePortIPs []netip.Addr
	// Owned tables end with the process that made them, and nobody else can change them (kernel 5.12).
	Owned bool
}

// FactsOf are the facts that the traits of the node's proxy give. Addresses are the node's own.
func FactsOf(p *traits.Proxy, nodePortIPs []netip.Addr) Facts {
	f := Facts{
		LocalMode: p.LocalMode, LocalRanges: p.ClusterCIDRs, LocalInterface: p.LocalInterface,
		MasqueradeAll: p.MasqueradeAll, Mark: p.MasqueradeMark, NodePortIPs: slices.Clone(nodePortIPs),
	}
	if f.LocalMode == "" {
		f.LocalMode = "-"
		if len(f.LocalRanges) > 0 {
			f.LocalMode = "ClusterCIDR"
		}
	}
	return f
}

// tableComment tells whoever lists the tables what they are.
const tableComment = "fallback proxy of svcnet, in place of kube-proxy"

// localRange is the range of one family, the first as kube-proxy takes it.
func (f *Facts) localRange(family nft.Family) (netip.Prefix, bool) {
	for _, r := range f.LocalRanges {
		if familyOf(r.Addr()) == family {
			return r, true
		}
	}
	return netip.Prefix{}, false
}

func familyOf(a netip.Addr) nft.Family {
	if a.Is4() {
		return nft.IP
	}
	return nft.IP6
}

// fromPod is the test whether a packet comes from a pod, or with not from anybody else; nil where nothing can tell.
func (f *Facts) fromPod(family nft.Family, not bool) nft.Statement {
	m := &nft.Match{Op: "=="}
	if not {
		m.Op = "!="
	}
	switch f.LocalMode {
	case "-":
		return nil
	case "BridgeInterface", "InterfaceNamePrefix":
		name := make([]byte, 16)
		copy(name, f.LocalInterface)
		m.Left = &nft.Meta{Key: "iifname"}
		m.Right = &nft.Const{Type: nft.TypeIfname, Data: name}
		if f.LocalMode == "InterfaceNamePrefix" {
			m.Right = &nft.Prefix{Value: &nft.Const{Type: nft.TypeIfname, Data: name}, Bits: 8 * len(f.LocalInterface)}
		}
		return m
	}
	r, ok := f.localRange(family)
	if !ok {
		return nil
	}
	m.Left = &nft.Payload{Protocol: string(family), Field: "saddr"}
	m.Right = prefix(r)
	return m
}

// prefix is a range as an expression: one address is a constant.
func prefix(r netip.Prefix) nft.Expr {
	c := &nft.Const{Type: addressType(familyOf(r.Addr())), Data: r.Masked().Addr().AsSlice()}
	if r.IsSingleIP() {
		return c
	}
	return &nft.Prefix{Value: c, Bits: r.Bits()}
}

func addressType(family nft.Family) nft.Type {
	if family == nft.IP6 {
		return nft.TypeIPv6
	}
	return nft.TypeIPv4
}
