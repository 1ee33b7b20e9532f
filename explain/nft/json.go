package nft

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseJSON reads what `nft -j list ruleset` and its kin write (json_schema_version 1, nft 0.9 to 1.1): one document,
// one object a line, several documents behind each other, and documents that are cut off, of which it gives what is
// there. File names the capture.
//
// The form says less than `nft list ruleset` of the same version. nft 1.0.6 leaves out the comments of tables and
// chains, the devices of chains, the flags dynamic and auto-merge of sets, "interval" of the data of maps, expressions
// behind typeof (so that integers among keys have no width but where a rule says it), all but the first statement of an
// element, flags of flowtables and of chains that are offloaded, the level of "socket cgroupv2", and milliseconds of what
// entries have yet to live. Later versions have some of these.
//
// Where documents hold a chain, set or object again the later one stands.
//
// An error says that there is nothing of nftables in the data; what could not be read stands in Ruleset.Problems.
func ParseJSON(data []byte, file string) (*Ruleset, error) {
	doc := strings.TrimPrefix(string(data), "\ufeff")
	j := jsonReader{
		rs:    &Ruleset{File: file},
		s:     jsonScanner{doc: doc},
		lined: strings.Contains(strings.TrimSpace(doc), "\n"),
		names: make(map[string]string), tables: make(tableIndex), objects: make(objectIndex),
		again: make(map[*Chain]bool),
	}
	j.documents()
	j.finish()
	if !j.found {
		return nil, fmt.Errorf("read nftables rules from %s: %w", file, errNoNFTJSON)
	}
	return j.rs, nil
}

var errNoNFTJSON = errors.New("it is not JSON of nft")

// jsonReader is the state of ParseJSON.
type jsonReader struct {
	rs *Ruleset
	s  jsonScanner
	// lined is set where the document has lines; line is that of the object which is read, else 0.
	lined   bool
	line    int
	from    int
	found   bool
	tables  tableIndex
	objects objectIndex
	table   *Table
	chain   *Chain
	// again are chains that a later document has once more: their rules are new with the first that follows.
	again map[*Chain]bool
	// names are those that many rules share, so that they do not keep the document alive.
	names map[string]string
	// pending are sets whose elements wait until rules say how wide they are.
	pending []pendingSet
	inline  int
}

// pendingSet is a set whose key or data is an integer of a width that the capture does not say.
type pendingSet struct {
	table *Table
	set   *Set
	elems string
	line  int
}

// name is a string that does not keep the document alive.
func (j *jsonReader) name(s string) string {
	if n, ok := j.names[s]; ok {
		return n
	}
	s = strings.Clone(s)
	j.names[s] = s
	return s
}

func (j *jsonReader) problem(text, format string, args ...any) {
	if len(j.rs.Problems) > maxProblems {
		return
	}
	j.rs.addProblem(Problem{Line: j.line, Text: shorten(text), Why: fmt.Sprintf(format, args...)})
}

// maxProblems bounds what is told of a text that is no capture at all.
const maxProblems = 1000

func (r *Ruleset) addProblem(p Problem) {
	switch n := len(r.Problems); {
	case n < maxProblems:
		r.Problems = append(r.Problems, p)
	case n == maxProblems:
		r.Problems = append(r.Problems, Problem{Line: p.Line, Text: p.Text, Why: "more problems are not listed; the first is: " + p.Why})
	}
}

// tableIndex finds tables of a ruleset that is being read.
type tableIndex map[tableName]*Table

type tableName struct {
	family Family
	name   string
}

// of is the table of a family and name, added when there is none.
func (x tableIndex) of(r *Ruleset, f Family, name string) (t *Table, isNew bool) {
	key := tableName{f, name}
	if t := x[key]; t != nil {
		return t, false
	}
	t = &Table{Family: f, Name: name}
	r.Tables = append(r.Tables, t)
	x[key] = t
	return t, true
}

// shorten makes a text of several lines short enough for a problem.
func shorten(s string) string {
	return strings.Clone(paste.Quote(strings.Join(strings.Fields(s[:min(len(s), 2*paste.Longest)]), " ")))
}

// here notes where the next object begins.
func (j *jsonReader) here() {
	j.from = j.s.at
	j.line = 0
	if j.lined {
		j.line = j.s.lineHere()
	}
}

// documents reads values until the end of the text.
func (j *jsonReader) documents() {
	for {
		j.s.space()
		if j.s.at >= len(j.s.doc) {
			return
		}
		j.here()
		from := j.s.at
		err := j.oneDocument(from)
		if err == nil {
			continue
		}
		j.problem(j.s.doc[max(j.from, min(j.s.at, len(j.s.doc))-paste.Longest/2):], "%s", err)
		// One object a line: those behind a damaged one are read.
		next := strings.Index(j.s.doc[j.from:], "\n{")
		if next < 0 {
			return
		}
		j.s.at = j.from + next + 1
	}
}

// oneDocument reads {"nftables": [ … ]}, one object, or a list of objects without anything around it.
func (j *jsonReader) oneDocument(from int) error {
	if j.s.doc[from] == '{' {
		if done, err := j.document(); done || err != nil {
			return err
		}
		j.s.at = from
	}
	if err := j.s.value(); err != nil {
		return err
	}
	v := jsonValue{&j.s, 0}
	if v.kind() != jsonArray {
		j.object(v)
		return nil
	}
	for o := range v.children {
		j.object(o)
	}
	return nil
}

// document reads {"nftables": [ … ]} object by object; done is false where it is something else.
func (j *jsonReader) document() (done bool, err error) {
	more, err := j.s.open('}')
	if err != nil || !more {
		return err == nil, err
	}
	key, err := j.s.key()
	if err != nil {
		return false, err
	}
	if key != "nftables" {
		return false, nil
	}
	j.found = true
	j.s.space()
	if j.s.at >= len(j.s.doc) {
		return true, errJSONEnd
	}
	if j.s.doc[j.s.at] != '[' {
		return true, errJSONSyntax
	}
	more, err = j.s.open(']')
	for more && err == nil {
		j.s.space()
		j.here()
		if err = j.s.value(); err != nil {
			return true, err
		}
		j.object(jsonValue{&j.s, 0})
		more, err = j.s.comma(']')
	}
	if err != nil {
		return true, err
	}
	// What follows the list in the document is not nft's.
	for {
		if more, err = j.s.comma('}'); err != nil || !more {
			return true, err
		}
		if _, err = j.s.key(); err != nil {
			return true, err
		}
		if err = j.s.value(); err != nil {
			return true, err
		}
	}
}

// object reads one object of the list, such as {"rule": …}.
func (j *jsonReader) object(o jsonValue) {
	if o.kind() != jsonObject || o.size() == 0 {
		j.problem(o.raw(), "not an object of nft")
		return
	}
	v := o.first()
	if v.kind() != jsonObject {
		j.problem(o.raw(), "not an object of nft")
		return
	}
	switch kind := v.key(); kind {
	case "metainfo":
		j.found = true
		if j.rs.Version == "" {
			j.rs.Version = strings.Clone(v.text("version"))
		}
		if n, ok := v.member("json_schema_version"); ok && n.str() != "1" {
			j.problem(o.raw(), "written in a version of the form that is not known")
		}
	case "table":
		j.readTable(v)
	case "chain":
		j.readChain(v)
	case "rule":
		j.readRule(v)
	case "set", "map", "meter":
		j.readSet(v, kind)
	case "flowtable":
		j.readFlowtable(v)
	case "counter", "quota", "limit", "ct helper", "ct timeout", "ct expectation", "secmark", "synproxy", "tunnel":
		j.readObject(v, kind)
	default:
		j.problem(o.raw(), "%q is not known", kind)
	}
}

// within is the table of an object; nil where it does not say one.
func (j *jsonReader) within(v jsonValue, member string) *Table {
	family, name := Family(v.text("family")), v.text(member)
	if t := j.table; t != nil && t.Family == family && t.Name == name {
		return t
	}
	switch family {
	case IP, IP6, Inet, ARP, Bridge, Netdev:
	default:
		j.problem(v.raw(), "no table of a family of nft")
		return nil
	}
	if name == "" {
		j.problem(v.raw(), "no table is named")
		return nil
	}
	j.found = true
	t, isNew := j.tables.of(j.rs, Family(j.name(string(family))), j.name(name))
	if isNew {
		t.Line = j.line
	}
	j.table, j.chain = t, nil
	return t
}

func (j *jsonReader) readTable(v jsonValue) {
	t := j.within(v, "name")
	if t == nil {
		return
	}
	t.Line = j.line
	t.Handle = uintMember(v, "handle")
	t.Comment = strings.Clone(v.text("comment"))
	for _, f := range v.texts("flags") {
		switch {
		// nft 1.0.6 writes a single flag from memory that it has freed, with something behind it: "dormanttable"
		// (table_flags_json).
		case strings.HasPrefix(f, "dormant"):
			t.Dormant = true
		case strings.HasPrefix(f, "owner"):
			t.Owner = true
		case f == "persist":
			// The table stays when its owner ends; nothing that a packet meets.
		default:
			t.Unclear = true
			j.problem(v.raw(), "the table's flag %q is not known", f)
		}
	}
}

// uintMember is a member that is a number, 0 when there is none.
func uintMember(v jsonValue, name string) uint64 {
	n, _ := numberMember(v, name)
	return n
}

func numberMember(v jsonValue, name string) (uint64, bool) {
	m, ok := v.member(name)
	if !ok {
		return 0, false
	}
	return m.uint()
}

// uint is a number as it is.
func (v jsonValue) uint() (uint64, bool) {
	if v.kind() != jsonNumber {
		return 0, false
	}
	n, err := strconv.ParseUint(v.str(), 10, 64)
	if err != nil {
		// nft writes some numbers of 32 bits with a sign ("s:i" of json_pack).
		signed, err := strconv.ParseInt(v.str(), 10, 32)
		return uint64(uint32(signed)), err == nil
	}
	return n, true
}

func intMember(v jsonValue, name string) int {
	m, ok := v.member(name)
	if !ok || m.kind() != jsonNumber {
		return 0
	}
	n, err := strconv.ParseInt(m.str(), 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

func boolMember(v jsonValue, name string) bool {
	m, ok := v.member(name)
	return ok && m.kind() == jsonTrue
}

// seconds is a member that is a number of seconds.
func seconds(v jsonValue, name string) time.Duration {
	return time.Duration(min(uintMember(v, name), uint64(longestDuration/1000))) * time.Second
}

func (j *jsonReader) readChain(v jsonValue) {
	t := j.within(v, "table")
	name := v.text("name")
	if t == nil {
		return
	}
	if name == "" {
		j.problem(v.raw(), "the chain has no name")
		return
	}
	if c := t.Chain(name); c != nil && len(c.Rules) > 0 {
		j.again[c] = true
	}
	c := t.AddChain(j.name(name))
	c.Line = j.line
	c.Handle = uintMember(v, "handle")
	c.Comment = strings.Clone(v.text("comment"))
	if hook := v.text("hook"); hook != "" {
		c.Base = &Base{
			Type: j.name(v.text("type")), Hook: j.name(hook), Priority: intMember(v, "prio"), Policy: j.name(v.text("policy")),
		}
		if c.Base.Policy == "" {
			c.Base.Policy = "accept"
		}
		for _, d := range v.texts("dev") {
			c.Base.Devices = append(c.Base.Devices, j.name(d))
		}
		for _, f := range v.texts("flags") {
			c.Base.Offload = c.Base.Offload || f == "offload"
		}
	}
}

func (j *jsonReader) readFlowtable(v jsonValue) {
	t := j.within(v, "table")
	if t == nil {
		return
	}
	f := Flowtable{
		Name: strings.Clone(v.text("name")), Hook: j.name(v.text("hook")), Priority: intMember(v, "prio"), Line: j.line,
		Handle: uintMember(v, "handle"),
	}
	for _, d := range v.texts("dev") {
		f.Devices = append(f.Devices, j.name(d))
	}
	for _, flag := range v.texts("flags") {
		switch flag {
		case "offload":
			f.Offload = true
		case "counter":
			f.Counter = true
		}
	}
	if _, ok := v.member("counter"); ok {
		f.Counter = true
	}
	t.addFlowtable(f)
}

// addFlowtable adds a flowtable, in place of one of the same name.
func (t *Table) addFlowtable(f Flowtable) {
	for i := range t.Flowtables {
		if t.Flowtables[i].Name == f.Name {
			t.Flowtables[i] = f
			return
		}
	}
	t.Flowtables = append(t.Flowtables, f)
}

// add adds an object, in place of one of the same kind and name.
func (x objectIndex) add(t *Table, o Object) {
	key := objectName{t, o.Kind, o.Name}
	if i, ok := x[key]; ok {
		t.Objects[i] = o
		return
	}
	x[key] = len(t.Objects)
	t.Objects = append(t.Objects, o)
}

// objectIndex finds objects of tables that are being read.
type objectIndex map[objectName]int

type objectName struct {
	table      *Table
	kind, name string
}

func (j *jsonReader) readRule(v jsonValue) {
	t := j.within(v, "table")
	if t == nil {
		return
	}
	name := v.text("chain")
	if j.chain == nil || j.chain.Name != name {
		if j.chain = t.Chain(name); j.chain == nil {
			if name == "" {
				j.problem(v.raw(), "the rule has no chain")
				return
			}
			j.chain = t.AddChain(j.name(name))
			j.chain.Line = j.line
		}
	}
	if j.again[j.chain] {
		j.problem(v.raw(), "the rules of chain %s are there again", name)
		j.chain.Rules = nil
		delete(j.again, j.chain)
	}
	r := &Rule{Handle: uintMember(v, "handle"), Comment: strings.Clone(v.text("comment")), Line: j.line}
	if expr, ok := v.member("expr"); ok && expr.kind() == jsonArray {
		r.Statements = make([]Statement, 0, expr.size())
		for s := range expr.children {
			r.Statements = append(r.Statements, j.statement(s)...)
		}
	}
	finishRule(t, r)
	j.chain.Rules = append(j.chain.Rules, r)
}

// finishRule sets what a rule says about itself from its statements.
func finishRule(t *Table, r *Rule) {
	for _, s := range r.Statements {
		if c, ok := s.(*Counter); ok && c.Name == "" && !r.HasCounter {
			r.Packets, r.Bytes, r.HasCounter = c.Packets, c.Bytes, true
		}
	}
	r.Text = t.RuleText(r)
}

// finish reads the elements that waited for the rules.
func (j *jsonReader) finish() {
	usages := make(map[*Table]map[string]usage)
	for _, p := range j.pending {
		if usages[p.table] == nil {
			usages[p.table] = p.table.usages()
		}
		u := usages[p.table][p.set.Name]
		p.set.Key = known(p.set.Key, u.key)
		p.set.Data = known(p.set.Data, u.data)
		j.line = p.line
		j.table = p.table
		s := jsonScanner{doc: p.elems}
		if err := s.value(); err != nil {
			continue
		}
		j.elements(p.set, jsonValue{&s, 0})
	}
}

// known takes widths that are not known from where a set is used.
func known(fields, used []Field) []Field {
	if len(fields) != len(used) {
		return fields
	}
	out := append([]Field(nil), fields...)
	for i := range out {
		if out[i].Size == 0 {
			out[i].Size = used[i].Size
		}
	}
	return out
}

// usage is what rules compare the keys of a set with, and what they take its data for.
type usage struct{ key, data []Field }

// usages are those of the sets that the table's rules name.
func (t *Table) usages() map[string]usage {
	all := make(map[string]usage)
	used := func(e, key Expr, data []Field) {
		s, ok := e.(SetRef)
		if !ok {
			return
		}
		u := all[s.Name]
		if u.key == nil {
			u.key = t.ExpressionFields(key)
		}
		if u.data == nil {
			u.data = data
		}
		all[s.Name] = u
	}
	var within func(e Expr, want []Field)
	within = func(e Expr, want []Field) {
		switch e := e.(type) {
		case *MapExpr:
			used(e.Map, e.Key, want)
		case *Binary:
			within(e.Left, want)
			within(e.Right, want)
		}
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, st := range r.Statements {
				switch st := st.(type) {
				case *Match:
					used(st.Right, st.Left, nil)
				case *VerdictMap:
					used(st.Map, st.Key, nil)
				case *SetUpdate:
					var data []Field
					if st.Data != nil {
						data = t.ExpressionFields(st.Data)
					}
					used(SetRef{st.Set}, st.Key, data)
				case *Assign:
					within(st.Value, t.ExpressionFields(st.To))
				case *ObjectRef:
					within(st.Map, nil)
				}
			}
		}
	}
	return all
}
