package kubeproxy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// affinitySize is the room that nft gives a set into which rules put entries, where nobody says how much.
const affinitySize = 65535

// nftPortWriter writes what belongs to service ports.
type nftPortWriter struct {
	*nftSettings
	table *NFTable
	// proxy is the one whose release is known.
	proxy *traits.Proxy
}

// nftPort is a service port while it is written.
type nftPort struct {
	*intent.ServicePort
	service  string
	key      string
	protocol string // as nft has it: "tcp"
	// balancers are its addresses of load balancers.
	balancers []netip.Addr
}

// port writes the chains, sets and entries of one service port.
func (w *nftPortWriter) port(sp *intent.ServicePort, service string) {
	p := &nftPort{ServicePort: sp, service: service, key: sp.Key(), protocol: strings.ToLower(sp.Protocol)}
	outside := sp.NodePort != 0
	var clusterIP netip.Addr
	for _, f := range sp.Frontends {
		switch f.Kind {
		case intent.ClusterIP:
			clusterIP = f.Addr
		case intent.ExternalIP:
			outside = true
		case intent.LoadBalancer:
			outside = true
			p.balancers = append(p.balancers, f.Addr)
		}
	}
	w.entries(p)
	serves := len(sp.Usable) > 0
	sticky := sp.AffinitySeconds > 0
	if w.Minor <= 35 || sticky {
		for _, i := range reachedHere(sp) {
			w.endpoint(p, &sp.Endpoints[i])
		}
	}
	inside := serves && (!sp.InternalLocal || len(sp.Local) > 0)
	for _, policy := range []struct {
		name  string
		list  []int
		local bool
	}{
		{dataplane.NFTServiceName(p.key, sp.Protocol), sp.Cluster, false},
		{dataplane.NFTLocalName(p.key, sp.Protocol), sp.Local, true},
	} {
		if len(policy.list) == 0 {
			continue
		}
		c := w.table.add(&NFTChain{Name: policy.name, Service: service})
		if policy.local == sp.InternalLocal && inside {
			c.Rules = append(c.Rules, w.masqueradeInside(p, clusterIP)...)
		}
		c.Rules = append(c.Rules, w.choice(p, policy.list)...)
	}
	if serves && outside {
		w.table.add(&NFTChain{Name: dataplane.NFTExternalName(p.key, sp.Protocol), Service: service, Rules: w.external(p)})
	}
	if w.Minor >= 30 && len(p.balancers) > 0 && len(sp.SourceRanges) > 0 {
		w.table.add(&NFTChain{Name: dataplane.NFTFirewallName(p.key, sp.Protocol), Service: service, Rules: []string{w.firewall(p)}})
	}
}

// masqueradeInside is the rule, up to 1.35 one for each Service, by which packets to its cluster IP are masqueraded that
// do not come from pods.
func (w *nftPortWriter) masqueradeInside(p *nftPort, clusterIP netip.Addr) []string {
	if w.Minor >= 36 || !clusterIP.IsValid() || !w.masqueradeAll && w.notLocal == "" {
		return nil
	}
	rule := w.ip + " daddr " + clusterIP.String()
	if w.Minor <= 33 {
		rule += " " + p.protocol + " dport " + strconv.Itoa(p.Port)
	}
	if !w.masqueradeAll {
		rule += " " + w.notLocal
	}
	return []string{rule + " " + w.masquerade()}
}

// choice are the rules that choose among endpoints.
func (w *nftPortWriter) choice(p *nftPort, list []int) []string {
	var rules []string
	var b strings.Builder
	direct := w.Minor >= 36 && p.AffinitySeconds == 0
	if direct {
		b.WriteString("meta l4proto " + p.protocol + " dnat " + w.ip + " to ")
	}
	b.WriteString("numgen random mod " + strconv.Itoa(len(list)))
	if direct {
		b.WriteString(" map { ")
	} else {
		b.WriteString(" vmap { ")
	}
	for n, i := range list {
		if n > 0 {
			b.WriteString(", ")
		}
		e := &p.Endpoints[i]
		b.WriteString(strconv.Itoa(n) + " : ")
		if direct {
			b.WriteString(e.Addr.String() + " . " + strconv.Itoa(e.Port))
			continue
		}
		name := dataplane.NFTEndpointName(p.key, p.Protocol, e.String())
		b.WriteString("goto " + name)
		if p.AffinitySeconds > 0 {
			rules = append(rules, w.ip+" saddr @"+dataplane.NFTAffinityName(p.key, p.Protocol, e.String())+" goto "+name)
		}
	}
	b.WriteString(" }")
	return append(rules, b.String())
}

// endpoint writes the chain of an endpoint, and the set of its clients.
func (w *nftPortWriter) endpoint(p *nftPort, e *intent.Endpoint) {
	c := w.table.add(&NFTChain{Name: dataplane.NFTEndpointName(p.key, p.Protocol, e.String()), Service: p.service})
	if w.Minor <= 35 {
		c.Rules = append(c.Rules, w.ip+" saddr "+e.Addr.String()+" "+w.masquerade())
	}
	if p.AffinitySeconds > 0 {
		name := dataplane.NFTAffinityName(p.key, p.Protocol, e.String())
		w.table.addSet(&NFTSet{Service: p.service, Set: &nft.Set{
			Name: name, Key: []nft.Field{{Type: w.addr, Size: w.bits / 8}}, Size: affinitySize,
			Dynamic: true, HasTimeout: true, Timeout: time.Duration(p.AffinitySeconds) * time.Second,
		}})
		c.Rules = append(c.Rules, "update @"+name+" { "+w.ip+" saddr }")
	}
	c.Rules = append(c.Rules, "meta l4proto "+p.protocol+" dnat to "+e.String())
}

// external are the rules of what external addresses lead to.
func (w *nftPortWriter) external(p *nftPort) []string {
	to := "goto " + dataplane.NFTServiceName(p.key, p.Protocol)
	if !p.ExternalLocal {
		mark := w.masquerade()
		if w.Minor >= 36 {
			mark += ` comment "masquerade"`
		}
		return []string{mark, to}
	}
	var rules []string
	if w.local != "" {
		rules = append(rules, w.local+" "+to+` comment "short-circuit pod traffic"`)
	}
	rules = append(rules,
		"fib saddr type local "+w.masquerade()+` comment "masquerade local traffic"`,
		"fib saddr type local "+to+` comment "short-circuit local traffic"`)
	if len(p.Local) > 0 {
		rules = append(rules, "goto "+dataplane.NFTLocalName(p.key, p.Protocol))
	}
	return rules
}

// firewall is the rule that drops clients outside of the source ranges. Where the node is inside of them, so are the
// addresses of the load balancer: the node's own packets to them carry them as source.
func (w *nftPortWriter) firewall(p *nftPort) string {
	ranges := slices.Clone(p.SourceRanges)
	if admitsNode(p) {
		for _, a := range p.balancers {
			ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return w.ip + " saddr != " + w.rangesText(ranges) + " drop"
}

func admitsNode(p *nftPort) bool {
	return p.NodeIP.IsValid() && slices.ContainsFunc(p.SourceRanges, func(r netip.Prefix) bool { return r.Contains(p.NodeIP) })
}

// entries writes the entries of the sets and maps that all Services share.
func (w *nftPortWriter) entries(p *nftPort) {
	comments := w.Minor == 30 // of the firewall's entries
	for _, e := range dataplane.NFTEntries(p.ServicePort, w.proxy) {
		set := w.table.Set(e.Set)
		if set == nil {
			continue
		}
		if e.Set == dataplane.NFTNodePortIPs {
			if set.Open { // else they are there already
				set.put(e.Entry, "")
			}
			continue
		}
		if comments && e.Set == dataplane.NFTFirewallIPs {
			e.Entry.Comment = p.key
		}
		set.put(e.Entry, p.service)
	}
	if w.Minor == 30 {
		for _, f := range p.Frontends {
			if f.Kind == intent.ClusterIP {
				w.table.Set(dataplane.NFTClusterIPs).put(nft.Entry{Start: f.Addr.AsSlice()}, p.service)
			}
		}
	}
	if w.Minor != 29 || len(p.SourceRanges) == 0 {
		return
	}
	proto, port := dataplane.ProtocolNumber(p.Protocol), []byte{byte(p.Port >> 8), byte(p.Port)}
	for _, a := range p.balancers {
		w.table.Set(nftOldFirewallSet).put(nft.Entry{Start: joinParts(a.AsSlice(), []byte{proto}, port), Comment: p.key}, p.service)
		allow := w.table.Set(nftOldAllowSet)
		admit := func(r netip.Prefix, comment string) {
			e := nft.Entry{Start: joinParts(a.AsSlice(), []byte{proto}, port, r.Masked().Addr().AsSlice()), Comment: comment}
			e.End = joinParts(a.AsSlice(), []byte{proto}, port, lastOf(r).AsSlice())
			allow.put(e, p.service)
		}
		for _, r := range p.SourceRanges {
			admit(r, p.key)
		}
		if admitsNode(p) {
			admit(netip.PrefixFrom(a, a.BitLen()), "")
		}
	}
}

// joinParts lays the parts of a key out as sets hold them: each takes a multiple of four bytes.
func joinParts(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

// reachedHere are the endpoints that clients get on this node, under whatever policy.
func reachedHere(sp *intent.ServicePort) []int {
	out := slices.Concat(sp.Cluster, sp.Local)
	slices.Sort(out)
	return slices.Compact(out)
}
