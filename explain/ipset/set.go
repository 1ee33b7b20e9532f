// Package ipset holds IP sets as data: the parser of every text that the tool ipset prints, and the question that a
// rule asks of a set, answered as the kernel does (net/netfilter/ipset). It knows nothing of rules: who asks says what
// of the packet each direction selects.
package ipset

import (
	"net/netip"
	"sync/atomic"

	"github.com/svcnet/svcnet/explain/host"
)

// Set is one set.
type Set struct {
	Name string
	// Type is the kernel's name of what the set holds: "hash:ip,port". Empty where the capture does not say.
	Type string
	// Family is 4 or 6: packets of the other one are in no entry. 0 for the types that hold no addresses
	// (bitmap:port, hash:mac, list:set), which take both.
	Family int
	// Header is what the set was made with, as printed behind its type.
	Header string
	// Revision is that of the type, References how many rules and lists use the set; -1 where it is not shown, as in the
	// save form.
	Revision, References int
	// Netmask is applied to addresses before they are looked up; not valid for none.
	Netmask netip.Addr
	// MarkMask is applied to marks before they are looked up.
	MarkMask uint32
	Entries  []Entry
	// Missing says why the capture does not show all entries, empty where it does: an address that is in none of Entries
	// may then be in the set all the same.
	Missing string
	host.Evidence

	parts   []part
	unsure  string // why lookups in this set are not evaluated
	members atomic.Pointer[members]
	firsts  atomic.Pointer[map[netip.Addr][]int]
}

// Entry is one element of a set. What its type does not have is zero.
type Entry struct {
	// Text is the entry as printed, with its options: "10.96.0.1,tcp:80", "10.0.0.0/8 nomatch".
	Text string
	// Line is its line in the set's file.
	Line int
	// Nets are its addresses and networks; two for types like hash:ip,port,ip.
	Nets [2]Range
	// Proto and the ports from Port to LastPort. For ICMP the port is the type, shifted by 8 bits, and the code.
	Proto          uint8
	Port, LastPort uint16
	// Iface is the interface of hash:net,iface: of a bridge port when Physdev is set, the beginning of its name when
	// Wildcard is.
	Iface             string
	Physdev, Wildcard bool
	// MAC is the hardware address, as printed; empty for an entry of bitmap:ip,mac that has none yet.
	MAC  string
	Mark uint32
	// Member is the name of the set in a list:set.
	Member string
	// NoMatch makes the entry an exception: what is in it is not in the set.
	NoMatch bool
	// Timeout is how many seconds the entry had left; HasTimeout is false for an entry that stays. 0 stays as well.
	Timeout    uint32
	HasTimeout bool
	// Packets and Bytes are the entry's counters; HasCounters tells whether there are any.
	Packets, Bytes uint64
	HasCounters    bool
	Comment        string
}

// Range is a network, or all addresses from that of Net to Last where an entry was written by hand as a range.
type Range struct {
	Net  netip.Prefix
	Last netip.Addr
}

// At is where an entry was read.
func (s *Set) At(e *Entry) host.Evidence {
	return host.Evidence{File: s.File, Line: e.Line, Text: "add " + s.Name + " " + e.Text}
}

// Dimensions are how many directions a rule has to give: with fewer it never matches (ip_set_test). 0 where the type is
// not known.
func (s *Set) Dimensions() int {
	return len(s.parts)
}

// part is one part of an entry.
type part uint8

const (
	partIP part = iota
	partNet
	partPort
	partIface
	partMAC
	partMark
	partSet
)

// knownType is a type with the parts of its entries.
type knownType struct {
	name  string
	parts []part
	// family is that of all sets of the type; -1 where the set says it.
	family int
}

// types are those of Linux up to 6.18.
var types = []knownType{
	{"bitmap:ip", []part{partIP}, 4},
	{"bitmap:ip,mac", []part{partIP, partMAC}, 4},
	{"bitmap:port", []part{partPort}, 0},
	{"hash:ip", []part{partIP}, -1},
	{"hash:ip,mac", []part{partIP, partMAC}, -1},
	{"hash:ip,mark", []part{partIP, partMark}, -1},
	{"hash:ip,port", []part{partIP, partPort}, -1},
	{"hash:ip,port,ip", []part{partIP, partPort, partIP}, -1},
	{"hash:ip,port,net", []part{partIP, partPort, partNet}, -1},
	{"hash:mac", []part{partMAC}, 0},
	{"hash:net", []part{partNet}, -1},
	{"hash:net,iface", []part{partNet, partIface}, -1},
	{"hash:net,net", []part{partNet, partNet}, -1},
	{"hash:net,port", []part{partNet, partPort}, -1},
	{"hash:net,port,net", []part{partNet, partPort, partNet}, -1},
	{"list:set", []part{partSet}, 0},
}

func typeOf(name string) *knownType {
	for i := range types {
		if types[i].name == name {
			return &types[i]
		}
	}
	return nil
}
