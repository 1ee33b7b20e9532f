package netfilter

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/ipvs"
)

// scheduled is one way that a virtual server can decide: a real server with its share, or none.
type scheduled struct {
	state
	dest  *ipvs.Dest
	share float64
}

// ipvsSchedule says where a new connection goes. Shares are those of many connections; where one decision is made for
// all of them, and the capture does not tell which, the way forks.
func (r *run) ipvsSchedule(s state, svc *ipvs.Service) []scheduled {
	if svc.Persistent {
		if d := r.ipvsTemplate(&s, svc); d != nil {
			return []scheduled{{s.note("%s stays with its real server: IPVS remembers it", s.p.Src), d, 1}}
		}
		stays := "a while"
		if svc.Timeout > 0 {
			stays = fmt.Sprintf("%d s", svc.Timeout)
		}
		s = s.note("a client stays with its real server for %s: the shares are those of clients that come for the first time", stays)
	}
	if slices.ContainsFunc(svc.Dests, func(d ipvs.Dest) bool { return !d.HasWeight }) {
		s = s.note("weights are not in the capture: all real servers are taken to have the same (ipvsadm -Sn)")
	}
	usable := make([]*ipvs.Dest, 0, len(svc.Dests))
	for i := range svc.Dests {
		d := &svc.Dests[i]
		if d.Upper > 0 && !d.HasConns {
			s = s.note("whether %s has as many connections as it may is not in the capture: it is taken to have fewer (ipvsadm -Ln)", d.AddrPort())
		}
		if weight(d) > 0 && !overloaded(d) {
			usable = append(usable, d)
		}
	}
	switch svc.Scheduler {
	case "dh":
		// The address dialled decides, by a table in which every real server has its place, whatever its weight
		// (ip_vs_dh_reassign).
		all := make([]*ipvs.Dest, len(svc.Dests))
		for i := range all {
			all[i] = &svc.Dests[i]
		}
		return oneOf(s, svc, all, "the scheduler dh sends all connections to one real server, by the address dialled, and the order of the kernel's list is not in the capture")
	case "sh":
		return sourceHash(s, svc, usable)
	case "mh":
		return maglev(s, svc, usable)
	}
	if len(usable) == 0 {
		return []scheduled{{s, nil, 1}}
	}
	const byLoad = "the scheduler %s looks at the connections under way: the shares take the real servers to be as busy as their weights say"
	switch svc.Scheduler {
	case "rr":
		return shareOut(s, usable, func(*ipvs.Dest) int { return 1 })
	case "wrr":
		return shareOut(s, usable, weight)
	case "lc":
		return shareOut(s.note("the scheduler lc looks at the connections under way: the shares take the real servers to be equally busy"), usable, func(*ipvs.Dest) int { return 1 })
	case "wlc", "sed", "nq", "twos":
		return shareOut(s.note(byLoad, svc.Scheduler), usable, weight)
	case "fo":
		return oneOf(s, svc, heaviest(usable), "the scheduler fo sends all connections to the real server with the greatest weight, and of several the capture does not tell the first")
	case "ovf":
		free := slices.DeleteFunc(slices.Clone(usable), func(d *ipvs.Dest) bool { return d.HasConns && d.ActiveConns > weight(d) })
		if len(free) == 0 {
			return []scheduled{{s, nil, 1}}
		}
		s = s.note("the scheduler ovf sends connections to the real server with the greatest weight until it has more under way than its weight")
		return oneOf(s, svc, heaviest(free), "of several real servers with the same weight the capture does not tell the first")
	case "lblc", "lblcr":
		return oneOf(s, svc, usable, "the scheduler "+svc.Scheduler+" keeps an address dialled with one real server, and which one is not in the capture")
	case "":
		return shareOut(s.note("the scheduler is not in the capture: real servers are taken to get shares by their weights (ipvsadm -Sn)"), usable, weight)
	}
	return shareOut(s.note("the scheduler %s is not known: real servers are taken to get shares by their weights", svc.Scheduler), usable, weight)
}

// weight is a real server's weight; 1, which is usual, where it is not known.
func weight(d *ipvs.Dest) int {
	if !d.HasWeight {
		return 1
	}
	return d.Weight
}

// overloaded tells whether a real server has all the connections that it may have (__ip_vs_dest_update_overload).
func overloaded(d *ipvs.Dest) bool {
	return d.Upper > 0 && d.HasConns && d.ActiveConns+d.InactConns >= d.Upper
}

// shareOut shares connections out by weights.
func shareOut(s state, to []*ipvs.Dest, by func(*ipvs.Dest) int) []scheduled {
	sum := 0.0
	for _, d := range to {
		sum += float64(by(d))
	}
	out := make([]scheduled, len(to))
	for i, d := range to {
		out[i] = scheduled{s, d, float64(by(d)) / sum}
	}
	return out
}

// heaviest are the real servers with the greatest weight.
func heaviest(all []*ipvs.Dest) []*ipvs.Dest {
	most := 0
	for _, d := range all {
		most = max(most, weight(d))
	}
	return slices.DeleteFunc(slices.Clone(all), func(d *ipvs.Dest) bool { return weight(d) < most })
}

// oneOf forks: one real server gets everything. One that takes no connections refuses them all.
func oneOf(s state, svc *ipvs.Service, all []*ipvs.Dest, because string) []scheduled {
	if len(all) == 0 {
		return []scheduled{{s, nil, 1}}
	}
	var out []scheduled
	decide := func(s state, d *ipvs.Dest) {
		if weight(d) <= 0 || overloaded(d) {
			d = nil
		}
		out = append(out, scheduled{s, d, 1})
	}
	open := []state{s}
	for _, d := range all[:len(all)-1] {
		f := Fact{
			Key:     "ipvs " + svc.String() + " " + d.AddrPort().String(),
			Yes:     fmt.Sprintf("the virtual server %s sends its connections to %s", dialled(svc), d.AddrPort()),
			No:      fmt.Sprintf("the virtual server %s does not send its connections to %s", dialled(svc), d.AddrPort()),
			Because: because,
		}
		var others []state
		for _, s := range open {
			yes, no := s.fork(f)
			for _, s := range yes {
				decide(s, d)
			}
			others = append(others, no...)
		}
		open = others
	}
	for _, s := range open {
		decide(s, all[len(all)-1])
	}
	return out
}

func dialled(svc *ipvs.Service) string {
	if svc.FWMark != 0 {
		return fmt.Sprintf("of mark %d", svc.FWMark)
	}
	return netip.AddrPortFrom(svc.Addr, svc.Port).String()
}

// sourceHashBuckets is the size of the table of the scheduler sh (IP_VS_SH_TAB_SIZE).
const sourceHashBuckets = 256

// sourceHash is the scheduler sh: the client's address decides, by a table that is filled by weights. A real server of
// weight 0 has one bucket in each round all the same, and the clients of that are refused unless they may be handed on
// (ip_vs_sh_reassign, ip_vs_sh_get).
func sourceHash(s state, svc *ipvs.Service, usable []*ipvs.Dest) []scheduled {
	if len(svc.Dests) == 0 {
		return []scheduled{{s, nil, 1}}
	}
	s = s.note("the scheduler sh goes by %s: the shares are those of many clients", clientsOf(svc, "sh-port"))
	turns := func(d *ipvs.Dest) int { return max(1, weight(d)) }
	sum := 0
	for i := range svc.Dests {
		sum += turns(&svc.Dests[i])
	}
	if sum > sourceHashBuckets {
		s = s.note("the weights add up to more than the %d places in the table of sh: the last real servers in the kernel's list get less than their share", sourceHashBuckets)
	}
	return hashed(s, svc, usable, turns, slices.Contains(svc.SchedFlags, "sh-fallback") || slices.Contains(svc.SchedFlags, "flag-1"))
}

// maglev is the scheduler mh: the client's address decides, by a table that is filled by the last weights that were not
// 0. The clients of a real server that was put to weight 0 are refused unless they may be handed on (ip_vs_mh_get).
func maglev(s state, svc *ipvs.Service, usable []*ipvs.Dest) []scheduled {
	if len(usable) == 0 {
		return []scheduled{{s, nil, 1}}
	}
	s = s.note("the scheduler mh goes by %s: the shares are those of many clients", clientsOf(svc, "mh-port"))
	fallback := slices.Contains(svc.SchedFlags, "mh-fallback") || slices.Contains(svc.SchedFlags, "flag-1")
	quiet := slices.DeleteFunc(slices.Clone(svc.Dests), func(d ipvs.Dest) bool { return weight(&d) > 0 })
	if fallback || len(quiet) == 0 {
		return hashed(s, svc, usable, weight, fallback)
	}
	had := Fact{
		Key:     "ipvs last weight " + svc.String(),
		Yes:     fmt.Sprintf("the real servers of %s with weight 0 had one before, and keep the clients that are theirs", dialled(svc)),
		No:      fmt.Sprintf("the real servers of %s with weight 0 never had another", dialled(svc)),
		Because: "the scheduler mh goes by the last weight that was not 0, which is not in the capture",
	}
	least := weight(slices.MinFunc(usable, func(a, b *ipvs.Dest) int { return weight(a) - weight(b) }))
	var out []scheduled
	yes, no := s.fork(had)
	for _, s := range yes {
		out = append(out, hashed(s, svc, usable, func(d *ipvs.Dest) int {
			if weight(d) == 0 {
				return least
			}
			return weight(d)
		}, false)...)
	}
	for _, s := range no {
		out = append(out, hashed(s, svc, usable, weight, false)...)
	}
	return out
}

// clientsOf says by what a scheduler tells clients apart.
func clientsOf(svc *ipvs.Service, withPort string) string {
	if slices.Contains(svc.SchedFlags, withPort) || slices.Contains(svc.SchedFlags, "flag-2") {
		return "the client's address and port"
	}
	return "the client's address"
}

// hashed shares clients out by the places that all real servers have in a table. Those of a real server that takes no
// connections are handed on, or refused.
func hashed(s state, svc *ipvs.Service, usable []*ipvs.Dest, places func(*ipvs.Dest) int, fallback bool) []scheduled {
	if fallback {
		if len(usable) == 0 {
			return []scheduled{{s, nil, 1}}
		}
		return shareOut(s, usable, places)
	}
	sum, lost := 0, 0
	for i := range svc.Dests {
		n := places(&svc.Dests[i])
		sum += n
		if !slices.Contains(usable, &svc.Dests[i]) {
			lost += n
		}
	}
	if sum == 0 {
		return []scheduled{{s, nil, 1}}
	}
	var out []scheduled
	for _, d := range usable {
		out = append(out, scheduled{s, d, float64(places(d)) / float64(sum)})
	}
	if lost > 0 {
		out = append(out, scheduled{s, nil, float64(lost) / float64(sum)})
	}
	return out
}

// ipvsTemplate is the real server that IPVS remembers for a persistent client, nil for none (ip_vs_sched_persist). A
// question about a new client asks for none.
func (r *run) ipvsTemplate(s *state, svc *ipvs.Service) *ipvs.Dest {
	if r.Kernel.NewClient || !s.p.Src.IsValid() {
		return nil
	}
	proto, virtual := s.p.Proto, netip.AddrPortFrom(s.p.Dst, s.p.DstPort)
	switch {
	case svc.FWMark != 0:
		proto = 0
		virtual = netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(svc.FWMark >> 24), byte(svc.FWMark >> 16), byte(svc.FWMark >> 8), byte(svc.FWMark)}), 0)
		if s.p.Family == IPv6 {
			return nil // printed in a form that does not tell the mark
		}
	case svc.Port != s.p.DstPort || svc.Port == 21:
		virtual = netip.AddrPortFrom(s.p.Dst, 0)
	}
	client, err := s.p.Src.Prefix(svc.Mask)
	if err != nil {
		return nil
	}
	conn := r.Kernel.IPVS.Conn(proto, netip.AddrPortFrom(client.Addr(), 0), virtual)
	if conn == nil {
		return nil
	}
	d := svc.Dest(conn.Server)
	if d == nil || weight(d) == 0 && r.ipvsSetting("expire_quiescent_template") == "1" {
		return nil
	}
	return d
}
