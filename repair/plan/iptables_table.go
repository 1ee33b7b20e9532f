package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// kindIPTables is the kind of steps that change tables of iptables.
const kindIPTables = "iptables"

// xtRule is a rule of a chain. Two rules with the same text are two.
type xtRule struct{ text string }

// xtChain is a chain as it is at some point of a plan.
type xtChain struct {
	there bool
	// policy is that of a built-in chain, empty for others.
	policy string
	rules  []*xtRule
}

// lines are the chain as iptables-save prints it, without counters.
func (c *xtChain) lines(name string) []string {
	out := make([]string, 0, len(c.rules)+1)
	if c.policy != "" {
		out = append(out, ":"+name+" "+c.policy)
	}
	for _, r := range c.rules {
		out = append(out, r.text)
	}
	return out
}

// xtTable is one table of one backend and family, as the steps that are planned so far leave it.
type xtTable struct {
	rules *netfilter.Ruleset
	name  string
	// read is the table as it was read; nil where the node has none of that name.
	read *netfilter.Table
	// now are the chains that were looked at.
	now map[string]*xtChain
}

// chain is a chain as it is now. It is never changed: a change makes another one.
func (t *xtTable) chain(name string) *xtChain {
	if c := t.now[name]; c != nil {
		return c
	}
	c := &xtChain{}
	if t.read != nil {
		if read := t.read.Chain(name); read != nil {
			c = chainAsRead(read)
		}
	}
	if builtIn(t.name, name) && !c.there {
		c.there, c.policy = true, "ACCEPT" // writing to the table makes it
	}
	t.now[name] = c
	return c
}

func chainAsRead(read *netfilter.Chain) *xtChain {
	c := &xtChain{there: true, policy: read.Policy, rules: make([]*xtRule, len(read.Rules))}
	for i := range read.Rules {
		c.rules[i] = &xtRule{read.Rules[i].Text}
	}
	return c
}

// builtIns are the chains of the kernel by table.
var builtIns = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"raw":    {"PREROUTING", "OUTPUT"},
}

func builtIn(table, chain string) bool { return slices.Contains(builtIns[table], chain) }

// title names the table in edits: "nat (IPv4, nft)".
func (t *xtTable) title() string { return xtTitle(t.name, t.rules) }

func xtTitle(table string, rs *netfilter.Ruleset) string {
	return fmt.Sprintf("%s (IPv%d, %s)", table, rs.Family, backendWord(rs.Backend))
}

// backendWord is a backend in words; a capture that does not say which is of whatever iptables is on the node.
func backendWord(b netfilter.Backend) string {
	if b == netfilter.UnknownBackend {
		return "iptables"
	}
	return string(b)
}

// program is what writes the table.
func (t *xtTable) program() []string {
	name := "iptables"
	if t.rules.Family == netfilter.IPv6 {
		name = "ip6tables"
	}
	if t.rules.Backend != netfilter.UnknownBackend {
		name += "-" + string(t.rules.Backend)
	}
	// Both take a wait; that of nft has no lock to wait for.
	return []string{name + "-restore", "-w", "5", "--noflush"}
}

// xtStep is a transaction on one table while it is put together.
type xtStep struct {
	table         *xtTable
	before, after map[string]*xtChain
	edits         []xtEdit
	at            map[xtObject]int
}

// xtObject is what an edit changes.
type xtObject struct {
	chain string
	object
}

// xtEdit is an edit whose lines are read off when the step is complete.
type xtEdit struct {
	chain string
	object
	report.RepairEdit
}

func (t *xtTable) begin() *xtStep {
	return &xtStep{table: t, before: map[string]*xtChain{}, after: map[string]*xtChain{}, at: map[xtObject]int{}}
}

// change changes a chain. The edit says which object it is and why.
func (s *xtStep) change(chain string, to func(c *xtChain) *xtChain) {
	now := s.table.chain(chain)
	if s.before[chain] == nil {
		s.before[chain] = now
	}
	s.after[chain] = to(now)
	s.table.now[chain] = s.after[chain]
}

// edit notes what a change is for. Two reasons for one object are one edit.
func (s *xtStep) edit(chain string, o object, e report.RepairEdit) {
	i, known := s.at[xtObject{chain, o}]
	if !known {
		s.at[xtObject{chain, o}] = len(s.edits)
		s.edits = append(s.edits, xtEdit{chain, o, e})
		return
	}
	have := &s.edits[i]
	if !strings.Contains(have.Reason, e.Reason) {
		have.Reason += "; " + e.Reason
	}
	if have.Service != e.Service {
		have.Service = ""
	}
	for _, id := range e.Findings {
		if !slices.Contains(have.Findings, id) {
			have.Findings = append(have.Findings, id)
		}
	}
}

// done completes the step: its edits with their lines, its transaction and the one that takes it back.
func (s *xtStep) done(step report.RepairStep) report.RepairStep {
	step.Kind = kindIPTables
	step.Do = report.RepairCommand{Command: s.table.program(), Input: s.table.script(s.before, s.after)}
	step.Undo = report.RepairCommand{Command: s.table.program(), Input: s.table.script(s.after, s.before)}
	if strings.Contains(step.Undo.Input, unreadable) {
		step.Undo = report.RepairCommand{}
		step.Risk += "; it cannot be taken back: one of the rules that go is of a kind that this iptables does not read, and cannot be written by it"
	}
	was, will := services{}, services{}
	for _, e := range s.edits {
		e.Table, e.Object = s.table.title(), e.object.name(e.chain)
		var wasThere, willBe bool
		e.Was, wasThere = was.of(xtObject{e.chain, e.object}, s.before[e.chain])
		e.Will, willBe = will.of(xtObject{e.chain, e.object}, s.after[e.chain])
		e.Absent, e.Remove = !wasThere, !willBe
		step.Edits = append(step.Edits, e.RepairEdit)
	}
	return step
}

// unreadable is what iptables-save prints for what it cannot decode.
const unreadable = "[unsupported revision]"

// services are the rules of chains by the Service that they name, gathered once for each chain.
type services map[string]map[string][]string

// of is the content of an object.
func (s services) of(o xtObject, c *xtChain) (lines []string, there bool) {
	if o.service == "" || !c.there {
		return o.object.of(o.chain, c)
	}
	by := s[o.chain]
	if by == nil {
		by = make(map[string][]string)
		for _, r := range c.rules {
			if of := serviceOfRule(r.text); of != "" {
				by[of] = append(by[of], r.text)
			}
		}
		s[o.chain] = by
	}
	if by[o.service] == nil {
		return []string{}, true
	}
	return by[o.service], true
}

// object is a part of a chain that an edit changes.
type object struct {
	// service limits to the rules whose comments name that Service, last to the last rule. Neither: the whole chain.
	service string
	last    bool
	// shared limits to the rules whose comments name no Service.
	shared bool
}

const (
	wholeChain  = "chain "
	rulesOf     = "rules of "
	sharedRules = "rules of no Service"
	lastRule    = "last rule"
	inChain     = " in chain "
)

func (o object) name(chain string) string {
	switch {
	case o.service != "":
		return rulesOf + o.service + inChain + chain
	case o.shared:
		return sharedRules + inChain + chain
	case o.last:
		return lastRule + inChain + chain
	}
	return wholeChain + chain
}

// objectNamed is the reverse of name.
func objectNamed(name string) (chain string, o object, ok bool) {
	if chain, ok := strings.CutPrefix(name, wholeChain); ok {
		return chain, object{}, true
	}
	what, chain, ok := strings.Cut(name, inChain)
	switch {
	case !ok:
		return "", object{}, false
	case what == sharedRules:
		return chain, object{shared: true}, true
	case what == lastRule:
		return chain, object{last: true}, true
	}
	service, ok := strings.CutPrefix(what, rulesOf)
	return chain, object{service: service}, ok
}

// of is the content of the object. Where the chain is not there, nothing in it is.
func (o object) of(name string, c *xtChain) (lines []string, there bool) {
	if !c.there {
		return []string{}, false
	}
	all := c.lines(name)
	switch {
	case o.service != "", o.shared:
		all = slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, ":") || serviceOfRule(l) != o.service })
	case o.last:
		all = all[max(0, len(all)-1):]
	}
	return all, true
}

// serviceOfRule is the Service that the comment of a rule names, as "namespace/name"; empty where it names none.
func serviceOfRule(rule string) string {
	_, text, ok := strings.Cut(rule, " --comment ")
	if !ok {
		return ""
	}
	if rest, quoted := strings.CutPrefix(text, `"`); quoted {
		text, _, _ = strings.Cut(rest, `"`)
	} else {
		text, _, _ = strings.Cut(text, " ")
	}
	return serviceOfComment(text)
}

func serviceOfComment(text string) string {
	key, _, ok := dataplane.ServicePortOf(text)
	if !ok {
		return ""
	}
	service, _, _ := strings.Cut(key, ":")
	return service
}

// manyEdits is from how many changed rules on a chain is written whole: taking rules out of a long chain one by one is
// slower than writing it.
const manyEdits = 64

// script is what turns chains from one state into another, for iptables-restore --noflush: one transaction.
func (t *xtTable) script(from, to map[string]*xtChain) string {
	var declared, policies, rules, removed []string
	for _, name := range sortedNames(to) {
		a, b := from[name], to[name]
		declare := func() { declared = append(declared, ":"+name+" - [0:0]") }
		switch {
		case !a.there && !b.there:
		case !b.there:
			declare() // empties it
			removed = append(removed, "-X "+name)
		case !a.there:
			declare()
			rules = append(rules, b.lines(name)...)
		default:
			if a.policy != b.policy {
				policies = append(policies, "-P "+name+" "+b.policy)
			}
			edits := editsOf(name, a.rules, b.rules)
			if a.policy == "" && (len(edits) > manyEdits || len(edits) > 0 && len(edits) >= len(b.rules)) {
				declare()
				edits = b.lines(name)
			}
			rules = append(rules, edits...)
		}
	}
	var out strings.Builder
	out.WriteString("*" + t.name + "\n")
	for _, l := range slices.Concat(declared, policies, rules, removed) {
		out.WriteString(l + "\n")
	}
	out.WriteString("COMMIT\n")
	return out.String()
}

func sortedNames(of map[string]*xtChain) []string {
	out := make([]string, 0, len(of))
	for name := range of {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// editsOf are the commands that turn the rules of a chain from one list into another. Rules that are in both keep their
// order. Rules are removed by what they say, where no other rule of the chain says the same: a number could mean another
// one by the time that it is used.
func editsOf(chain string, from, to []*xtRule) []string {
	kept := make(map[*xtRule]bool, len(to))
	for _, r := range to {
		kept[r] = true
	}
	times := make(map[string]int, len(from))
	for _, r := range from {
		times[r.text]++
	}
	var out []string
	for i := len(from) - 1; i >= 0; i-- {
		r := from[i]
		switch {
		case kept[r]:
		case times[r.text] == 1 && !unmatched(r.text):
			out = append(out, "-D "+strings.TrimPrefix(r.text, "-A "))
		default:
			out = append(out, fmt.Sprintf("-D %s %d", chain, i+1))
		}
	}
	was := make(map[*xtRule]bool, len(from))
	for _, r := range from {
		was[r] = true
	}
	lastKept := -1
	for i, r := range to {
		if was[r] {
			lastKept = i
		}
	}
	for i, r := range to {
		switch {
		case was[r]:
		case i > lastKept:
			out = append(out, r.text)
		default:
			out = append(out, fmt.Sprintf("-I %s %d%s", chain, i+1, strings.TrimPrefix(r.text, "-A "+chain)))
		}
	}
	return out
}

// unmatched tells whether iptables does not find a rule by what iptables-save prints of it (1.8.9, both backends): it reads
// a mask into these matches that the rule was made without.
func unmatched(rule string) bool {
	return strings.Contains(rule, " -m recent ") || strings.Contains(rule, " -m connlimit ")
}

// findIPTables is the object of an edit in rules that were read anew. Lines that say the same as those of the edit in
// another spelling are given as the edit has them.
func findIPTables(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	chain, o, ok := objectNamed(e.Object)
	if !ok {
		return nil, false, fmt.Errorf("find %s of %s: no such object is known (is the journal of another release?)", e.Object, e.Table)
	}
	table, _, _ := strings.Cut(e.Table, " (")
	for _, rs := range n.Rulesets {
		if xtTitle(table, rs) != e.Table {
			continue
		}
		t := rs.Table(table)
		if t != nil && !t.Complete {
			return nil, false, fmt.Errorf("find %s of %s: the table was not read whole", e.Object, e.Table)
		}
		now := &xtTable{rules: rs, name: table, read: t, now: map[string]*xtChain{}}
		lines, there = o.of(chain, now.chain(chain))
		for _, known := range [][]string{e.Will, e.Was} {
			if there && sameRules(lines, known, true) {
				return known, true, nil
			}
		}
		return lines, there, nil
	}
	return nil, false, fmt.Errorf("find %s of %s: these rules were not read", e.Object, e.Table)
}
