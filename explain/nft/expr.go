package nft

// Expr is an expression: something that has a value for a packet, or a constant.
type Expr interface{ expr() }

// Payload is a field of the packet's headers. Protocol and Field are nft's words ("ip", "daddr"; "th", "dport";
// "tcp", "dport"; "icmp", "type"). Where the bytes are no field that is known by name Protocol is "@ll", "@nh", "@th"
// or "@ih" and Offset and Bits say which.
type Payload struct {
	Protocol, Field string
	Offset, Bits    int
}

// Meta is "meta KEY", with nft's key: mark, iifname, oifname, iif, oif, l4proto, nfproto, protocol, pkttype, skuid,
// skgid, iiftype, oiftype, cgroup, cpu, length, priority, rtclassid, iifgroup, oifgroup, ibrname, obrname, time, hour,
// day, secpath, sdif, sdifname, random, broute, ibrpvid, ibrvproto, iifkind, oifkind.
type Meta struct{ Key string }

// CT is "ct [original|reply] [ip|ip6] KEY": state, status, mark, direction, zone, expiration, helper, l3proto,
// protocol, saddr, daddr, proto-src, proto-dst, packets, bytes, avgpkt, label, id, event, count, secmark.
type CT struct {
	Key string
	Dir string // original, reply or empty
	// Family is ip or ip6 for addresses.
	Family Family
}

// Fib is "fib FLAGS RESULT": an answer of the routing table about the packet.
type Fib struct {
	Flags  []string // saddr, daddr, mark, iif, oif in nft's order
	Result string   // type, oif, oifname; Exists is set for "oif exists" and "oif missing" (compared with a boolean)
	Exists bool
}

// Numgen is "numgen random|inc mod N offset M".
type Numgen struct {
	Mode        string
	Mod, Offset uint32
}

// Hash is "jhash EXPR mod N seed S offset M" or, without Of, "symhash mod N offset M".
type Hash struct {
	Of          Expr
	Mod, Offset uint32
	Seed        uint32
	HasSeed     bool
}

// Socket is "socket KEY": transparent, mark, wildcard, "cgroupv2 level N".
type Socket struct {
	Key   string
	Level int
}

// RT is "rt KEY": classid, "ip nexthop", "ip6 nexthop", mtu, ipsec.
type RT struct{ Key string }

// ExtHdr is a field or the presence of an extension header or option: "exthdr hbh exists", "tcp option maxseg size",
// "ip option rr exists".
type ExtHdr struct {
	Kind   string // exthdr, "tcp option", "ip option", "sctp chunk"
	Name   string
	Field  string
	Exists bool
}

// Other is an expression that is not evaluated; Text is how it is printed.
type Other struct {
	Text string
	Field
}

// Const is one value: Data in network order, as wide as Type says or as what it is compared with.
type Const struct {
	Type Type
	Data []byte
}

// Range is "LO-HI", both ends included.
type Range struct{ Lo, Hi *Const }

// Prefix is "ADDRESS/BITS", or "name*" of an interface (Bits counts the bits of the beginning).
type Prefix struct {
	Value *Const
	Bits  int
}

// Concat is "A . B".
type Concat struct{ Parts []Expr }

// Binary is "LEFT OP RIGHT": &, |, ^, <<, >>.
type Binary struct {
	Op          string
	Left, Right Expr
}

// MapExpr is "KEY map @name", "KEY map { … }".
type MapExpr struct {
	Key Expr
	Map Expr // SetRef or SetLit
}

// SetRef is "@name", a named set or map of the same table.
type SetRef struct{ Name string }

// SetLit is an anonymous set or map, "{ … }".
type SetLit struct{ *Set }

func (*Payload) expr() {}
func (*Meta) expr()    {}
func (*CT) expr()      {}
func (*Fib) expr()     {}
func (*Numgen) expr()  {}
func (*Hash) expr()    {}
func (*Socket) expr()  {}
func (*RT) expr()      {}
func (*ExtHdr) expr()  {}
func (*Other) expr()   {}
func (*Const) expr()   {}
func (*Range) expr()   {}
func (*Prefix) expr()  {}
func (*Concat) expr()  {}
func (*Binary) expr()  {}
func (*MapExpr) expr() {}
func (SetRef) expr()   {}
func (SetLit) expr()   {}
