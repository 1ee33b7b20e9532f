package nft

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

// The printer writes what `nft list ruleset` of nft 1.0.6 writes. What it must follow stands in nft's src/rule.c
// (declarations), src/statement.c and src/expression.c.

// String is the ruleset as `nft list ruleset` prints it.
func (r *Ruleset) String() string {
	return string(r.print(nil))
}

// Print writes the ruleset as `nft list ruleset` prints it.
func (r *Ruleset) Print(w io.Writer) error {
	_, err := w.Write(r.print(nil))
	return err
}

func (r *Ruleset) print(b []byte) []byte {
	p := printer{b: b}
	for _, t := range r.Tables {
		p.tableBody(t)
	}
	return p.b
}

// Print is the table as `nft list table` prints it.
func (t *Table) Print() string {
	var p printer
	p.tableBody(t)
	return string(p.b)
}

// RuleText is a rule of the table as Rule.Text has it: on one line, counters without their values.
func (t *Table) RuleText(r *Rule) string {
	p := printer{table: t, stateless: true, oneLine: true}
	p.rule(r)
	return string(p.b)
}

// StatementText is a statement of a rule of the table on one line, counters without their values.
func (t *Table) StatementText(s Statement) string {
	p := printer{table: t, stateless: true, oneLine: true}
	p.statement(s)
	return string(p.b)
}

// ExpressionText is an expression as nft prints it.
func ExpressionText(e Expr) string {
	p := printer{stateless: true, oneLine: true}
	p.expr(e)
	return string(p.b)
}

// EntryText is an entry as nft prints it among the elements of the set, counters without their values:
// `10.96.0.1 . tcp . 443 comment "x" : goto y`.
func (s *Set) EntryText(e *Entry) string {
	p := printer{stateless: true, oneLine: true}
	p.entry(s, e)
	return string(p.b)
}

// printer is a listing as far as it is written.
type printer struct {
	b []byte
	// table is where names of chains are looked up; nil where a statement stands alone.
	table *Table
	// stateless leaves out what counts: values of counters, quotas and what remains of an entry's life.
	stateless bool
	// oneLine writes rules in braces behind each other and not below each other.
	oneLine bool
	// numeric leaves out words, as in ranges.
	numeric bool
	// depth of rules in braces.
	depth int
}

func (p *printer) str(ss ...string) {
	for _, s := range ss {
		p.b = append(p.b, s...)
	}
}

func (p *printer) uint(v uint64) { p.b = strconv.AppendUint(p.b, v, 10) }
func (p *printer) int(v int)     { p.b = strconv.AppendInt(p.b, int64(v), 10) }

// quoted writes a string between quotes. nft has no escapes: no string holds a quote.
func (p *printer) quoted(s string) {
	p.b = append(append(append(p.b, '"'), s...), '"')
}

func (p *printer) tableBody(t *Table) {
	was := p.table
	p.table = t
	p.str("table ", string(t.Family), " ", t.Name, " {\n")
	sep := ""
	var flags []string
	if t.Dormant {
		flags = append(flags, "dormant")
	}
	if t.Owner {
		flags = append(flags, "owner")
	}
	if len(flags) > 0 {
		p.str("\tflags ", strings.Join(flags, ","), "\n")
		sep = "\n"
	}
	if t.Comment != "" {
		p.str("\tcomment ")
		p.quoted(t.Comment)
		p.str("\n")
	}
	for i := range t.Objects {
		p.str(sep)
		p.object(&t.Objects[i])
		sep = "\n"
	}
	for _, s := range t.Sets {
		p.str(sep)
		p.set(s)
		sep = "\n"
	}
	for i := range t.Flowtables {
		p.str(sep)
		p.flowtable(&t.Flowtables[i])
		sep = "\n"
	}
	for _, c := range t.Chains {
		if c.Inline {
			continue
		}
		p.str(sep)
		p.chain(t.Family, c)
		sep = "\n"
	}
	p.str("}\n")
	p.table = was
}

func (p *printer) object(o *Object) {
	p.str("\t", o.Kind, " ", o.Name, " {\n")
	if o.Comment != "" {
		p.str("\t\tcomment ")
		p.quoted(o.Comment)
		p.str("\n")
	}
	if o.Text != "" {
		for line := range strings.SplitSeq(o.Text, "\n") {
			p.str("\t\t", line, "\n")
		}
	}
	p.str("\t}\n")
}

func (p *printer) flowtable(f *Flowtable) {
	p.str("\tflowtable ", f.Name, " {\n\t\thook ", f.Hook, " priority ")
	p.str(priorityText(Netdev, f.Hook, f.Priority), "\n")
	if len(f.Devices) > 0 {
		p.str("\t\tdevices = { ", strings.Join(f.Devices, ", "), " }\n")
	}
	if f.Offload {
		p.str("\t\tflags offload\n")
	}
	if f.Counter {
		p.str("\t\tcounter\n")
	}
	p.str("\t}\n")
}

func (p *printer) chain(f Family, c *Chain) {
	p.str("\tchain ", c.Name, " {\n")
	if c.Comment != "" {
		p.str("\t\tcomment ")
		p.quoted(c.Comment)
		p.str("\n")
	}
	if b := c.Base; b != nil {
		p.str("\t\ttype ", b.Type, " hook ", b.Hook)
		switch len(b.Devices) {
		case 0:
		case 1:
			p.str(" device ")
			p.quoted(b.Devices[0])
		default:
			p.str(" devices = { ", strings.Join(b.Devices, ", "), " }")
		}
		p.str(" priority ", priorityText(f, b.Hook, b.Priority), ";")
		policy := b.Policy
		if policy == "" {
			policy = "accept"
		}
		p.str(" policy ", policy, ";")
		if b.Offload {
			p.str(" flags offload;")
		}
		p.str("\n")
	}
	for _, r := range c.Rules {
		p.str("\t\t")
		p.rule(r)
		p.str("\n")
	}
	p.str("\t}\n")
}

// standardPriority is a priority with a name (std_prios and bridge_std_prios of nft's src/rule.c).
type standardPriority struct {
	name  string
	value int
	// hook is the only one where the name is valid; empty for all. families are those where it is; nil for ip, ip6 and
	// inet.
	hook     string
	families []Family
}

var standardPriorities = []standardPriority{
	{"raw", -300, "", nil},
	{"mangle", -150, "", nil},
	{"dstnat", -100, "prerouting", nil},
	{"filter", 0, "", []Family{IP, IP6, Inet, ARP, Netdev}},
	{"security", 50, "", nil},
	{"srcnat", 100, "postrouting", nil},
}

var bridgePriorities = []standardPriority{
	{"dstnat", -300, "prerouting", []Family{Bridge}},
	{"filter", -200, "", []Family{Bridge}},
	{"out", 100, "output", []Family{Bridge}},
	{"srcnat", 300, "postrouting", []Family{Bridge}},
}

func prioritiesOf(f Family) []standardPriority {
	if f == Bridge {
		return bridgePriorities
	}
	return standardPriorities
}

func (s *standardPriority) holds(f Family, hook string) bool {
	families := s.families
	if families == nil {
		families = []Family{IP, IP6, Inet}
	}
	return slices.Contains(families, f) && (s.hook == "" || s.hook == hook)
}

// priorityText is a priority as nft prints it (prio2str): a name with up to ten added or taken away, else a number.
func priorityText(f Family, hook string, priority int) string {
	for _, s := range prioritiesOf(f) {
		offset := priority - s.value
		if offset < -10 || offset > 10 {
			continue
		}
		if !s.holds(f, hook) {
			break
		}
		switch {
		case offset > 0:
			return s.name + " + " + strconv.Itoa(offset)
		case offset < 0:
			return s.name + " - " + strconv.Itoa(-offset)
		}
		return s.name
	}
	return strconv.Itoa(priority)
}

// priorityNamed is the value of a name of a priority.
func priorityNamed(f Family, hook, name string) (int, bool) {
	for _, s := range prioritiesOf(f) {
		if s.name == name && s.holds(f, hook) {
			return s.value, true
		}
	}
	return 0, false
}
