package kubeproxy_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// TestNFTProxy: one rule that somebody changed is outvoted by the others, and has no say where something else tells.
func TestNFTProxy(t *testing.T) {
	n := readNode(t, "../../test/recorded/testdata/kube-proxy-1.36-nftables")
	rs := &nft.Ruleset{File: "nft.nl", Tables: n.NFT[0].Tables}
	p := n.Proxy
	p.MasqueradeMark = 0x8000
	p.ClusterCIDRs = slices.Clone(p.ClusterCIDRs)
	p.ClusterCIDRs[0] = netip.MustParsePrefix("10.244.0.0/17")
	told := func(file string) *traits.Proxy {
		q := p
		q.Facts = []traits.Fact{{Name: "masqueradeMark", File: file}, {Name: "clusterCIDR", File: file}}
		return kubeproxy.NFTProxy(&q, []*nft.Ruleset{rs})
	}
	if q := told("nft.nl"); q.MasqueradeMark != 0x4000 || len(q.ClusterCIDRs) != 2 || q.ClusterCIDRs[0].String() != "10.244.0.0/16" || q.ClusterCIDRs[1].String() != "fd00:244::/32" {
		t.Errorf("by rules: mark %#x, ranges %v", q.MasqueradeMark, q.ClusterCIDRs)
	}
	if q := told("kube-proxy-config.yaml"); q.MasqueradeMark != 0x8000 {
		t.Errorf("by the configuration: mark %#x", q.MasqueradeMark)
	}
}
