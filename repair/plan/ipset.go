package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

const (
	// kindIPSet is the kind of the steps that change IP sets; their input is what `ipset restore` reads.
	kindIPSet = "ipset"
	// setsTable is the Table of their edits.
	setsTable = "sets"
)

// mendSets brings kube-proxy's IP sets, as far as findings speak of them, to what it keeps: sets that are not there, that
// are of another type, and entries. The rules that ask them come later.
func mendSets(s *site) []report.RepairStep {
	if s.node.Proxy.Mode != ipvsMode || s.node.Sets == nil {
		return nil
	}
	m := setMending{site: s, findingIndex: s.indexed(), sets: kubeproxy.IPSets(s.node.Plan, &s.node.Proxy, s.node.Host, s.node.Name)}
	for i := range m.sets {
		m.set(&m.sets[i])
	}
	return m.steps()
}

// setMending is what a plan does to sets.
type setMending struct {
	*site
	*findingIndex
	sets    []kubeproxy.IPSet
	changes []setChange
}

// setChange is a change of one set or of one entry, with the lines of `ipset restore` that do it and take it back.
type setChange struct {
	report.RepairEdit
	do, undo []string
	findings []int
	// unasked is the set that no rule may ask while it is changed; empty for none.
	unasked string
}

// set plans what one of kube-proxy's sets needs.
func (m *setMending) set(want *kubeproxy.IPSet) {
	have := m.captured(want.Name)
	switch {
	case have == nil:
		found := m.which(func(f *report.Finding) bool {
			return f.ID == "ipset-missing" && slices.Contains(strings.Split(f.Subject, ", "), want.Name)
		})
		if len(found) == 0 {
			// Rules ask also sets that are empty: they cannot be brought back without.
			found = m.which(func(f *report.Finding) bool { return f.ID == "ipset-missing" })
		}
		if len(found) == 0 {
			found = m.which(aboutRules)
		}
		if len(found) > 0 && want.Known() {
			m.changes = append(m.changes, made(want, found))
		}
		return
	case have.Missing != "":
		return
	case have.Type != want.Type || want.Family != 0 && have.Family != want.Family:
		found := m.about("ipset-type-mismatch", want.Name)
		if c, ok := m.replaced(have, want); ok && len(found) > 0 {
			c.findings = found
			m.changes = append(m.changes, c)
		}
		return
	}
	lacks := m.about("ipset-entry-missing", want.Name)
	for i := range want.Entries {
		e := &want.Entries[i]
		if have.Find(e.Text) != nil || strings.HasSuffix(e.Text, "/0") { // ipset takes no network of everything
			continue
		}
		found := slices.Clone(m.about("ipset-entry-missing", want.Name+": "+e.Text))
		if !e.May {
			found = append(found, lacks...)
		}
		if len(found) > 0 {
			m.changes = append(m.changes, m.entry(want, e.Text, e.Port.Namespace+"/"+e.Port.Name, found, true))
		}
	}
	for i := range have.Entries {
		text := have.Entries[i].Text
		if want.Entry(text) != nil {
			continue
		}
		if found := m.about("ipset-entry-stale", want.Name+": "+text); len(found) > 0 {
			m.changes = append(m.changes, m.entry(want, text, service(&m.findings[found[0]].Object), found, false))
		}
	}
}

// service is the "namespace/name" of a Service that an object is, empty for other objects.
func service(o *report.Object) string {
	if o.Kind != "Service" {
		return ""
	}
	return o.Namespace + "/" + o.Name
}

// captured is a set as it was captured, nil where it is not there.
func (s *site) captured(name string) *ipset.Set {
	if set := s.node.Sets[name]; set != nil {
		return set.Captured
	}
	return nil
}

// entry is a change of one entry.
func (m *setMending) entry(set *kubeproxy.IPSet, text, service string, found []int, add bool) setChange {
	line := "add " + set.Name + " " + text
	c := setChange{findings: found, RepairEdit: report.RepairEdit{
		Table: setsTable, Object: entryName(set.Name, text), Service: service, Reason: "a Service asks for it: without it " + set.Does,
		Was: []string{}, Will: []string{line}, Absent: true,
	}}
	c.do, c.undo = []string{line}, []string{"del " + set.Name + " " + text}
	if !add {
		c.Reason = "no Service asks for it"
		c.Was, c.Will, c.Absent, c.Remove = c.Will, c.Was, false, true
		c.do, c.undo = c.undo, c.do
	}
	return c
}

func entryName(set, text string) string { return "entry " + text + " of set " + set }
func setName(set string) string         { return "set " + set }

// made is a set that is made and filled.
func made(want *kubeproxy.IPSet, found []int) setChange {
	return setChange{
		findings: found, do: fresh(want),
		// It is made first, so that also what was broken off before it was made is taken back.
		undo: []string{want.Create(), "flush " + want.Name, "destroy " + want.Name},
		RepairEdit: report.RepairEdit{
			Table: setsTable, Object: setName(want.Name), Reason: "kube-proxy keeps it, and it is not there: " + want.Does,
			Was: []string{}, Absent: true, Will: wantedLines(want),
		},
	}
}

// fresh are the lines that make a set as kube-proxy makes it.
func fresh(want *kubeproxy.IPSet) []string {
	out := []string{want.Create()}
	for _, e := range want.Entries {
		if !e.Leave && !strings.HasSuffix(e.Text, "/0") {
			out = append(out, "add "+want.Name+" "+e.Text)
		}
	}
	return out
}

// wantedLines are a set of kube-proxy's as setLines prints it.
func wantedLines(want *kubeproxy.IPSet) []string {
	out := fresh(want)
	out[0] = "create " + want.Name + " " + lasting(want.Made())
	return out
}

// setLines are a set with its entries, sorted, as `ipset save` prints them, without what the kernel chooses or counts:
// the size and the seed of its hash, counters, and the time that entries have left.
func setLines(s *ipset.Set) []string {
	out := []string{"create " + s.Name + " " + lasting(s.Type+" "+s.Header)}
	for i := range s.Entries {
		out = append(out, "add "+s.Name+" "+without(s.Entries[i].Text, "packets", "bytes", "timeout"))
	}
	slices.Sort(out[1:])
	return out
}

// lasting are the options of a set without those that the kernel chooses or changes.
func lasting(made string) string { return without(made, "hashsize", "bucketsize", "initval") }

// without takes options with their values out of a line.
func without(line string, options ...string) string {
	words := strings.Fields(line)
	var out []string
	for i := 0; i < len(words); i++ {
		if slices.Contains(options, words[i]) && i+1 < len(words) {
			i++
			continue
		}
		out = append(out, words[i])
	}
	return strings.Join(out, " ")
}

// remade are the lines that make a captured set again under a name. The seed and the size of buckets are left to the
// kernel: older versions of ipset do not take them.
func remade(s *ipset.Set, name string) []string {
	out := []string{"create " + name + " " + without(s.Type+" "+s.Header, "bucketsize", "initval")}
	for i := range s.Entries {
		out = append(out, "add "+name+" "+without(s.Entries[i].Text, "packets", "bytes"))
	}
	return out
}

// replaced is a set of the wrong type that is made anew. Where the kernel takes the two types for alike (their features
// are the same), they are swapped, whoever asks the set. Otherwise it destroys the set only while nobody asks it:
// kube-proxy's own rules can be taken away for that time; where others ask it too, ok is false.
func (m *setMending) replaced(have *ipset.Set, want *kubeproxy.IPSet) (c setChange, ok bool) {
	c.RepairEdit = report.RepairEdit{
		Table: setsTable, Object: setName(want.Name), Was: setLines(have), Will: wantedLines(want),
		Reason: fmt.Sprintf("it is %s, and kube-proxy keeps it as %s: kube-proxy stops every sync at it, and changes nothing any more", have.Type, want),
	}
	if features[have.Type] != "" && features[have.Type] == features[want.Type] && have.Family == want.Family {
		c.do, c.undo = swapped(want.Name, fresh(want)), swapped(want.Name, remade(have, want.Name))
		return c, want.Known()
	}
	c.do = slices.Concat([]string{"flush " + want.Name, "destroy " + want.Name}, fresh(want))
	c.undo = slices.Concat([]string{"flush " + want.Name, "destroy " + want.Name}, remade(have, want.Name))
	if m.asked(want.Name) {
		c.unasked = want.Name
	}
	return c, want.Known() && !m.askedByOthers(want.Name)
}

// spare is the name of the set that another one is swapped with.
const spare = "svcnet-spare"

// swapped puts what the lines make in the place of a set that is there.
func swapped(name string, made []string) []string {
	out := slices.Clone(made)
	for i := range out {
		verb, rest, _ := strings.Cut(out[i], " ")
		out[i] = verb + " " + spare + strings.TrimPrefix(rest, name)
	}
	return append(out, "swap "+name+" "+spare, "flush "+spare, "destroy "+spare)
}

// features are what the entries of a type hold, as the kernel compares them when sets are swapped (ip_set_swap). A type
// that is not here is swapped with none.
var features = map[string]string{
	"bitmap:ip":         "ip",
	"bitmap:port":       "port",
	"hash:ip":           "ip",
	"hash:ip,mark":      "ip mark",
	"hash:ip,port":      "ip port",
	"hash:ip,port,ip":   "ip port ip2",
	"hash:ip,port,net":  "ip port ip2 nomatch",
	"hash:net":          "ip nomatch",
	"hash:net,net":      "ip ip2 nomatch",
	"hash:net,port":     "ip port nomatch",
	"hash:net,port,net": "ip port ip2 nomatch",
}

// asked tells whether a rule asks a set.
func (s *site) asked(name string) bool {
	return s.askedIn(func(string, string) bool { return true }, name)
}

// askedByOthers tells whether a rule asks a set that is in no chain of kube-proxy's, or a list has it.
func (s *site) askedByOthers(name string) bool {
	for _, set := range s.node.Sets {
		if set.Captured != nil && slices.ContainsFunc(set.Captured.Entries, func(e ipset.Entry) bool { return e.Member == name }) {
			return true
		}
	}
	return s.askedIn(func(table, chain string) bool { return !dataplane.Stock(table, chain) }, name)
}

// askedIn tells whether a rule asks a set in a chain that fits.
func (s *site) askedIn(fits func(table, chain string) bool, name string) bool {
	for _, rs := range s.node.Rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if fits(t.Name, c.Name) && slices.ContainsFunc(c.Rules, func(r netfilter.Rule) bool { return asks(&r, name) }) {
					return true
				}
			}
		}
	}
	return false
}

// asks tells whether a rule asks a set.
func asks(r *netfilter.Rule, set string) bool { return asksAny(r, map[string]bool{set: true}) }

// steps are the one that changes sets, or none. What is made comes before what is added, and that before what goes.
func (m *setMending) steps() []report.RepairStep {
	if len(m.changes) == 0 {
		return nil
	}
	slices.SortStableFunc(m.changes, func(a, b setChange) int { return a.order() - b.order() })
	step := report.RepairStep{
		Kind: kindIPSet, Owner: ownerProxy,
		Do:   report.RepairCommand{Command: []string{"ipset", "restore", "-exist"}},
		Undo: report.RepairCommand{Command: []string{"ipset", "restore", "-exist"}},
		Risk: "none for connections under way: rules ask sets about the first packet of a connection, or about each by its address alone",
	}
	var did, services []string
	counts := make(map[int]int)
	for i := range m.changes {
		c := &m.changes[i]
		counts[c.order()]++
		c.Findings = m.mends(slices.Concat(c.findings, m.follow(c.findings))...)
		if c.Service != "" {
			services = once(services, c.Service)
		}
		step.Edits = append(step.Edits, c.RepairEdit)
		step.Do.Input += lines(c.do)
		step.Undo.Input = lines(c.undo) + step.Undo.Input
	}
	for i, what := range []struct{ verb, one, many string }{
		{"make", "set", "sets"}, {"make anew", "set of another type", "sets of another type"}, {"add", "entry", "entries"}, {"delete", "entry", "entries"},
	} {
		if n := counts[i]; n > 0 {
			did = append(did, fmt.Sprintf("%s %d %s", what.verb, n, agree(n, what.one, what.many)))
		}
	}
	step.Title = strings.Join(did, ", ")
	step.Reason = m.findings[m.changes[0].findings[0]].Message
	step.Affects = "new connections to " + names(services, 3)
	step.Lasts = "until kube-proxy's next sync, which compares every set with what it wants and keeps these entries"
	if m.node.Proxy.Presence == traits.Gone {
		step.Lasts = "until kube-proxy runs again: its first sync keeps these entries"
	}
	away, back := m.unask()
	return slices.Concat(away, []report.RepairStep{step}, back)
}

// unask are the steps that take the rules away which ask sets that are destroyed, and that bring them back.
func (m *setMending) unask() (away, back []report.RepairStep) {
	sets := make(map[string]bool)
	var findings []string
	for i := range m.changes {
		if c := &m.changes[i]; c.unasked != "" {
			sets[c.unasked] = true
			findings = append(findings, c.Findings...)
		}
	}
	slices.Sort(findings)
	findings = slices.Compact(findings)
	in := strings.Join(slices.Sorted(maps.Keys(sets)), ", ")
	for _, rs := range m.node.Rulesets {
		for _, read := range rs.Tables {
			t := &xtTable{rules: rs, name: read.Name, read: read, now: map[string]*xtChain{}}
			var chains []string
			for _, c := range read.Chains {
				if slices.ContainsFunc(c.Rules, func(r netfilter.Rule) bool { return asksAny(&r, sets) }) {
					chains = append(chains, c.Name)
				}
			}
			if len(chains) == 0 {
				continue
			}
			rules := 0
			out, again := t.begin(), t.begin()
			whole := make(map[string]*xtChain)
			for _, name := range chains {
				whole[name] = t.chain(name)
				out.change(name, func(c *xtChain) *xtChain {
					left := &xtChain{there: true, policy: c.policy}
					for i, r := range c.rules {
						if !asksAny(&read.Chain(name).Rules[i], sets) {
							left.rules = append(left.rules, r)
						}
					}
					rules += len(c.rules) - len(left.rules)
					return left
				})
				out.edit(name, object{}, report.RepairEdit{Reason: "the kernel destroys no set that a rule asks", Findings: findings})
			}
			for _, name := range chains {
				again.change(name, func(*xtChain) *xtChain { return whole[name] })
				again.edit(name, object{}, report.RepairEdit{Reason: "the rules were taken away only for as long as the set was made", Findings: findings})
			}
			step := report.RepairStep{
				Owner: ownerProxy, Title: fmt.Sprintf("take %s that ask %s out of table %s", plural(rules, "rule"), in, t.title()),
				Reason:  "kube-proxy's rules ask the set, and the kernel destroys it only while none does",
				Affects: "new connections to all Services for a moment, until the rules are back",
				Risk:    "between this step and the one that brings the rules back packets are masqueraded, accepted and refused as if the set were empty",
			}
			away = append(away, out.done(step))
			step.Title = fmt.Sprintf("bring back %s that ask %s to table %s", plural(rules, "rule"), in, t.title())
			step.Reason, step.Risk = "they were taken away for the set to be made anew", "none beside that of the step before"
			back = append(back, again.done(step))
		}
	}
	return away, back
}

// asksAny tells whether a rule asks one of some sets.
func asksAny(r *netfilter.Rule, sets map[string]bool) bool {
	return slices.ContainsFunc(r.Matches, func(m netfilter.Match) bool {
		q, ok := m.(*netfilter.SetMatch)
		return ok && sets[q.Set]
	})
}

// order says when a change is done.
func (c *setChange) order() int {
	whole := strings.HasPrefix(c.Object, "set ")
	switch {
	case whole && c.Absent:
		return 0
	case whole:
		return 1
	case c.Absent:
		return 2
	}
	return 3
}

// findSet is the set or the entry of an edit.
func findSet(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	if n.Sets == nil {
		return nil, false, fmt.Errorf("find %s: the IP sets of the node were not read", e.Object)
	}
	name, whole := strings.CutPrefix(e.Object, "set ")
	text := ""
	if !whole {
		text, name, _ = strings.Cut(strings.TrimPrefix(e.Object, "entry "), " of set ")
	}
	set := n.Sets[name]
	if set == nil || set.Captured == nil {
		return nil, false, nil
	}
	if set.Captured.Missing != "" {
		return nil, false, fmt.Errorf("find %s: %s", e.Object, set.Captured.Missing)
	}
	if whole {
		return setLines(set.Captured), true, nil
	}
	if found := set.Captured.Find(text); found != nil {
		return []string{"add " + name + " " + without(found.Text, "packets", "bytes", "timeout")}, true, nil
	}
	return nil, false, nil
}
