package check

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// nftDifference is an entry of one of kube-proxy's sets and maps that is not what the objects ask for.
type nftDifference struct {
	rules *nft.Ruleset
	table *nft.Table
	set   *nft.Set // nil where the set itself is not there
	name  string
	// want is the entry that there ought to be, nil for none; have the one that there is.
	want *dataplane.WantedEntry
	have *nft.Entry
}

// nftDifferences compares kube-proxy's shared sets and maps with what the objects ask for, in the order of the plan, and
// then what nobody asks for in the order of the tables.
func (n *Node) nftDifferences() []nftDifference {
	if n.Proxy.Mode != "nftables" {
		return nil
	}
	var out []nftDifference
	dataplane.EachNFTTable(n.NFT, func(rs *nft.Ruleset, t *nft.Table, family netfilter.Family) {
		// wanted holds every entry that may be there, by set and key.
		wanted := make(map[string][]*dataplane.WantedEntry)
		var order []*dataplane.WantedEntry
		open := false
		for _, sp := range n.Plan.Ports {
			if sp.Family != int(family) {
				continue
			}
			open = open || sp.EndpointsUnknown || sp.ByChance
			entries := dataplane.NFTEntries(sp, &n.Proxy)
			for i := range entries {
				w := &entries[i]
				id := w.Set + "\x00" + string(w.Entry.Start)
				if wanted[id] == nil {
					order = append(order, w)
				}
				wanted[id] = append(wanted[id], w)
			}
		}
		if open {
			return // what ought to be there is not known
		}
		for _, w := range order {
			out = append(out, nftDiffers(rs, t, wanted[w.Set+"\x00"+string(w.Entry.Start)])...)
		}
		for _, name := range dataplane.NFTSharedSets {
			set := t.Set(name)
			if set == nil || name == dataplane.NFTHairpin && !n.Proxy.Within(36, 0) || name == dataplane.NFTFirewallIPs && n.Proxy.Within(0, 29) || name == dataplane.NFTClusterIPs && !n.Proxy.Within(31, 0) {
				continue
			}
			for i := range set.Entries {
				if e := &set.Entries[i]; wanted[name+"\x00"+string(e.Start)] == nil && !n.toleratesEntry(set, e) {
					out = append(out, nftDifference{rs, t, set, name, nil, e})
				}
			}
		}
		// Which addresses take node ports is known where it is the primary one alone, and some Service has one.
		set := t.Set(dataplane.NFTNodePortIPs)
		if set == nil || !n.Proxy.NodePortPrimary && len(n.Proxy.NodePortAddresses) > 0 ||
			!slices.ContainsFunc(order, func(w *dataplane.WantedEntry) bool { return w.Set == dataplane.NFTNodePortIPs }) {
			return
		}
		for i := range set.Entries {
			if e := &set.Entries[i]; wanted[set.Name+"\x00"+string(e.Start)] == nil {
				out = append(out, nftDifference{rs, t, set, set.Name, nil, e})
			}
		}
	})
	return out
}

// nftDiffers compares one entry with those that may stand for its key: several where Services claim one address.
func nftDiffers(rs *nft.Ruleset, t *nft.Table, wanted []*dataplane.WantedEntry) []nftDifference {
	w := wanted[0]
	set := t.Set(w.Set)
	d := nftDifference{rs, t, set, w.Set, w, nil}
	if set == nil {
		if w.Set == dataplane.NFTNodePortIPs {
			return nil // where all addresses of the node take node ports there is none
		}
		return []nftDifference{d}
	}
	d.have = set.Find(w.Entry.Start)
	for _, w := range wanted {
		if d.have != nil && !d.have.CatchAll && sameVerdict(d.have.Verdict, w.Entry.Verdict) {
			return nil
		}
	}
	return []nftDifference{d}
}

func sameVerdict(a, b *nft.Verdict) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// toleratesEntry tells whether an entry may stand there though no Service asks for it: a load balancer address that some
// versions leave out (ipMode Proxy).
func (n *Node) toleratesEntry(set *nft.Set, e *nft.Entry) bool {
	addr, _, port, ok := dataplane.EntryKey(set, e)
	if !ok || !addr.IsValid() {
		return false
	}
	for _, sp := range n.Plan.Ports {
		if sp.Port != int(port) {
			continue
		}
		for _, ip := range n.ingressOf(sp) {
			if ip == addr {
				return true
			}
		}
	}
	return false
}

// evidence is the entry that there is, or the set that lacks one.
func (d *nftDifference) evidence() report.Evidence {
	e := report.Evidence{Source: "nftables", File: d.rules.File}
	switch {
	case d.have != nil:
		e.Line, e.Text = d.set.Line, fmt.Sprintf("%s %s { %s }", d.kind(), d.name, d.set.EntryText(d.have))
	case d.set != nil:
		e.Line, e.Text = d.set.Line, fmt.Sprintf("%s %s", d.kind(), d.name)
	default:
		e.Line, e.Text = d.table.Line, "table "+d.table.String()
	}
	return e
}

func (d *nftDifference) kind() string {
	if d.set != nil && d.set.IsMap || d.want != nil && d.want.Entry.Verdict != nil {
		return "map"
	}
	return "set"
}

// text is an entry as nft prints it.
func (d *nftDifference) text(e *nft.Entry) string {
	if d.set != nil {
		return d.set.EntryText(e)
	}
	return fmt.Sprintf("%x", bytes.TrimRight(e.Start, "\x00"))
}

// of is the service port that an entry is about, nil where none is known.
func (d *nftDifference) of(n *Node) *intent.ServicePort {
	if d.want != nil {
		return d.want.Port
	}
	key := d.have.Comment
	if d.have.Verdict != nil {
		if k, _, _, ok := dataplane.ServicePortOfNFT(d.have.Verdict.Chain); ok {
			key = k
		}
	}
	addr, proto, port, ok := dataplane.EntryKey(d.set, d.have)
	for _, sp := range n.Plan.Ports {
		if key != "" && sp.Key() == key {
			return sp
		}
		if !ok || dataplane.ProtocolNumber(sp.Protocol) != proto {
			continue
		}
		for _, f := range sp.Frontends {
			if f.Addr == addr && f.Port == int(port) {
				return sp
			}
		}
	}
	return nil
}

// named is the service port that an entry names itself.
func (d *nftDifference) named() string {
	if d.have != nil && d.have.Verdict != nil {
		if k, _, _, ok := dataplane.ServicePortOfNFT(d.have.Verdict.Chain); ok {
			return k
		}
	}
	if d.have != nil {
		return d.have.Comment
	}
	return ""
}
