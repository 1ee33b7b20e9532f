//go:build linux

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// packet is a shot as the walk is asked about it.
func (s shot) packet() (netfilter.Entry, netfilter.Packet) {
	p := netfilter.Packet{Family: s.family(), Src: s.src, Dst: s.dst, Proto: s.proto, HasSrcPort: true, State: netfilter.StateNew}
	switch s.proto {
	case netfilter.ProtoICMP:
		p.ICMPType = 8
	case netfilter.ProtoICMPv6:
		p.ICMPType = 128
	}
	if hasPorts(s.proto) {
		p.SrcPort, p.DstPort = s.sport, s.dport
	}
	if s.entry >= 0 {
		p.In = netfilter.Iface{Name: ports[s.entry].node, Known: true}
		return netfilter.FromInterface, p
	}
	p.Mark, p.In = s.mark, netfilter.NoIface
	if s.anySource {
		p.Src = netip.Addr{}
	}
	return netfilter.FromNode, p
}

// disagreement says how an ending differs from what was seen, empty when it does not.
func disagreement(e netfilter.Ending, o *observation) string {
	switch e.Verdict {
	case netfilter.Delivered:
		switch {
		case len(o.left) > 0:
			return "it left the node"
		case len(o.delivered) != 1:
			return fmt.Sprintf("it was delivered %d times", len(o.delivered))
		}
		if why := differs(e.Packet, o.delivered[0]); why != "" {
			return why
		}
	case netfilter.Forwarded:
		switch {
		case len(o.delivered) > 0:
			return "it was delivered on the node"
		case len(o.left) != 1:
			return fmt.Sprintf("it left the node %d times", len(o.left))
		case e.Packet.Out.Known && e.Packet.Out.Name != o.left[0].out:
			return "it left through " + o.left[0].out
		}
		if why := differs(e.Packet, o.left[0].datagram); why != "" {
			return why
		}
	case netfilter.UnknownVerdict:
		return ""
	default:
		switch {
		case len(o.left) > 0 && e.Verdict == netfilter.Stolen && e.Packet.In.Name == bridge:
			// A bridge loses the socket that TPROXY found when it hands the packet up (br_netfilter, skb_orphan): the
			// packet goes on with the mark alone.
			return ""
		case len(o.left) > 0:
			return "it left the node"
		case len(o.delivered) > 0 && e.Verdict != netfilter.Stolen:
			return "it was delivered on the node"
		}
		if why := wrongAnswer(e, o); why != "" {
			return why
		}
	}
	return wrongPlace(e, o)
}

// differs compares addresses and ports. The port of a source translation is the kernel's choice where the ending
// says that it is not known.
func differs(p netfilter.Packet, d datagram) string {
	switch {
	case p.Dst.IsValid() && p.Dst != d.dst:
		return fmt.Sprintf("it went to %s", d.dst)
	case p.Src.IsValid() && p.Src != d.src:
		return fmt.Sprintf("it came from %s", d.src)
	case hasPorts(p.Proto) && p.DstPort != d.dport:
		return fmt.Sprintf("it went to port %d", d.dport)
	case hasPorts(p.Proto) && p.HasSrcPort && p.SrcPort != d.sport:
		return fmt.Sprintf("it came from port %d", d.sport)
	}
	return ""
}

// wrongAnswer compares what came back to the sender. That nothing came back proves nothing: the answer goes
// through the rules too, and they may drop it.
func wrongAnswer(e netfilter.Ending, o *observation) string {
	for _, a := range o.answers {
		switch e.Verdict {
		case netfilter.Rejected:
			if a != rejectWord(e) {
				return "it was answered by " + a
			}
		case netfilter.NoRoute, netfilter.Martian:
			if a == "tcp-reset" {
				return "it was answered by " + a
			}
		case netfilter.Dropped:
			return "it was answered by " + a
		}
	}
	return ""
}

// wrongPlace compares the last place in the rules that the kernel told of.
func wrongPlace(e netfilter.Ending, o *observation) string {
	if len(o.path) == 0 {
		return ""
	}
	last := o.path[len(o.path)-1]
	switch e.Verdict {
	case netfilter.Dropped, netfilter.Rejected:
		chain, policy := strings.CutSuffix(e.Chain, "(policy)")
		// A policy is reported where the packet ran out of rules, which behind a goto is in another chain.
		switch {
		case last.table == oracleTable: // told of always; the packet passed here before, through lo
		case last.table != e.Table || last.chain != chain && !(policy && !last.isBase()):
			return fmt.Sprintf("the last rule it reached is %s", last)
		}
	case netfilter.Delivered, netfilter.Forwarded:
		if last.isBase() && last.atEnd && last.mark != e.Packet.Mark {
			return fmt.Sprintf("its mark was %#x", last.mark)
		}
	}
	return ""
}

// isBase tells whether a point is in a base chain.
func (p point) isBase() bool { return p.base || p.backend != nftBackend && isBase(p.chain) }

func isBase(chain string) bool {
	for h := netfilter.Prerouting; h <= netfilter.Postrouting; h++ {
		if chain == h.String() {
			return true
		}
	}
	return false
}

// wrongPath compares the rules that the walk says the packet passed with the places that the kernel told of. It is
// for walks with one ending in which nothing was random or open.
func wrongPath(e netfilter.Ending, o *observation) string {
	at := 0
	for _, h := range e.Hops {
		if h.Kind != netfilter.HopRule {
			continue
		}
		i := slices.IndexFunc(o.path[at:], func(p point) bool {
			return p.backend == h.Backend && p.table == h.Table && p.chain == h.Chain && p.index == h.Index
		})
		if i < 0 {
			return fmt.Sprintf("it did not reach %s %s[%d] %q in this order", h.Table, h.Chain, h.Index, h.Text)
		}
		at += i + 1
	}
	return ""
}

// A verdict is what the comparison of one packet comes to.
type verdict struct {
	wrong   string // empty: the kernel did what one of the endings says
	decided bool   // the walk needed no assumption
	random  bool   // the endings have shares
	endings []netfilter.Ending
}

// questions are the kinds of what the walk left open, by the first word of the question.
func (v verdict) questions() map[string]bool {
	out := make(map[string]bool)
	for _, e := range v.endings {
		if e.Verdict == netfilter.UnknownVerdict {
			out["verdict"] = true
		}
		for _, a := range e.Assumed {
			word, _, _ := strings.Cut(a.Fact.Key, " ")
			out[word] = true
		}
	}
	return out
}

// compare sets what was seen beside the endings of the walk.
func compare(endings []netfilter.Ending, o *observation, traced, branched bool) verdict {
	var path func(netfilter.Ending, *observation) string
	if traced && !branched {
		path = wrongPath
	}
	return compareBy(endings, o, path)
}

// compareBy does so with a comparison of the way through the rules, where the walk has one ending; nil for none.
func compareBy(endings []netfilter.Ending, o *observation, path func(netfilter.Ending, *observation) string) verdict {
	v := verdict{decided: true, endings: endings}
	var whys []string
	agreed := false
	for _, e := range endings {
		v.decided = v.decided && len(e.Assumed) == 0 && e.Verdict != netfilter.UnknownVerdict
		v.random = v.random || e.P < 1
		why := disagreement(e, o)
		if why == "" && path != nil && len(endings) == 1 {
			why = path(e, o)
		}
		agreed = agreed || why == ""
		whys = append(whys, why)
	}
	if len(endings) == 0 {
		whys = append(whys, "the walk has no ending")
	}
	if !agreed {
		v.wrong = strings.Join(whys, "; ")
	}
	return v
}

var verdictWords = map[netfilter.Verdict]string{
	netfilter.Delivered: "delivered", netfilter.Forwarded: "forwarded", netfilter.Dropped: "dropped", netfilter.Rejected: "rejected",
	netfilter.NoRoute: "no route", netfilter.Martian: "martian", netfilter.Stolen: "stolen", netfilter.UnknownVerdict: "unknown",
}

// describe prints an ending with its hops.
func describe(e netfilter.Ending) string {
	var b strings.Builder
	p := e.Packet
	fmt.Fprintf(&b, "%s", verdictWords[e.Verdict])
	switch {
	case e.Chain != "":
		fmt.Fprintf(&b, " in %s %s", e.Table, e.Chain)
	case e.Why != "":
		fmt.Fprintf(&b, " (%s)", e.Why)
	}
	if e.RejectWith != "" {
		fmt.Fprintf(&b, " with %s", e.RejectWith)
	}
	fmt.Fprintf(&b, ", share %.4f, %s:%d -> %s:%d out %q mark %#x\n", e.P, p.Src, p.SrcPort, p.Dst, p.DstPort, p.Out.Name, p.Mark)
	for _, a := range e.Assumed {
		says := a.Fact.No
		if a.Answer {
			says = a.Fact.Yes
		}
		fmt.Fprintf(&b, "      assuming %s (%s)\n", says, a.Fact.Because)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "      note: %s\n", n)
	}
	for _, h := range e.Hops {
		fmt.Fprintf(&b, "      %s %s %s %s[%d] %s\n", h.Kind, h.Backend, h.Table, h.Chain, h.Index, h.Text)
	}
	return b.String()
}
