package dataplane

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// entries are the jumps by which packets get from the built-in chains to kube-proxy's, in the nat table. Of one
// group only the first whose chain is there counts: in iptables mode NODEPORTS is reached from SERVICES, and the
// userspace mode (up to 1.25) has chains of its own.
var entries = []struct {
	group string
	hooks []netfilter.Hook
	chain string
	// local: reached for addresses of the node only.
	local bool
}{
	{"services", []netfilter.Hook{netfilter.Prerouting, netfilter.Output}, "KUBE-SERVICES", false},
	{"services", []netfilter.Hook{netfilter.Prerouting, netfilter.Output}, "KUBE-NODEPORTS", true},
	{"portals", []netfilter.Hook{netfilter.Prerouting}, "KUBE-PORTALS-CONTAINER", false},
	{"portals", []netfilter.Hook{netfilter.Output}, "KUBE-PORTALS-HOST", false},
	{"nodeport", []netfilter.Hook{netfilter.Prerouting}, "KUBE-NODEPORT-CONTAINER", true},
	{"nodeport", []netfilter.Hook{netfilter.Output}, "KUBE-NODEPORT-HOST", true},
	{"postrouting", []netfilter.Hook{netfilter.Postrouting}, "KUBE-POSTROUTING", false},
}

// granting completes one table and says what it added.
type granting struct {
	rules *netfilter.Ruleset
	table *netfilter.Table
	said  []string
}

// TakeForGranted completes the nat table of a partial capture (a pasted part of a listing) with what any node with
// kube-proxy has and the capture lacks: the jumps into kube-proxy's chains, and the chains that only set a mark. It
// says in words what it added, so that an answer resting on it can say so; a complete capture is never touched.
func TakeForGranted(rs *netfilter.Ruleset) []string {
	t := rs.Table("nat")
	if t == nil || t.Complete {
		return nil
	}
	g := granting{rules: rs, table: t}
	g.services()
	g.entries()
	g.marks()
	return g.said
}

func (g *granting) has(chain string) bool {
	c := g.table.Chain(chain)
	return c != nil && len(c.Rules) > 0
}

func (g *granting) add(chain string, r netfilter.Rule) {
	c := g.table.AddChain(chain)
	c.Declared = true
	c.Rules = append(c.Rules, r)
	g.said = append(g.said, fmt.Sprintf("%q is not in %s and is taken for granted", r.Text, g.rules.File))
}

// services makes up for a KUBE-SERVICES that was left out: a per-service chain whose masquerade rule names the
// cluster IP (1.22 and newer) is reached for that address.
func (g *granting) services() {
	if g.has("KUBE-SERVICES") {
		return
	}
	for _, c := range g.table.Chains {
		if !strings.HasPrefix(c.Name, SVCPrefix) && !strings.HasPrefix(c.Name, SVLPrefix) {
			continue
		}
		for i := range c.Rules {
			r := &c.Rules[i]
			addr, _, port, hasAddr, hasProto, hasPort := r.ExactDst()
			if !hasAddr || !hasProto || !hasPort || !strings.HasSuffix(r.Comment, " cluster IP") {
				continue
			}
			// The same tests without those on the client.
			g.add("KUBE-SERVICES", netfilter.Rule{
				Dst: r.Dst, Proto: r.Proto, Matches: r.Matches, Comment: r.Comment, Target: netfilter.Jump{Chain: c.Name},
				Text: fmt.Sprintf("-A KUBE-SERVICES -d %s --dport %d -j %s", addr, port, c.Name),
			})
			break
		}
	}
	if g.has("KUBE-SERVICES") && g.has("KUBE-NODEPORTS") {
		g.add("KUBE-SERVICES", toLocal("KUBE-SERVICES", "KUBE-NODEPORTS"))
	}
}

func toLocal(from, to string) netfilter.Rule {
	return netfilter.Rule{
		Matches: []netfilter.Match{&netfilter.AddrType{Dst: netfilter.TypeLocal}}, Target: netfilter.Jump{Chain: to},
		Text: fmt.Sprintf("-A %s -m addrtype --dst-type LOCAL -j %s", from, to),
	}
}

// entries adds the jumps from built-in chains of which the capture has nothing.
func (g *granting) entries() {
	type place struct {
		hook  netfilter.Hook
		group string
	}
	shown := make(map[netfilter.Hook]bool)
	for _, e := range entries {
		for _, h := range e.hooks {
			if c := g.table.Chain(h.String()); c != nil && (c.Declared || len(c.Rules) > 0) {
				shown[h] = true
			}
		}
	}
	done := make(map[place]bool)
	for _, e := range entries {
		if !g.has(e.chain) {
			continue
		}
		for _, h := range e.hooks {
			if shown[h] || done[place{h, e.group}] {
				continue
			}
			done[place{h, e.group}] = true
			r := netfilter.Rule{Target: netfilter.Jump{Chain: e.chain}, Text: fmt.Sprintf("-A %s -j %s", h, e.chain)}
			if e.local {
				r = toLocal(h.String(), e.chain)
			}
			g.add(h.String(), r)
			g.table.Chain(h.String()).Policy = "ACCEPT"
		}
	}
}

// marks adds the chains that kube-proxy and kubelet keep for setting a mark, where rules jump to them and the
// capture lacks them. What KUBE-MARK-DROP marks is dropped in the filter table (KUBE-FIREWALL, up to 1.26).
func (g *granting) marks() {
	wanted := make(map[string]bool)
	for _, c := range g.table.Chains {
		for i := range c.Rules {
			if j, ok := c.Rules[i].Target.(netfilter.Jump); ok {
				wanted[j.Chain] = true
			}
		}
	}
	if c := g.table.Chain("KUBE-MARK-MASQ"); c != nil && c.Partial && len(c.Rules) == 1 {
		c.Partial = false // kube-proxy never puts more than the one rule there
	}
	if wanted["KUBE-MARK-MASQ"] && g.table.Chain("KUBE-MARK-MASQ") == nil {
		bit := g.masqueradeMark()
		g.add("KUBE-MARK-MASQ", netfilter.Rule{
			Target: netfilter.SetMark{Value: bit, Mask: bit}, Text: fmt.Sprintf("-A KUBE-MARK-MASQ -j MARK --or-mark %#x", bit),
		})
	}
	if wanted["KUBE-MARK-DROP"] && g.table.Chain("KUBE-MARK-DROP") == nil {
		g.add("KUBE-MARK-DROP", netfilter.Rule{
			Target: netfilter.Drop{}, Text: "-A KUBE-MARK-DROP -j MARK --or-mark 0x8000 (and filter KUBE-FIREWALL drops what is marked)",
		})
	}
}

// masqueradeMark is the bit that KUBE-POSTROUTING looks for, or kube-proxy's default of bit 14.
func (g *granting) masqueradeMark() uint32 {
	if c := g.table.Chain("KUBE-POSTROUTING"); c != nil {
		for i := range c.Rules {
			for _, m := range c.Rules[i].Matches {
				if mark, ok := m.(*netfilter.Mark); ok && mark.Mask != 0 {
					return mark.Mask
				}
			}
		}
	}
	return 1 << 14
}
