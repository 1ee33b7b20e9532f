package nft

// protocol is what stands at a layer of a packet as far as a rule has found out: a header whose fields have names.
type protocol struct {
	name  string
	layer protocolLayer
	// id is nft's number in the notes of a set (enum proto_desc_id, include/proto.h), 0 for none.
	id int
	// next is the index of the field that names the protocol above, 0 for none; bits is how long a header is that
	// others of the same layer follow.
	next, bits int
	// fields in nft's order, by which the notes of a set name them; the first is always empty.
	fields []protocolField
}

type protocolField struct {
	headerField
	// message is the type of ICMP message that has the field; 0: all have it.
	message byte
}

// protocolLayer is a place in a packet that headers begin at: NFT_PAYLOAD_*_HEADER, one more. The order matters: what
// tells which header stands at a layer is kept one layer further up.
type protocolLayer int

const (
	noLayer protocolLayer = iota
	atLink
	atNetwork
	atTransport
	atInner
	layers
)

// word is nft's word for bytes of a layer that are no field that it knows.
func (l protocolLayer) word() string {
	return [...]string{"@", "@ll", "@nh", "@th", "@ih"}[l]
}

// protocols is every protocol that rules can find out about.
type protocols struct {
	ether, vlan, arp, ip, ip6, icmp, icmp6, ah, comp *protocol
	// transports by protocol number, those above IPv4 and IPv6 alike.
	transports map[uint32]*protocol
	// th is any transport with ports; unknown is one without a name.
	th, unknown *protocol
	// inet and netdev stand for the networks of their tables, service for every transport.
	inet, netdev, service *protocol
	byID                  map[uint32]*protocol
}

// protocolIDs are nft's numbers of protocols, and the field of each that names the protocol above.
var protocolIDs = []struct {
	name     string
	id       int
	next     string
	bits     int
	ipNumber uint32 // IPPROTO_*
}{
	{name: "ah", id: 1, next: "nexthdr", ipNumber: 51},
	{name: "esp", id: 2, ipNumber: 50},
	{name: "comp", id: 3, next: "nexthdr", ipNumber: 108},
	{name: "icmp", id: 4, next: "type"},
	{name: "igmp", id: 5},
	{name: "udp", id: 6, ipNumber: 17},
	{name: "udplite", id: 7, ipNumber: 136},
	{name: "tcp", id: 8, ipNumber: 6},
	{name: "dccp", id: 9, ipNumber: 33},
	{name: "sctp", id: 10, ipNumber: 132},
	{name: "th", id: 11},
	{name: "ip", id: 12},
	{name: "ip6", id: 13},
	{name: "icmpv6", id: 14, next: "type"},
	{name: "arp", id: 15},
	{name: "vlan", id: 16, next: "type", bits: 32},
	{name: "ether", id: 17, next: "type", bits: 112},
}

// icmpMessages are the types of the messages that a field of ICMP belongs to (RFC 792, RFC 4443, RFC 2710).
var icmpMessages = map[string]map[string]byte{
	"icmp":   {"id": 8, "sequence": 8, "gateway": 5, "mtu": 3},
	"icmpv6": {"parameter-problem": 4, "mtu": 2, "id": 128, "sequence": 128, "max-delay": 130, "taddr": 0, "daddr": 0},
}

// newProtocols makes the table of protocols out of the table of headers.
func newProtocols() *protocols {
	p := &protocols{
		unknown: &protocol{name: "unknown", fields: make([]protocolField, 1)},
		inet:    &protocol{name: "inet", layer: atLink, fields: make([]protocolField, 1)},
		netdev:  &protocol{name: "netdev", layer: atLink, fields: make([]protocolField, 1)},
		service: &protocol{name: "service", layer: atTransport, fields: make([]protocolField, 1)},

		transports: map[uint32]*protocol{},
		byID:       map[uint32]*protocol{},
	}
	for _, d := range protocolIDs {
		h := headerOf(headers, d.name)
		x := &protocol{name: d.name, layer: protocolLayer(h.layer) + atLink, id: d.id, bits: d.bits}
		x.fields = make([]protocolField, 1, 1+len(h.fields))
		fields := h.fields
		if d.name == "igmp" { // "mrt" is the third in nft's order
			fields = []headerField{fields[0], fields[2], fields[1], fields[3]}
		}
		for i, f := range fields {
			x.fields = append(x.fields, protocolField{f, icmpMessages[d.name][f.name]})
			if f.name == d.next {
				x.next = i + 1
			}
		}
		p.byID[uint32(d.id)] = x
		if d.ipNumber != 0 {
			p.transports[d.ipNumber] = x
		}
	}
	p.ether, p.vlan, p.arp, p.ip, p.ip6 = p.byID[17], p.byID[16], p.byID[15], p.byID[12], p.byID[13]
	p.icmp, p.icmp6, p.ah, p.comp, p.th = p.byID[4], p.byID[14], p.byID[1], p.byID[3], p.byID[11]
	return p
}

// above is the protocol that follows in a packet where the lower one names a number, nil where it has no name.
func (p *protocols) above(lower *protocol, number uint32) *protocol {
	switch lower {
	case p.ether, p.vlan, p.netdev:
		switch number { // ETH_P_*
		case 0x0800:
			return p.ip
		case 0x0806:
			return p.arp
		case 0x86dd:
			return p.ip6
		case 0x8100, 0x88a8:
			return p.vlan
		}
	case p.inet:
		switch number {
		case nfprotoIPv4:
			return p.ip
		case nfprotoIPv6:
			return p.ip6
		}
	case p.ip, p.ip6, p.service:
		switch number { // IPPROTO_*
		case 1:
			return p.icmp
		case 2:
			return p.byID[5]
		case 58:
			return p.icmp6
		}
		return p.transports[number]
	case p.ah, p.comp:
		return p.transports[number]
	}
	return nil
}

// namesProtocol tells the fields that say which protocol stands above.
func (p *protocols) namesProtocol(x *protocol, field int) bool {
	switch name := x.fields[field].name; {
	case field == 0:
		return false
	case field == x.next:
		return true
	case x == p.ip:
		return name == "protocol"
	case x == p.ip6:
		return name == "nexthdr"
	}
	return false
}

// payload is a field as an expression.
func (x *protocol) payload(field int) *Payload {
	f := &x.fields[field]
	return &Payload{Protocol: x.name, Field: f.name, Offset: f.offset, Bits: f.bits}
}
