package nft

// Type is a data type, by nft's name (`nft describe`). It says how a value is printed and which words stand for
// numbers; how wide it is says Field.Size or the constant itself.
type Type string

// The types that have a meaning of their own here. Others print as numbers.
const (
	TypeInteger   Type = "integer"
	TypeString    Type = "string"
	TypeIPv4      Type = "ipv4_addr"
	TypeIPv6      Type = "ipv6_addr"
	TypeEther     Type = "ether_addr"
	TypeEtherType Type = "ether_type"
	TypeProto     Type = "inet_proto"
	TypeService   Type = "inet_service"
	TypeMark      Type = "mark"
	TypeIfname    Type = "ifname"
	// TypeIfindex is an interface by its index, 4 bytes. Listings have the name in its place: a value is then 16 bytes,
	// the name with zeros behind it or, of an interface that nft did not find, 12 zeros and the index.
	TypeIfindex    Type = "iface_index"
	TypeIftype     Type = "iface_type"
	TypeNFProto    Type = "nf_proto"
	TypePktType    Type = "pkt_type"
	TypeUID        Type = "uid"
	TypeGID        Type = "gid"
	TypeRealm      Type = "realm"
	TypeClassID    Type = "classid"
	TypeDevgroup   Type = "devgroup"
	TypeFibType    Type = "fib_addrtype"
	TypeBoolean    Type = "boolean"
	TypeCTState    Type = "ct_state"
	TypeCTStatus   Type = "ct_status"
	TypeCTDir      Type = "ct_dir"
	TypeCTLabel    Type = "ct_label"
	TypeCTEvent    Type = "ct_event"
	TypeICMPType   Type = "icmp_type"
	TypeICMPCode   Type = "icmp_code"
	TypeICMPv6Type Type = "icmpv6_type"
	TypeICMPv6Code Type = "icmpv6_code"
	TypeICMPXCode  Type = "icmpx_code"
	TypeTCPFlag    Type = "tcp_flag"
	TypeDSCP       Type = "dscp"
	TypeECN        Type = "ecn"
	TypeTime       Type = "time"
	TypeHour       Type = "hour"
	TypeDay        Type = "day"
	TypeCGroupV2   Type = "cgroupsv2"
	TypeVerdict    Type = "verdict"
)
