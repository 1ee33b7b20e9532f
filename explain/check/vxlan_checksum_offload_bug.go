package check

import (
	"cmp"
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// defaultMasqueradeMark is 1 << masqueradeBit unless kube-proxy is told otherwise.
const defaultMasqueradeMark = 0x4000

// txChecksum is the offload that leaves the checksum of a VXLAN packet to the device.
const txChecksum = "tx-checksum-ip-generic"

// vxlanChecksumOffloadBug: four things together spoil the checksums of VXLAN packets. A packet that is masqueraded keeps
// its mark and takes it along into the tunnel, so that the tunnel's packet is masqueraded too; --random-fully gives that
// one another port; the kernel, before 5.7, then updates a checksum that is not there yet; and the device leaves it so.
// kube-proxy 1.19 and newer (and patches of 1.16 to 1.18) clear the mark first. Vendors mend kernels without changing
// their number: this is a risk and no proof.
var vxlanChecksumOffloadBug = Check{
	ID: "vxlan-checksum-offload-bug", Rests: onObjects, Severity: Warning,
	Title: "VXLAN devices whose masqueraded packets may carry bad checksums",
	Node: func(n *Node) []report.Finding {
		if !n.translatesByRules() || n.Proxy.Mode == "nftables" {
			return nil
		}
		rs, rule := n.masqueradesTwice()
		if rule == nil {
			for _, family := range bothFamilies(n.Plan.Ports) {
				n.Needs(RulesOf(family))
			}
			return nil
		}
		if !n.Needs(Kernel) || n.Host.KernelAtLeast(5, 7) != host.No || !n.Needs(Links) {
			return nil
		}
		var out []report.Finding
		for i := range n.Host.Links {
			l := &n.Host.Links[i]
			if l.Kind != "vxlan" || !l.Up || !n.offloads(l.Name) {
				continue
			}
			out = append(out, n.badChecksums(l, rs, rule))
		}
		return out
	},
}

// masqueradesTwice is the rule that masquerades with --random-fully packets whose mark was not cleared.
func (n *Node) masqueradesTwice() (*netfilter.Ruleset, *netfilter.Rule) {
	mark := n.masqueradeMark()
	for _, rs := range n.served() {
		t := rs.Table("nat")
		if t == nil {
			continue
		}
		c := t.Chain("KUBE-POSTROUTING")
		if c == nil {
			continue
		}
	rules:
		for i := range c.Rules {
			switch to := c.Rules[i].Target.(type) {
			case netfilter.SetMark:
				if to.Mask&mark == mark && to.Value&mark == 0 || to.Mask == 0 && to.Value&mark != 0 {
					break rules // cleared, or turned over where it is set
				}
			case *netfilter.Translate:
				if to.Kind == netfilter.Masquerade && to.RandomFully {
					return rs, &c.Rules[i]
				}
			}
		}
	}
	return nil, nil
}

func (n *Node) masqueradeMark() uint32 { return cmp.Or(n.Proxy.MasqueradeMark, defaultMasqueradeMark) }

// offloads tells whether a device is left the checksums of what it sends.
func (n *Node) offloads(dev string) bool {
	features, known := n.Host.Offloads[dev]
	if !known {
		n.lacks(Offloads)
		return false
	}
	return features[txChecksum].On
}

func (n *Node) badChecksums(l *host.Link, rs *netfilter.Ruleset, rule *netfilter.Rule) report.Finding {
	return report.Finding{
		Subject: l.Name,
		Message: fmt.Sprintf("packets that %s sends for masqueraded connections may have bad UDP checksums, and are then lost on the other node (the first answer comes after about a minute): kernel %s, %s on, --random-fully, and KUBE-POSTROUTING does not clear mark %#x before MASQUERADE", l.Name, n.Host.Uname.Release, txChecksum, n.masqueradeMark()),
		Want:    "kernel 5.7 or newer, or the mark cleared before MASQUERADE, or " + txChecksum + " off on " + l.Name,
		Got:     fmt.Sprintf("kernel %s, the mark kept, %s on", n.Host.Uname.Release, txChecksum),
		Evidence: []report.Evidence{
			HostEvidence("ethtool", n.Host.Offloads[l.Name][txChecksum].Evidence), RuleEvidence(rs, rule),
			HostEvidence("uname", n.Host.Uname.Evidence), HostEvidence("ip link", l.Evidence),
		},
		Causes: []string{"kube-proxy 1.16 to 1.18 without the correction of kubernetes/kubernetes#92035, on an older kernel"},
		Remedy: fmt.Sprintf("ethtool -K %s %s off (helps at once, lasts until the device is made again); then upgrade kube-proxy or the kernel", l.Name, txChecksum),
	}
}
