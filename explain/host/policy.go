package host

import (
	"fmt"
	"slices"
)

// verdict is how the routing rules end for a flow.
type verdict struct {
	// kind is a route type (with anycast as local), "none" or "unknown".
	kind     string
	entries  []*entry // the routes found; several only for IPv6 routes alike
	because  string
	assumed  bool
	evidence Evidence
}

// maxOpenRules bounds how many rules of one lookup may be undecided.
const maxOpenRules = 64

// policy is the kernel's lookup through the routing rules (fib_rules_lookup): the first rule that matches
// and whose table has a route decides; "throw" and an empty table go on to the next rule.
//
// A rule that cannot be decided leaves the answer open only where it makes a difference.
func (h *Host) policy(family int, f flow) verdict {
	rt := h.fib()
	if family == 4 && !rt.custom[4] {
		if e, merged := h.findLocal4(f); merged && e.Type != "throw" {
			v := h.verdictOf([]*entry{e})
			v.assumed = true
			v.because += "; it is narrower than the local route for the address and wins as long as no routing rule was ever added"
			return v
		}
	}
	w := rulesWalk{h: h, rules: rt.rules[family], family: family, flow: f, seen: make(map[int]verdict)}
	return w.from(0)
}

// rulesWalk is one lookup through the rules of a family.
type rulesWalk struct {
	h      *Host
	rules  []*Rule
	family int
	flow   flow
	seen   map[int]verdict // by index of the rule to start from
	open   int             // undecided rules met
}

// from is the verdict of the rules from index i on. Jumps lead forward only, so it ends.
func (w *rulesWalk) from(i int) verdict {
	if v, ok := w.seen[i]; ok {
		return v
	}
	v := w.run(i)
	w.seen[i] = v
	return v
}

func (w *rulesWalk) run(i int) verdict {
	assumed := "" // what passing over a rule rests on
	for ; i < len(w.rules); i++ {
		r := w.rules[i]
		m := w.h.matches(r, w.flow)
		if m == No || r.Action == "nop" {
			continue
		}
		var v verdict
		if r.Action == "goto" {
			next := target(w.rules, i)
			if next == i+1 {
				continue
			}
			if v = w.from(next); m == Yes {
				return v.with(assumed)
			}
		} else {
			if v = w.h.apply(r, w.family, w.flow); v.kind == "" {
				if v.assumed {
					assumed = v.because
				}
				continue // matching or not is the same
			}
			if m == Yes {
				return v.with(assumed)
			}
		}
		if w.open++; w.open > maxOpenRules {
			return verdict{kind: "unknown", because: fmt.Sprintf("more than %d routing rules cannot be decided", maxOpenRules), evidence: r.Evidence}
		}
		if without := w.from(i + 1); v.same(without) {
			return without.with(assumed)
		}
		why := w.h.undecided(r, w.flow)
		return verdict{kind: "unknown", evidence: r.Evidence, because: fmt.Sprintf("it depends on a routing rule that cannot be decided (%s): %s", why, r)}
	}
	return verdict{kind: "none", because: "no routing rule leads to a route"}.with(assumed)
}

func (v verdict) with(assumed string) verdict {
	if assumed != "" && v.kind != "unknown" && v.kind != "local" {
		v.assumed = true
		v.because += "; " + assumed
	}
	return v
}

// same tells whether two verdicts send the packet the same way.
func (v verdict) same(o verdict) bool {
	if v.kind != o.kind || v.kind == "unknown" || len(v.entries) != len(o.entries) {
		return false
	}
	return slices.EqualFunc(v.entries, o.entries, func(a, b *entry) bool {
		return a.Src == b.Src && slices.Equal(a.hops(), b.hops())
	})
}

// apply is what a rule that matches does; an empty kind goes on with the next rule.
func (h *Host) apply(r *Rule, family int, f flow) verdict {
	if r.Action != "lookup" {
		return verdict{kind: r.Action, because: "routing rule " + r.String(), evidence: r.Evidence}
	}
	found := h.find(family, r.Table, f)
	if len(found) == 0 {
		switch {
		case h.knows(family, r.Table):
			return verdict{}
		case r.Table == "local":
			// One of the nodes' addresses may be this node's, and then its routes do not matter.
			if kind, f := h.notLocal(f.dst); kind == "" && h.HasRoutes[family] {
				return verdict{kind: "unknown", because: f.Because}
			}
			return verdict{assumed: true, because: "the addresses of this node were not captured: " + f.dst.String() + " is taken not to be one"}
		}
		return verdict{kind: "unknown", evidence: r.Evidence, because: fmt.Sprintf("the routes of table %s for IPv%d were not captured (%s)", r.Table, family, captureOf(family, r.Table))}
	}
	e := found[0]
	if e.Type == "throw" {
		return verdict{}
	}
	if r.Suppress && !rejects(e.Type) && e.Dst.Bits() <= r.SuppressLength {
		return verdict{}
	}
	v := h.verdictOf(found)
	if r.Priority != 0 && r.Priority < 32766 {
		v.because = "routing rule " + r.String() + "; " + v.because
	}
	return v
}

func captureOf(family int, name string) string {
	ip := "ip"
	if family == 6 {
		ip = "ip -6"
	}
	if name == "main" {
		return ip + " route"
	}
	return ip + " route show table " + name
}

// verdictOf is what a route does. Only unicast routes can be several.
func (h *Host) verdictOf(found []*entry) verdict {
	e := found[0]
	v := verdict{kind: e.Type, entries: found[:1], because: e.says(), assumed: e.assumed, evidence: e.Evidence}
	switch {
	case e.open != "":
		return verdict{kind: "unknown", because: e.open, evidence: e.Evidence}
	case e.Type == "anycast":
		v.kind = "local"
	case e.Type == "unicast":
		for _, o := range found[1:] {
			if o.Type == "unicast" {
				v.entries = append(v.entries[:len(v.entries):len(v.entries)], o)
			}
		}
	}
	return v
}

// target is where a goto leads: the first rule of that priority. The kernel allows only forward jumps; one
// to a rule that does not exist matches nothing.
func target(rules []*Rule, i int) int {
	for j := i + 1; j < len(rules); j++ {
		if rules[j].Priority == rules[i].Goto {
			return j
		}
	}
	return i + 1
}

// matches tells whether a rule applies to a flow (fib_rule_match, fib4_rule_match, fib6_rule_match).
func (h *Host) matches(r *Rule, f flow) Known {
	m := h.selects(r, f)
	if r.Not {
		switch m {
		case Yes:
			return No
		case No:
			return Yes
		}
	}
	return m
}

func (h *Host) selects(r *Rule, f flow) Known {
	if r.Detached || r.Mask != 0 && f.mark&r.Mask != r.Mark&r.Mask || r.Out != "" && r.Out != f.oif {
		return No
	}
	if r.To.IsValid() && !r.To.Contains(f.dst) {
		return No
	}
	if r.In != "" && f.iifKnown && r.In != f.iif {
		return No
	}
	// A source that is not chosen yet is 0.0.0.0 or :: to the lookup.
	if r.From.IsValid() && r.From.Bits() > 0 && !f.srcOpen && (!f.src.IsValid() || !r.From.Contains(f.src)) {
		return No
	}
	if r.Other == "l3mdev" && h.outsideVRF(f) {
		return No
	}
	if h.undecided(r, f) != "" {
		return Unknown
	}
	return Yes
}

// undecided names the selectors of a rule that the evidence does not decide.
func (h *Host) undecided(r *Rule, f flow) string {
	switch {
	case r.Other != "":
		return r.Other + " is not evaluated"
	case r.In != "" && !f.iifKnown:
		return "the incoming interface is not known"
	case r.From.IsValid() && r.From.Bits() > 0 && f.srcOpen:
		return "the source address is not known"
	}
	return ""
}

// outsideVRF tells whether a flow certainly does not belong to a VRF, whose rule then does not matter.
func (h *Host) outsideVRF(f flow) bool {
	if !f.iifKnown {
		return false
	}
	if f.iif == "lo" {
		return true
	}
	l := h.Link(f.iif)
	if l == nil || l.Kind == "vrf" {
		return false
	}
	if l.Master == "" {
		return true
	}
	m := h.Link(l.Master)
	return m != nil && m.Kind != "" && m.Kind != "vrf"
}

// String is the rule as `ip rule` prints it.
func (r *Rule) String() string {
	s := fmt.Sprintf("%d:", r.Priority)
	if r.Not {
		s += " not"
	}
	s += " from "
	if r.From.IsValid() {
		s += prefixText(r.From)
	} else {
		s += "all"
	}
	if r.To.IsValid() {
		s += " to " + prefixText(r.To)
	}
	if r.Mask == 0xffffffff {
		s += fmt.Sprintf(" fwmark %#x", r.Mark)
	} else if r.Mask != 0 {
		s += fmt.Sprintf(" fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.In != "" {
		s += " iif " + r.In
	}
	if r.Out != "" {
		s += " oif " + r.Out
	}
	if r.Detached {
		s += " [detached]"
	}
	if r.Other != "" {
		s += " " + r.Other
	}
	s += " " + r.Action
	switch r.Action {
	case "lookup":
		s += " " + r.Table
	case "goto":
		s += fmt.Sprintf(" %d", r.Goto)
	}
	if r.Suppress {
		s += fmt.Sprintf(" suppress_prefixlength %d", r.SuppressLength)
	}
	return s
}
