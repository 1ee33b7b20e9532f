package netfilter

import (
	"net/netip"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
)

// Match is one test of a rule. Each match has a file of its own with its data, its parser for the
// save form (-m NAME --option value), its parser for the listing form (`iptables -L`), and its test.
type Match interface {
	// Test says whether p passes, at hook, given what is known of the kernel's other state. It must not
	// change p. A test that cannot be decided from the evidence answers Undecided, never a guess.
	Test(k *Kernel, hook Hook, p *Packet) Answer
}

// Hook is a netfilter hook.
type Hook uint8

// The five hooks of the IP families.
const (
	Prerouting Hook = iota
	Input
	Forward
	Output
	Postrouting
)

// String is the hook's name as iptables spells its built-in chain.
func (h Hook) String() string {
	return [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}[h]
}

// Kernel is the kernel state besides the rules that matches and routing consult. Nil fields were not
// collected.
type Kernel struct {
	// Host has addresses, routes, interfaces, sysctls. Never nil; may know nothing.
	Host *host.Host
	// Sets are the ipsets by name; nil when none were collected.
	Sets map[string]*Set
	// IPVS are the virtual servers; nil when they were not collected, and an empty table where there are none.
	IPVS *ipvs.Table
	// Recent are the lists of -m recent (/proc/net/xt_recent) by name; nil when not collected.
	Recent map[string]*RecentList
	// ClusterRanges are the ranges of pods and the addresses of nodes: the way to them is no PrivateBridge, even
	// where no route tells the interface.
	ClusterRanges []netip.Prefix
	// NewClient is the premise of a question about "a new connection of some client": the client is in no
	// recent list, whatever lists were collected. Answers that rest on it are not undecided.
	NewClient bool
}

// Set is an ipset as far as its members decide a match.
type Set struct {
	Name, Type string
	// Contains says whether the set holds the tuple that the directions select from p.
	Contains func(dirs []Dir, p *Packet) Answer
	// Captured is the set as it was captured, with its entries; nil for one whose entries are not known. See SetsOf.
	Captured *ipset.Set

	member func(name string) *ipset.Set // the other captured sets
}

// RecentList is one list of -m recent: when each address was seen, as ages in seconds at the time of capture.
type RecentList struct {
	Name string
	// Ages by source address in RFC 5952 form, one for each stamp. A negative age is not known: the kernel prints
	// stamps in jiffies, and a file does not say what time it was. Nil: the list is there, its entries are not known.
	Ages map[string][]float64
}

// Recorder is a match that, when its rule's tests all pass, remembers something about the packet: -m
// recent --set and --update. Rules that hold one are run even when they have no target.
type Recorder interface {
	Records(k *Kernel, p *Packet) (RecentUpdate, bool)
}
