package nft

import (
	"errors"
	"fmt"
)

// ParseNetlink reads a netlink capture (netlink_file.go). What the kernel holds as single loads and comparisons becomes
// what a person wrote: rules say what nft 1.0.6 prints for them, and hide what nft hides, where that says nothing more
// than the rest of the rule. The error is for data that is no such capture at all; what cannot be read of one is in
// Problems.
func ParseNetlink(data []byte, file string) (*Ruleset, error) {
	if !IsNetlink(data) {
		return nil, errors.New("it is no capture of nf_tables' netlink messages")
	}
	h, rest, err := parseNetlinkHeader(data)
	if err != nil {
		return nil, fmt.Errorf("a capture of nf_tables' netlink messages, but %w", err)
	}
	d := &netlinkDecoder{
		netlinkHeader: h, protocols: newProtocols(), out: &Ruleset{File: file}, tables: map[Family]map[string]*netlinkTable{},
		left: 1<<16 + 16*len(data),
	}
	var by [nftMsgNewFlowtable + 1][]netlinkMessage
	why := h.messages(rest, func(m netlinkMessage) {
		if int(m.kind) < len(by) {
			by[m.kind] = append(by[m.kind], m)
		}
	})
	// What is named comes before what names it.
	for _, kind := range []int{
		nftMsgNewTable, nftMsgNewSet, nftMsgNewSetElem, nftMsgNewChain, nftMsgNewRule, nftMsgNewObj, nftMsgNewFlowtable,
	} {
		for _, m := range by[kind] {
			d.message(m)
		}
		if kind == nftMsgNewSetElem {
			for _, t := range d.all {
				for _, s := range t.inOrder {
					d.fill(t, s)
				}
			}
		}
	}
	for _, t := range d.all {
		t.inlineOnce()
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				r.Text = t.RuleText(r)
			}
		}
	}
	if why != "" {
		d.problem("the end of the capture", why)
		// What was cut off may be entries of any set.
		for _, t := range d.all {
			for _, s := range t.Sets {
				s.Incomplete = true
			}
		}
	}
	return d.out, nil
}

// netlinkDecoder reads a capture.
type netlinkDecoder struct {
	netlinkHeader
	protocols *protocols
	out       *Ruleset
	all       []*netlinkTable
	tables    map[Family]map[string]*netlinkTable
	// left bounds how much is made of a capture: one that refers to the same again and again must not grow without end.
	left int
}

// spend takes from what may still be made; false where nothing is left.
func (d *netlinkDecoder) spend(n int) bool {
	d.left -= n
	return d.left >= 0
}

// netlinkTable is a table while the capture is read.
type netlinkTable struct {
	*Table
	// sets are those of the kernel by name, anonymous ones too.
	sets    map[string]*netlinkSet
	inOrder []*netlinkSet
}

func (d *netlinkDecoder) problem(what, why string) {
	d.out.addProblem(Problem{Text: what, Why: why})
}

// inlineOnce lets chains stand in braces that one rule leads to, as the kernel has them; others are chains by name.
func (t *netlinkTable) inlineOnce() {
	uses := map[string]int{}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				if v, ok := s.(*Verdict); ok && v.Chain != "" {
					uses[v.Chain]++
				}
			}
		}
	}
	for _, c := range t.Chains {
		c.Inline = c.Inline && uses[c.Name] == 1
	}
}

// message reads one message.
func (d *netlinkDecoder) message(m netlinkMessage) {
	a := parseAttributes(d.order, m.attrs)
	f := familyOf(m.family)
	if m.kind == nftMsgNewTable {
		d.addTable(f, m.family, &a)
		return
	}
	// NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_OBJ_TABLE and so on are all 1.
	name := a.text(nftaChainTable)
	t := d.tables[f][name]
	if t == nil {
		d.problem(fmt.Sprintf("a message about table %s %s", f, cutText(name)), "the table is not in the capture")
		return
	}
	switch m.kind {
	case nftMsgNewChain:
		d.addChain(t, &a)
	case nftMsgNewRule:
		if c := t.Chain(a.text(nftaRuleChain)); c != nil {
			c.Rules = append(c.Rules, d.rule(t, &a))
		} else {
			d.problem("a rule of table "+t.String(), "its chain "+cutText(a.text(nftaRuleChain))+" is not in the capture")
		}
	case nftMsgNewSet:
		d.addSet(t, &a)
	case nftMsgNewSetElem:
		d.addElements(t, &a)
	case nftMsgNewObj:
		if o, ok := d.object(&a); ok {
			t.Objects = append(t.Objects, o)
		}
	case nftMsgNewFlowtable:
		t.Flowtables = append(t.Flowtables, d.flowtable(&a))
	}
}

func (d *netlinkDecoder) addTable(f Family, number byte, a *attributes) {
	name := a.text(nftaTableName)
	if f == "" || name == "" {
		d.problem("table "+cutText(name), fmt.Sprintf("its family has the number %d, which is not known", number))
		return
	}
	if d.tables[f][name] != nil {
		return // a list that was begun again
	}
	note := parseNotes(a[nftaTableUserdata])
	t := &netlinkTable{Table: d.out.AddTable(f, name), sets: map[string]*netlinkSet{}}
	t.Handle, t.Comment = a.u64(nftaTableHandle), note.comment(0) // NFTNL_UDATA_TABLE_COMMENT
	flags := a.u32(nftaTableFlags)
	t.Dormant, t.Owner = flags&nftTableDormant != 0, flags&nftTableOwner != 0
	t.Unclear = flags&^(nftTableDormant|nftTableOwner|nftTablePersist) != 0
	if d.tables[f] == nil {
		d.tables[f] = map[string]*netlinkTable{}
	}
	d.tables[f][name] = t
	d.all = append(d.all, t)
}

func (d *netlinkDecoder) addChain(t *netlinkTable, a *attributes) {
	c := t.AddChain(a.text(nftaChainName))
	note := parseNotes(a[nftaChainUserdata])
	c.Handle, c.Comment = a.u64(nftaChainHandle), note.comment(0) // NFTNL_UDATA_CHAIN_COMMENT
	flags := a.u32(nftaChainFlags)
	c.Inline = flags&nftChainBinding != 0
	if !a.has(nftaChainHook) {
		return
	}
	hook := parseAttributes(d.order, a[nftaChainHook])
	c.Base = &Base{
		Type: a.text(nftaChainType), Hook: hookOf(t.Family, hook.u32(nftaHookNum)),
		Priority: int(int32(hook.u32(nftaHookPriority))), Policy: "accept", Offload: flags&nftChainOffload != 0,
		Devices: d.devices(hook[nftaHookDevs]),
	}
	if c.Base.Hook == "" {
		c.Base.Hook = "unknown"
		d.problem("chain "+c.Name+" of table "+t.String(),
			"its hook has the number "+decimalText(hook.u32(nftaHookNum))+", which is not known")
	}
	if a.has(nftaChainPolicy) && a.u32(nftaChainPolicy) == nfDrop {
		c.Base.Policy = "drop"
	}
	if dev := hook.text(nftaHookDev); dev != "" && len(c.Base.Devices) == 0 {
		c.Base.Devices = []string{dev}
	}
}

func (d *netlinkDecoder) addSet(t *netlinkTable, a *attributes) {
	if name := a.text(nftaSetName); name == "" || t.sets[name] != nil {
		return
	}
	s := d.parseSet(t, a)
	s.Statements = d.statements(t, a[nftaSetExpr], a[nftaSetExpressions])
	t.sets[s.name] = s
	t.inOrder = append(t.inOrder, s)
}

func (d *netlinkDecoder) addElements(t *netlinkTable, a *attributes) {
	s := t.sets[a.text(nftaSetElemListSet)]
	if s == nil {
		d.problem("elements of set "+cutText(a.text(nftaSetElemListSet))+" of table "+t.String(), "the set is not in the capture")
		return
	}
	for kind, e := range eachAttribute(d.order, a[nftaSetElemListElements]) {
		if kind == nftaListElem {
			s.elements = append(s.elements, e)
		}
	}
}
