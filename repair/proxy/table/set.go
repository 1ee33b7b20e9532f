package table

import (
	"strconv"

	"github.com/svcnet/svcnet/explain/nft"
)

// Set names one of the table's sets or maps: its kind, and for those that are there once for each number of backends that
// number.
type Set struct {
	Kind SetKind
	Size int
}

// SetKind is a kind of set.
type SetKind uint8

// The kinds. "Frontends" are keys of address, protocol and port, "node ports" keys of protocol and port.
const (
	clusterIPs            SetKind = iota // addresses of Services within the cluster
	serviceIPs                           // frontends that are served or refused here
	serviceNodePorts                     // node ports
	externalIPs                          // frontends from outside whose policy is Cluster: masqueraded
	externalLocalIPs                     // those whose policy is Local
	localNodePorts                       // node ports whose policy is Local
	anySize                              // frontends with so many backends anywhere
	hereSize                             // frontends with so many backends on this node
	anyNodePortSize                      // node ports with so many backends anywhere
	hereNodePortSize                     // node ports with so many backends on this node
	endpoints                            // backends anywhere, by frontend and number
	hereEndpoints                        // backends on this node
	nodePortEndpoints                    // the same by node port
	hereNodePortEndpoints                //
	untranslated                         // frontends that nobody may translate, with themselves
	refusedIPs                           // frontends without backends anywhere
	droppedIPs                           // frontends whose backends are all elsewhere
	refusedNodePorts                     //
	droppedNodePorts                     //
	firewallIPs                          // frontends that only some sources may use
	affinityIPs                          // frontends whose clients keep their backend
	affinityNodePorts                    //
	hairpins                             // backends that may reach themselves
	nodePortIPs                          // addresses of the node that take node ports
	setKinds
)

// form is what a kind of set is like.
type form struct {
	name string
	// address, ports and slot are the parts of its keys; twice is set for address, address, protocol, port.
	address, ports, slot, twice bool
	// isMap has backends as data, isVerdict chains.
	isMap, isVerdict bool
	// shared elements are of several service ports, and there as long as one of them wants them.
	shared bool
	// level says when an element that nothing wants any more is deleted: a packet that is under way has to find what
	// follows from what it found already. 0: at once; 1, 2: that many transactions later.
	level int
}

var forms = [setKinds]form{
	clusterIPs:            {name: "cluster-ips", address: true, shared: true},
	serviceIPs:            {name: "service-ips", address: true, ports: true},
	serviceNodePorts:      {name: "service-nodeports", ports: true},
	externalIPs:           {name: "external-ips", address: true, ports: true},
	externalLocalIPs:      {name: "external-local-ips", address: true, ports: true},
	localNodePorts:        {name: "local-nodeports", ports: true},
	anySize:               {name: "any", address: true, ports: true, level: 1},
	hereSize:              {name: "here", address: true, ports: true, level: 1},
	anyNodePortSize:       {name: "nodeport-any", ports: true, level: 1},
	hereNodePortSize:      {name: "nodeport-here", ports: true, level: 1},
	endpoints:             {name: "endpoints", address: true, ports: true, slot: true, isMap: true, level: 2},
	hereEndpoints:         {name: "endpoints-here", address: true, ports: true, slot: true, isMap: true, level: 2},
	nodePortEndpoints:     {name: "nodeport-endpoints", ports: true, slot: true, isMap: true, level: 2},
	hereNodePortEndpoints: {name: "nodeport-endpoints-here", ports: true, slot: true, isMap: true, level: 2},
	untranslated:          {name: "untranslated", address: true, ports: true, isMap: true},
	refusedIPs:            {name: "refused-ips", address: true, ports: true},
	droppedIPs:            {name: "dropped-ips", address: true, ports: true},
	refusedNodePorts:      {name: "refused-nodeports", ports: true},
	droppedNodePorts:      {name: "dropped-nodeports", ports: true},
	firewallIPs:           {name: "firewall-ips", address: true, ports: true, isVerdict: true},
	affinityIPs:           {name: "affinity-ips", address: true, ports: true, isVerdict: true},
	affinityNodePorts:     {name: "affinity-nodeports", ports: true, isVerdict: true},
	hairpins:              {name: "hairpin-connections", twice: true, ports: true, shared: true},
	nodePortIPs:           {name: "nodeport-ips", address: true},
}

// sized tells the kinds that are there once for each number of backends.
func (k SetKind) sized() bool {
	switch k {
	case anySize, hereSize, anyNodePortSize, hereNodePortSize:
		return true
	}
	return false
}

// Name is that in the table; for a sized one also that of its chain.
func (s Set) Name() string {
	if s.Kind.sized() {
		return forms[s.Kind].name + "-" + strconv.Itoa(s.Size)
	}
	return forms[s.Kind].name
}

// key is the expression of the set's key: what of a packet is looked up.
func (k SetKind) key(family nft.Family, size int) nft.Expr {
	f := &forms[k]
	var parts []nft.Expr
	if f.twice {
		parts = append(parts, &nft.Payload{Protocol: string(family), Field: "saddr"}, &nft.Payload{Protocol: string(family), Field: "daddr"})
	}
	if f.address {
		parts = append(parts, &nft.Payload{Protocol: string(family), Field: "daddr"})
	}
	if f.ports {
		parts = append(parts, &nft.Meta{Key: "l4proto"}, &nft.Payload{Protocol: "th", Field: "dport"})
	}
	if f.slot {
		parts = append(parts, &nft.Numgen{Mode: "random", Mod: uint32(size)})
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &nft.Concat{Parts: parts}
}

// declare adds the set to a table.
func (s Set) declare(t *nft.Table) *nft.Set {
	f := &forms[s.Kind]
	out := t.AddSet(s.Name())
	address := nft.Field{Type: addressType(t.Family), Size: addressType(t.Family).Size()}
	port := nft.Field{Type: nft.TypeService, Size: 2}
	if f.twice {
		out.Key = append(out.Key, address, address)
	}
	if f.address {
		out.Key = append(out.Key, address)
	}
	if f.ports {
		out.Key = append(out.Key, nft.Field{Type: nft.TypeProto, Size: 1}, port)
	}
	out.IsMap = f.isMap || f.isVerdict
	if f.slot {
		// A number has no type of its own that nft would take: the map is declared by expressions. The number of values
		// does not matter there.
		out.Key = append(out.Key, nft.Field{Type: nft.TypeInteger, Size: 4})
		out.TypeofKey = s.Kind.key(t.Family, 65536)
		out.TypeofData = &nft.Concat{Parts: []nft.Expr{
			&nft.Payload{Protocol: string(t.Family), Field: "daddr"}, &nft.Payload{Protocol: "th", Field: "dport"},
		}}
	}
	if f.isMap {
		out.Data = []nft.Field{address, port}
	}
	return out
}
