package nft

import (
	"sync"
	"time"
)

// Family is the family of a table, as nft spells it. A table of inet sees packets of both IP families.
type Family string

// The families (include/uapi/linux/netfilter.h, NFPROTO_*).
const (
	IP     Family = "ip"
	IP6    Family = "ip6"
	Inet   Family = "inet"
	ARP    Family = "arp"
	Bridge Family = "bridge"
	Netdev Family = "netdev"
)

// Ruleset is what one capture says.
type Ruleset struct {
	// Tables in order of appearance, each family and name at most once.
	Tables []*Table
	// File names the capture for evidence lines.
	File string
	// Version is that of the nft which printed the capture ("1.0.6"), empty where nothing says.
	Version string
	// Problems are the parts that could not be read, in order. Where a rule has one, the rule holds an Unreadable too.
	Problems []Problem
}

// Problem is a part of a capture that could not be read.
type Problem struct {
	// Line is 1-based; 0 for captures that have no lines.
	Line int
	Text string
	Why  string
}

// Table is one table.
type Table struct {
	Family Family
	Name   string
	// Dormant tables are there and do nothing. Owner is set while a program keeps the table for itself.
	Dormant, Owner bool
	// Unclear is set where the table has flags that could not be read: it may be dormant.
	Unclear bool
	Comment string
	Handle  uint64
	Line    int
	Chains  []*Chain
	// Sets are the named sets and maps; anonymous ones stand in the rules that use them.
	Sets []*Set
	// Objects are named counters, quotas, limits, helpers and the like.
	Objects    []Object
	Flowtables []Flowtable

	chains map[string]*Chain
	sets   map[string]*Set
	once   sync.Once
	bases  []*Chain
	// updated are the sets that rules change.
	updated map[string]bool
}

// BaseChains are the chains that packets come to without a jump, in order. The table must not change any more.
func (t *Table) BaseChains() []*Chain {
	t.once.Do(t.survey)
	return t.bases
}

// Updates tells whether rules of the table change a set. The table must not change any more.
func (t *Table) Updates(set string) bool {
	t.once.Do(t.survey)
	return t.updated[set]
}

func (t *Table) survey() {
	t.updated = make(map[string]bool)
	for _, c := range t.Chains {
		if c.Base != nil {
			t.bases = append(t.bases, c)
		}
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				if u, ok := s.(*SetUpdate); ok {
					t.updated[u.Set] = true
				}
			}
		}
	}
}

// String is the table as nft names it: "ip kube-proxy".
func (t *Table) String() string { return string(t.Family) + " " + t.Name }

// Table is the table of a family and name, nil when there is none.
func (r *Ruleset) Table(f Family, name string) *Table {
	for _, t := range r.Tables {
		if t.Family == f && t.Name == name {
			return t
		}
	}
	return nil
}

// AddTable returns the table of a family and name, adding it when there is none.
func (r *Ruleset) AddTable(f Family, name string) *Table {
	if t := r.Table(f, name); t != nil {
		return t
	}
	t := &Table{Family: f, Name: name}
	r.Tables = append(r.Tables, t)
	return t
}

// Chain is the chain of that name, nil when there is none.
func (t *Table) Chain(name string) *Chain { return t.chains[name] }

// AddChain returns the chain of that name, adding it when there is none.
func (t *Table) AddChain(name string) *Chain {
	if c := t.chains[name]; c != nil {
		return c
	}
	if t.chains == nil {
		t.chains = make(map[string]*Chain)
	}
	c := &Chain{Name: name}
	t.Chains = append(t.Chains, c)
	t.chains[name] = c
	return c
}

// Set is the named set or map of that name, nil when there is none.
func (t *Table) Set(name string) *Set { return t.sets[name] }

// AddSet returns the named set or map of that name, adding it when there is none.
func (t *Table) AddSet(name string) *Set {
	if s := t.sets[name]; s != nil {
		return s
	}
	if t.sets == nil {
		t.sets = make(map[string]*Set)
	}
	s := &Set{Name: name}
	t.Sets = append(t.Sets, s)
	t.sets[name] = s
	return s
}

// Chain is a list of rules.
type Chain struct {
	Name    string
	Comment string
	Handle  uint64
	Line    int
	// Base is nil for a chain that only rules lead to.
	Base *Base
	// Inline is set for a chain that a rule holds in braces ("jump { … }"): it is printed there and nowhere else.
	Inline bool
	Rules  []*Rule
}

// Base says where a base chain hooks in.
type Base struct {
	// Type is filter, nat or route; Hook is prerouting, input, forward, output, postrouting, ingress or egress.
	Type, Hook string
	// Priority as a number, the lowest first. Priorities with the same number run in an order that nothing prints: the
	// one registered last is first.
	Priority int
	// Policy is accept or drop; accept where nothing is said.
	Policy string
	// Devices of chains at ingress and egress.
	Devices []string
	// Offload is set where a network card is asked to run the chain ("flags offload").
	Offload bool
}

// Rule is one rule: its statements run one after the other until a match does not hold or a verdict ends it.
type Rule struct {
	Statements []Statement
	Comment    string
	Handle     uint64
	// Text is the rule as `nft list ruleset` prints it, without counters' values (as "counter"), with the comment.
	Text string
	Line int
	// Packets and Bytes are those of the rule's first anonymous counter; HasCounter is false where it has none.
	Packets, Bytes uint64
	HasCounter     bool
}

// Set is a set or, with Data, a map.
type Set struct {
	// Name is empty for an anonymous one.
	Name    string
	Comment string
	Handle  uint64
	Line    int
	// Key are the parts of a key, one unless it is a concatenation.
	Key []Field
	// IsMap is set for maps, verdict maps included; Data are the parts of what they map to, nil for verdicts. ObjectType
	// is set for maps to named objects ("counter", "quota", "limit", "ct helper"…).
	IsMap      bool
	Data       []Field
	ObjectType string
	// TypeofKey and TypeofData are the expressions that stand in the declaration in place of types ("typeof ip saddr .
	// tcp dport"), nil where it names types.
	TypeofKey, TypeofData Expr
	// DataInterval is set for maps to ranges ("interval ipv4_addr").
	DataInterval bool
	// Meter is set for the set of a rule's "meter NAME { … }".
	Meter bool
	// Interval sets hold ranges; Dynamic ones are changed by rules; HasTimeout is set where entries may expire.
	Constant, Interval, Dynamic, HasTimeout, AutoMerge bool
	Timeout, GCInterval                                time.Duration
	// Size is the most entries that it may hold; 0: no limit.
	Size   int
	Policy string // performance (when empty) or memory
	// Entries in the order of the capture.
	Entries []Entry
	// Incomplete is set where the capture has entries that could not be read, or was cut off among them: what is not
	// found may be there.
	Incomplete bool
	// Statements run for each entry that a rule adds ("counter", "limit rate 1/second").
	Statements []Statement

	index lookup // built at the first question
}

// Field is one part of a key or of mapped data.
type Field struct {
	Type Type
	// Size in bytes of the value itself. In keys of several parts each takes a multiple of four bytes, zeros behind
	// the value (net/netfilter/nf_tables_api.c, registers of 32 bits).
	Size int
}

// Width is the room that the field takes in a key of several parts.
func (f Field) Width() int { return (f.Size + 3) &^ 3 }

// Entry is one entry of a set or map.
type Entry struct {
	// CatchAll is the entry "*", which stands for every key that no other entry has; it has no Start.
	CatchAll bool
	// Start and End are the first and last key; End is nil for a single key. A key of one field is as long as the field;
	// one of several is the fields one after the other, each with its Width. Of a key of several parts every part lies
	// between those of Start and End, each for itself.
	Start, End []byte
	// Data is what a map has for the key, laid out as keys are; Verdict that of a verdict map; Object the name of a
	// named object.
	Data    []byte
	DataEnd []byte // of a map to ranges, else nil
	Verdict *Verdict
	Object  string
	Comment string
	// Timeout and Expires are how long it lives and has yet to live; 0: without end. Of entries added by rules both
	// may be set though the set's own timeout is the same.
	Timeout, Expires time.Duration
	// Statements are those of the entry, such as its counter.
	Statements []Statement
}

// Object is a named object of a table: kind is counter, quota, limit, "ct helper", "ct timeout", "ct expectation",
// secmark, synproxy or tunnel; Text is its body as printed, lines without their indentation.
type Object struct {
	Kind, Name, Text string
	Comment          string
	Handle           uint64
	Line             int
}

// Flowtable is a flowtable: packets of flows that it has taken over meet no rules any more.
type Flowtable struct {
	Name, Hook string
	Priority   int
	Devices    []string
	// Offload is set where network cards are asked to take flows over, Counter where flows are counted.
	Offload, Counter bool
	Handle           uint64
	Line             int
}
