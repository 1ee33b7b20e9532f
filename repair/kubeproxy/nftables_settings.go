package kubeproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// nftSettings are what the table of one family depends on.
type nftSettings struct {
	NFTRelease
	// ip is the family as rules name it, ip or ip6; addr the type of its addresses.
	ip   string
	addr nft.Type
	bits int
	// mark is the masquerade mark as nft prints it: "0x00004000".
	mark string
	// local and notLocal are the tests that tell a pod of the node from others, empty where the proxy cannot tell:
	// "ip saddr 10.244.0.0/16", `iifname "cni0"`.
	local, notLocal string
	masqueradeAll   bool
	// nodePortAll: node ports are served on all addresses of the node, and there is no set of them. Otherwise nodePortAddrs
	// are those that are known, and nodePortOpen is true where there may be others.
	nodePortAll   bool
	nodePortAddrs []netip.Addr
	nodePortOpen  bool
	// serviceRanges are the ranges of cluster IPs in which addresses that no Service has are dropped; nil where the API
	// has none to tell, or nobody knows.
	serviceRanges []netip.Prefix
	// dropInvalid: packets that connection tracking takes for INVALID are dropped (1.29).
	dropInvalid bool
}

func nftSettingsOf(family netfilter.Family, r NFTRelease, plan *intent.Plan, p *traits.Proxy, on NFTNode) (*nftSettings, error) {
	s := &nftSettings{NFTRelease: r, ip: "ip", addr: nft.TypeIPv4, bits: 32, masqueradeAll: p.MasqueradeAll}
	if family == netfilter.IPv6 {
		s.ip, s.addr, s.bits = "ip6", nft.TypeIPv6, 128
	}
	if p.MasqueradeMark == 0 {
		return nil, errors.New("which bit of a packet's mark kube-proxy masquerades by is not known")
	}
	s.mark = fmt.Sprintf("0x%08x", p.MasqueradeMark)
	if err := s.detectLocal(p); err != nil {
		return nil, err
	}
	s.findNodePorts(family, plan, p, on)
	s.findServiceRanges(plan, p, on)
	s.dropInvalid = r.Minor == 29 && on.dropsInvalid()
	return s, nil
}

// of tells whether an address is of the family.
func (s *nftSettings) of(a netip.Addr) bool { return a.BitLen() == s.bits }

// detectLocal finds how the proxy tells pods of the node (NewDetectLocalBy… of pkg/proxy/util/localdetector.go). A family
// without a range has no test.
func (s *nftSettings) detectLocal(p *traits.Proxy) error {
	subject, value := "", ""
	switch p.LocalMode {
	case "-":
		return nil
	case "BridgeInterface":
		// Releases up to 1.34.1 write iif, which is the index that the interface had then; the name means the same.
		subject, value = "iifname", `"`+p.LocalInterface+`"`
	case "InterfaceNamePrefix":
		subject, value = "iifname", `"`+p.LocalInterface+`*"`
	case "ClusterCIDR", "NodeCIDR":
		i := slices.IndexFunc(p.ClusterCIDRs, func(c netip.Prefix) bool { return s.of(c.Addr()) })
		if i < 0 {
			return nil
		}
		subject, value = s.ip+" saddr", prefixText(p.ClusterCIDRs[i])
	default:
		return errors.New("how kube-proxy tells pods of this node from other clients is not known: neither its configuration nor a rule says so")
	}
	s.local, s.notLocal = subject+" "+value, subject+" != "+value
	return nil
}

// prefixText is a range as nft prints it: that of a single address without its length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Masked().String()
}

// findNodePorts finds the addresses on which node ports are served. kube-proxy reads those of the interfaces in a full
// sync; where it is told ranges, the set tells what it found.
func (s *nftSettings) findNodePorts(family netfilter.Family, plan *intent.Plan, p *traits.Proxy, on NFTNode) {
	var ranges []netip.Prefix
	for _, r := range p.NodePortAddresses {
		if s.of(r.Addr()) {
			ranges = append(ranges, r)
		}
	}
	primaryOnly := p.NodePortPrimary && s.Minor > 30 // older ones know no such thing, and serve all addresses
	if primaryOnly {
		// A family in which the node has no address has an empty set.
		primary, known := primaryOf(family, plan)
		if known && !primary.IsLoopback() {
			s.nodePortAddrs = []netip.Addr{primary}
		}
		s.nodePortOpen = !known
	} else if len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		s.nodePortAll = true
		return
	} else {
		s.nodePortOpen = true
	}
	if !s.nodePortOpen || on.Table == nil {
		return
	}
	addrs, _ := dataplane.NodePortAddrs(on.Table)
	for _, a := range addrs {
		if primaryOnly || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			s.nodePortAddrs = append(s.nodePortAddrs, a)
		}
	}
}

// findServiceRanges finds the ranges of cluster IPs. kube-proxy has them from the API (ServiceCIDR objects, 1.31 and
// newer, by default since 1.33); the evidence has them from the rule, if at all. A rule that does not hold the cluster IPs
// that there are was changed by somebody.
func (s *nftSettings) findServiceRanges(plan *intent.Plan, p *traits.Proxy, on NFTNode) {
	if s.Minor < 30 {
		return
	}
	ranges, found := rangesOfRule(on.Table)
	if !found {
		return // it is not there, and nobody knows whether it ever was: a full sync writes it anew
	}
	for _, sp := range plan.Ports {
		for _, f := range sp.Frontends {
			if f.Kind == intent.ClusterIP && s.of(f.Addr) && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(f.Addr) }) {
				s.serviceRanges = s.rangesKnown(p, ranges)
				return
			}
		}
		for i := range sp.Endpoints {
			a := sp.Endpoints[i].Addr
			if s.of(a) && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
				s.serviceRanges = s.rangesKnown(p, ranges)
				return
			}
		}
	}
	s.serviceRanges = ranges
}

// rangesKnown are those that something else than the rule tells; nil for none.
func (s *nftSettings) rangesKnown(p *traits.Proxy, ofRule []netip.Prefix) []netip.Prefix {
	for _, r := range p.ServiceCIDRs {
		if s.of(r.Addr()) && !slices.Contains(ofRule, r) {
			return []netip.Prefix{r}
		}
	}
	return nil
}

// unallocated is the comment of the rule that drops what goes to cluster IPs that no Service has.
const unallocated = "Drop traffic to unallocated ClusterIPs"

// rangesOfRule are those that the rule names.
func rangesOfRule(t *nft.Table) (ranges []netip.Prefix, found bool) {
	if t == nil {
		return nil, false
	}
	c := t.Chain("cluster-ips-check")
	if c == nil {
		return nil, false
	}
	for _, r := range c.Rules {
		if r.Comment != unallocated || len(r.Statements) == 0 {
			continue
		}
		m, ok := r.Statements[0].(*nft.Match)
		if !ok {
			continue
		}
		if ranges := constantRanges(m.Right); len(ranges) > 0 {
			return ranges, true
		}
	}
	return nil, false
}

// constantRanges are the ranges of an expression of constants.
func constantRanges(e nft.Expr) []netip.Prefix {
	switch e := e.(type) {
	case nft.SetLit:
		var out []netip.Prefix
		for i := range e.Entries {
			if p, ok := nft.PrefixOf(e.Entries[i].Start, e.Entries[i].End); ok {
				out = append(out, p)
			}
		}
		return out
	case *nft.Prefix:
		if a, ok := netip.AddrFromSlice(e.Value.Data); ok && e.Bits <= a.BitLen() {
			return []netip.Prefix{netip.PrefixFrom(a, e.Bits)}
		}
	case *nft.Const:
		if a, ok := netip.AddrFromSlice(e.Data); ok {
			return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
		}
	}
	return nil
}

// dropsInvalid tells whether 1.29 keeps its rule for INVALID packets: it leaves it out where connection tracking was
// liberal when it started.
func (on NFTNode) dropsInvalid() bool {
	if on.Table != nil {
		c := on.Table.Chain("forward")
		if c != nil && slices.ContainsFunc(c.Rules, func(r *nft.Rule) bool { return strings.HasPrefix(r.Text, "ct state invalid") }) {
			return true
		}
	}
	if on.Host == nil {
		return true
	}
	liberal, known := on.Host.Sysctls["net.netfilter.nf_conntrack_tcp_be_liberal"]
	return !known || liberal == "0"
}
