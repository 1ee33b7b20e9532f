//go:build linux

package oracle

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// A replied packet is the first answer to a packet of a trial, compared with the walk of the reply.
type replied struct {
	verdict
	to   int // the number of the packet that it answers
	seen *observation
}

// reply answers the packets of a trial that arrived somewhere as the walk said, each from where it arrived, and
// compares what becomes of the answers with Walker.Reply.
func (l *lab) reply(w *netfilter.Walker, t *trial, res *result) error {
	var shots []shot
	var from []netfilter.Ending
	var to []int
	for i, v := range res.verdicts {
		if v.wrong != "" || !v.decided || len(v.endings) != 1 || v.endings[0].Packet.State == netfilter.StateUntracked {
			continue
		}
		s, e, ok := answer(t.shots[i], v.endings[0], res.obs[i])
		if !ok {
			continue
		}
		s.id = l.id()
		shots, from, to = append(shots, s), append(from, e), append(to, i)
	}
	if len(shots) == 0 {
		return nil
	}
	var obs []*observation
	var err error
	if !t.single {
		if obs, err = l.fire(shots); err != nil {
			return err
		}
	}
	for i, e := range from {
		if t.single {
			if err := l.refresh(w, t); err != nil {
				return err
			}
			one, err := l.fire(shots[i : i+1])
			if err != nil {
				return err
			}
			obs = append(obs, one...)
		}
		// Replies are judged by where they come out; the marks on the way are those of other rules.
		v := compare(w.Reply(e), obs[i], false, true)
		if v.wrong != "" && slices.ContainsFunc(v.endings, refusal) && len(obs[i].left)+len(obs[i].delivered) == 0 {
			// The walk takes the way that the answer comes back for likely only, and tells a refusal in a note.
			v.wrong = ""
		}
		res.replies = append(res.replies, replied{v, to[i], obs[i]})
	}
	return nil
}

// refusal tells whether the notes of an ending say that the kernel drops the packet where it comes in.
func refusal(e netfilter.Ending) bool {
	return slices.ContainsFunc(e.Notes, func(n string) bool {
		return strings.HasPrefix(n, "if it comes in on ") && strings.Contains(n, "the kernel drops it")
	})
}

// answer is the first answer to a packet that arrived, sent from where it arrived, with the ending as it really was:
// a port that the kernel chose is filled in.
func answer(first shot, e netfilter.Ending, o *observation) (s shot, _ netfilter.Ending, ok bool) {
	s = shot{entry: -1}
	var d datagram
	switch {
	case len(o.left) == 1 && e.Verdict == netfilter.Forwarded:
		d = o.left[0].datagram
		s.entry = slices.IndexFunc(ports, func(p port) bool { return p.node == o.left[0].out })
	case len(o.delivered) == 1 && e.Verdict == netfilter.Delivered:
		d = o.delivered[0]
		// The node's own stack has answered TCP already, by a reset; and a socket cannot be bound to an address
		// that only a routing rule makes local.
		if d.proto == netfilter.ProtoTCP || !slices.Contains(pools[d.family()].node, d.dst) {
			return s, e, false
		}
	default:
		return s, e, false
	}
	switch d.proto {
	case netfilter.ProtoSCTP, netfilter.ProtoDCCP: // their answers need the state of both sides
		return s, e, false
	}
	e.Packet.SrcPort, e.Packet.HasSrcPort = d.sport, true
	if !hasPorts(d.proto) {
		e.Packet.SrcPort = 0
	}
	s.datagram = datagram{src: d.dst, dst: d.src, proto: d.proto, sport: d.dport, dport: d.sport, ttl: 64, answers: first.id}
	if d.proto == netfilter.ProtoICMP || d.proto == netfilter.ProtoICMPv6 {
		s.sport, s.dport = d.sport, 0
	}
	s.srcMAC = [6]byte{2, 0, 0, 0, 9, 1}
	return s, e, s.src.IsValid() && s.dst.IsValid()
}
