package dataplane

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// The tables of svcnet's own proxy keep a service port in elements of sets and maps that all share (repair/proxy/table):
// which sets a frontend is in is its shape, and which backends the maps have for it.

// fallbackTable is one of them, with its sets by what their keys are.
type fallbackTable struct {
	family netfilter.Family
	table  *nft.Table
	// ofFrontends have keys of address, protocol and port, ofNodePorts of protocol and port.
	ofFrontends, ofNodePorts []*nft.Set
	// slots are the maps that a sized set of that kind leads to ("any-3": endpoints).
	slots map[string]*nft.Set
}

// fallbackBackends are the maps of backends, by the kind of the sets that lead to them.
var fallbackBackends = map[string]string{
	"any": "endpoints", "here": "endpoints-here", "nodeport-any": "nodeport-endpoints", "nodeport-here": "nodeport-endpoints-here",
}

// FallbackSet tells the sets of svcnet's own tables that hold elements of single service ports.
func FallbackSet(name string) bool { return name != NFTNodePortIPs }

// newFallbackTable sorts the sets of a table. It notes what packets meet after their translation too.
func (s *nftShapes) newFallbackTable(t *nft.Table) fallbackTable {
	f := fallbackTable{family: netfilter.IPv4, table: t, slots: make(map[string]*nft.Set)}
	if t.Family == nft.IP6 {
		f.family = netfilter.IPv6
	}
	for kind, name := range fallbackBackends {
		f.slots[kind] = t.Set(name)
	}
	for _, set := range t.Sets {
		if _, _, _, own := ServicePortOfNFT(set.Name); own || set.Name == NFTNodePortIPs {
			continue
		}
		last := nft.Type("")
		if n := len(set.Key); n > 0 {
			last = set.Key[n-1].Type
		}
		switch {
		case last == nft.TypeInteger: // of backends
		case len(set.Key) == 3:
			f.ofFrontends = append(f.ofFrontends, set)
		case len(set.Key) == 2:
			f.ofNodePorts = append(f.ofNodePorts, set)
		}
		switch set.Name {
		case "cluster-ips":
			for i := range set.Entries {
				if a, ok := netip.AddrFromSlice(set.Entries[i].Start); ok {
					s.addrs[a] = true
				}
			}
		case "refused-ips", "dropped-ips", "refused-nodeports", "dropped-nodeports":
			for i := range set.Entries {
				if addr, proto, port, ok := EntryKey(set, &set.Entries[i]); ok && addr.IsValid() {
					s.addrs[addr] = true
				} else if ok {
					s.ports[protoPort{proto, port}] = true
				}
			}
		}
	}
	return f
}

// fallback writes what the table of svcnet's own proxy has of a service port.
func (w *nftWriter) fallback(f *fallbackTable, sp *intent.ServicePort, proto uint8) {
	for _, front := range sp.Frontends {
		if front.Kind == intent.HealthCheck {
			continue
		}
		port := []byte{byte(front.Port >> 8), byte(front.Port)}
		address := front.Addr.AsSlice()
		whole := join([][]byte{address, {proto}, port})
		w.out = append(w.out, '\n', 'F')
		if set := f.table.Set("cluster-ips"); set != nil && set.Find(address) != nil {
			w.out = append(w.out, '+')
		}
		for _, set := range f.ofFrontends {
			w.member(f, set, whole, front)
		}
		if front.Kind != intent.NodePort {
			continue
		}
		key := join([][]byte{{proto}, port})
		for _, set := range f.ofNodePorts {
			w.member(f, set, key, front)
		}
	}
	for _, i := range w.numbers.All() {
		w.hairpin(i, proto)
	}
}

// member writes whether a frontend is in a set, and where that leads.
func (w *nftWriter) member(f *fallbackTable, set *nft.Set, key []byte, front intent.Frontend) {
	e := set.Find(key)
	if e == nil {
		return
	}
	w.out = append(append(w.out, '|'), set.Name...)
	switch {
	case e.Verdict != nil:
		w.out = append(append(append(w.out, ' '), e.Verdict.Kind...), ' ')
		w.word(e.Verdict.Chain, front)
		return
	case e.Data != nil:
		if string(e.Data) == string(join([][]byte{front.Addr.AsSlice(), {byte(front.Port >> 8), byte(front.Port)}})) {
			w.out = append(w.out, '=')
		} else {
			w.out = append(w.out, e.Data...)
		}
		return
	}
	at := strings.LastIndexByte(set.Name, '-')
	if at < 0 {
		return
	}
	backends := f.slots[set.Name[:at]]
	size, err := strconv.Atoi(set.Name[at+1:])
	if err != nil || backends == nil || size > len(backends.Entries) {
		return
	}
	for i := range size {
		w.out = append(w.out, ' ')
		b := backends.Find(binary.BigEndian.AppendUint32(key[:len(key):len(key)], uint32(i)))
		if b == nil {
			w.out = append(w.out, '-')
			continue
		}
		w.endpoint(b.Data)
	}
}

// endpoint writes an address and port as which endpoint of the port it is.
func (w *nftWriter) endpoint(data []byte) {
	for i := range w.port.Endpoints {
		e := &w.port.Endpoints[i]
		if string(data) == string(join([][]byte{e.Addr.AsSlice(), {byte(e.Port >> 8), byte(e.Port)}})) {
			w.out = append(append(w.out, 'E'), strconv.Itoa(w.numbers.Number(i))...)
			return
		}
	}
	w.out = append(w.out, data...)
}
