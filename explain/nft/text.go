package nft

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseText reads what `nft list ruleset`, `nft list table` and their kin print (nft 0.9 to 1.1), as people paste it:
// with handles or without, with prompts before it, indented in any way, or cut off. Commands ("add rule …", define,
// include) are not read: what they make the kernel hold is not in them. File names the capture.
//
// The form says less than the kernel has: interfaces stand by name where rules have an index (see TypeIfindex), hours and
// dates are those of a time zone that is not named, and what nft prints of an extension of iptables is its translation,
// or nothing at all (XT without a name). Where a chain, set or object is listed again the later stands.
//
// An error says that there is nothing of nftables in the text; what could not be read stands in Ruleset.Problems.
func ParseText(text, file string) (*Ruleset, error) {
	r := textReader{rs: &Ruleset{File: file}, names: make(map[string]string), tables: make(tableIndex), objects: make(objectIndex)}
	r.text, r.line = strings.TrimPrefix(text, "\ufeff"), 1
	r.advance()
	r.ruleset()
	if len(r.rs.Tables) == 0 {
		return nil, fmt.Errorf("read nftables rules from %s: %w", file, errNoNFTText)
	}
	return r.rs, nil
}

var errNoNFTText = errors.New("it is no listing of nft: there is no table in it")

// textReader is the state of ParseText.
type textReader struct {
	tokens
	rs      *Ruleset
	tables  tableIndex
	objects objectIndex
	table   *Table
	// names are those that many rules share, so that they do not keep the text alive.
	names map[string]string
	// lines is set where elements go on over ends of lines: in named sets.
	lines bool
	// depth of braces and parentheses that are open.
	depth int
	// inline counts the chains in braces, which a listing gives no name.
	inline int
	// within is set where the text is a part of something else, and fixedLine is then the line of all that is in it.
	within    bool
	fixedLine int
}

func (r *textReader) name(s string) string {
	if n, ok := r.names[s]; ok {
		return n
	}
	s = strings.Clone(s)
	r.names[s] = s
	return s
}

func (r *textReader) problem(line int, text, format string, args ...any) {
	if len(r.rs.Problems) > maxProblems {
		return
	}
	r.rs.addProblem(Problem{Line: r.lineOf(line), Text: shorten(text), Why: fmt.Sprintf(format, args...)})
}

// lineOf is a line of the text as the capture counts it.
func (r *textReader) lineOf(line int) int {
	if r.within {
		return r.fixedLine
	}
	return line
}

// lineText is the line of a token, of long lines what stands around it.
func (r *textReader) lineText(t token) string {
	from := t.from
	for from > 0 && r.text[from-1] != '\n' && t.from-from < paste.Longest/2 {
		from--
	}
	line, _, _ := strings.Cut(r.text[from:min(len(r.text), from+2*paste.Longest)], "\n")
	return line
}

// unknown is the error for what stands here.
func (r *textReader) unknown(what string) error {
	switch r.tok.kind {
	case tokenEnd, tokenLine:
		return fmt.Errorf("the line ends where %s is due", what)
	}
	return fmt.Errorf("%q stands where %s is due", shorten(r.tok.text), what)
}

// ruleset reads tables until the end of the text.
func (r *textReader) ruleset() {
	for r.tok.kind != tokenEnd {
		switch {
		case r.tok.kind == tokenLine:
			r.advance()
		case r.tok.kind == tokenHash:
			r.remark()
		case r.is("table"):
			r.readTable()
		default:
			r.outside()
		}
	}
}

// outside goes over a line that belongs to no table: a prompt with the command, which says nothing, or something that
// is a problem.
func (r *textReader) outside() {
	line := r.lineText(r.tok)
	at := r.tok
	if isCommand(line) {
		r.remark()
		return
	}
	r.problem(at.line, line, "it stands outside of any table")
	// What it may open is not read either: its parts would be problems each.
	r.skipBlock()
}

// isCommand tells whether a line is one in which nft was called: it begins with a prompt, or with the command.
func isCommand(line string) bool {
	line = strings.TrimSpace(line)
	first, rest, _ := strings.Cut(line, " ")
	for range 4 {
		switch {
		case first == "nft" || strings.HasSuffix(first, "/nft"):
			return strings.Contains(rest, "list") || strings.Contains(rest, "-")
		case first == "$" || first == "#" || first == ">" || first == "sudo" || strings.IndexByte(first, '@') > 0:
		case strings.HasPrefix(first, "[") || strings.HasSuffix(first, "$") || strings.HasSuffix(first, "#") ||
			strings.HasSuffix(first, "]#") || strings.HasSuffix(first, "]$"):
		default:
			return false
		}
		if rest == "" {
			return true // a prompt at which nothing was typed
		}
		first, rest, _ = strings.Cut(strings.TrimSpace(rest), " ")
	}
	return false
}

// skipBlock goes to the end of the line, or of the block that opens in it.
func (r *textReader) skipBlock() {
	depth := 0
	for r.tok.kind != tokenEnd {
		switch {
		case r.is("{"):
			depth++
		case r.is("}"):
			if depth--; depth < 0 {
				depth = 0
			}
		case r.tok.kind == tokenLine && depth == 0:
			return
		}
		if r.tok.kind == tokenHash {
			r.remark()
			continue
		}
		r.advance()
		if depth > 0 && r.tok.kind == tokenWord && r.is("table") && r.headsTable() {
			return
		}
	}
}

// headsTable tells whether "table FAMILY NAME {" stands here at the beginning of a line.
func (r *textReader) headsTable() bool {
	look := r.tokens
	before := look.tok.from
	for before > 0 && isBlank(r.text[before-1]) {
		before--
	}
	if before > 0 && r.text[before-1] != '\n' {
		return false
	}
	if !look.accept("table") || look.tok.kind != tokenWord {
		return false
	}
	switch Family(look.tok.text) {
	case IP, IP6, Inet, ARP, Bridge, Netdev:
	default:
		return false
	}
	look.advance()
	if look.tok.kind != tokenWord {
		return false
	}
	look.advance()
	return look.is("{")
}

func (r *textReader) readTable() {
	at := r.tok
	line := r.lineText(at)
	r.advance()
	family, name := IP, ""
	if r.tok.kind == tokenWord {
		switch f := Family(r.tok.text); f {
		case IP, IP6, Inet, ARP, Bridge, Netdev:
			family = Family(r.name(string(f)))
			r.advance()
		}
	}
	if r.tok.kind == tokenWord || r.tok.kind == tokenString {
		name = r.name(r.tok.text)
		r.advance()
	}
	if name == "" || !r.is("{") {
		// `nft list tables` says no more.
		r.problem(at.line, line, "the line names a table and says nothing of what is in it")
		r.remark()
		return
	}
	r.advance()
	t, isNew := r.tables.of(r.rs, family, name)
	if isNew {
		t.Line = at.line
	}
	r.table = t
	t.Handle = r.handle(t.Handle)
	r.tableBody(t, at)
}

// handle reads "# handle 5", which may stand behind anything that has one.
func (r *textReader) handle(was uint64) uint64 {
	if r.tok.kind != tokenHash {
		return was
	}
	look := r.tokens
	look.advance()
	if look.accept("handle") && look.tok.kind == tokenWord {
		if n, err := strconv.ParseUint(look.tok.text, 10, 64); err == nil {
			was = n
		}
	}
	r.remark()
	return was
}

func (r *textReader) tableBody(t *Table, at token) {
	for {
		r.skipLines()
		switch {
		case r.tok.kind == tokenEnd:
			r.problem(at.line, r.lineText(at), "the listing ends inside of the table")
			return
		case r.accept("}"):
			return
		case r.accept(";"):
		case r.is("table") && r.headsTable():
			r.problem(at.line, r.lineText(at), "another table begins before this one ends")
			return
		default:
			r.tableItem(t)
		}
	}
}

func (r *textReader) tableItem(t *Table) {
	at := r.tok
	kind := r.tok.text
	if r.tok.kind != tokenWord {
		r.strange(at)
		return
	}
	r.advance()
	switch kind {
	case "comment":
		if r.tok.kind == tokenString {
			t.Comment = strings.Clone(r.tok.text)
			r.advance()
			return
		}
	case "flags":
		if r.tableFlags(t) {
			return
		}
		t.Unclear = true
	case "chain", "set", "map", "meter", "flowtable":
		if name, ok := r.blockName(); ok {
			switch kind {
			case "chain":
				r.readChain(t, name, at)
			case "flowtable":
				r.readFlowtable(t, name, at)
			default:
				r.readSet(t, kind, name, at)
			}
			return
		}
	case "ct":
		kind += " " + r.tok.text
		if isObjectKind(kind) {
			r.advance()
			if name, ok := r.blockName(); ok {
				r.readObject(t, r.name(kind), name, at)
				return
			}
		}
	case "counter", "quota", "limit", "secmark", "synproxy", "tunnel":
		if name, ok := r.blockName(); ok {
			r.readObject(t, r.name(kind), name, at)
			return
		}
	}
	r.strange(at)
}

// strange goes over a line of a table that is not known.
func (r *textReader) strange(at token) {
	r.problem(at.line, r.lineText(at), "it is nothing that a table holds")
	r.skipBlock()
}

func (r *textReader) tableFlags(t *Table) bool {
	for {
		switch {
		case r.is("dormant"):
			t.Dormant = true
		case r.is("owner"):
			t.Owner = true
		case r.is("persist"):
			// The table stays when its owner ends; nothing that a packet meets.
		default:
			return false
		}
		r.advance()
		if !r.accept(",") {
			return r.atEnd()
		}
	}
}

// blockName reads "NAME {".
func (r *textReader) blockName() (string, bool) {
	if r.tok.kind != tokenWord && r.tok.kind != tokenString {
		return "", false
	}
	name := r.name(r.tok.text)
	if r.peek().text != "{" || r.peek().kind != tokenPunct {
		return "", false
	}
	r.advance()
	r.advance()
	return name, true
}

// cutOff tells whether a block ends without its brace, which is a problem: the text ends, or a table begins.
func (r *textReader) cutOff(at token, what string) bool {
	if r.tok.kind == tokenEnd || r.is("table") && r.headsTable() {
		r.problem(at.line, r.lineText(at), "the listing ends inside of %s", what)
		return true
	}
	return false
}

func (r *textReader) readChain(t *Table, name string, at token) {
	c := t.Chain(name)
	before := []*Rule(nil)
	if c != nil {
		// Listed again, the later stands; `nft list chains` prints chains without their rules.
		before, c.Rules, c.Base = c.Rules, nil, nil
	}
	c = t.AddChain(name)
	c.Line = at.line
	c.Handle = r.handle(c.Handle)
	r.rules(t, c, at)
	switch {
	case len(before) == 0:
	case len(c.Rules) == 0:
		c.Rules = before
	default:
		r.problem(at.line, r.lineText(at), "the chain is listed again")
	}
}

// rules reads the lines of a chain up to its brace.
func (r *textReader) rules(t *Table, c *Chain, at token) {
	for {
		for r.tok.kind == tokenLine || r.tok.kind == tokenHash || r.is(";") {
			if r.tok.kind == tokenHash {
				if _, ok := r.oldExtension(); ok {
					break
				}
				r.remark()
				continue
			}
			r.advance()
		}
		switch {
		case r.cutOff(at, "the chain"):
			return
		case r.accept("}"):
			return
		case r.is("type") && !c.Inline:
			r.baseChain(t, c)
		case r.is("comment") && len(c.Rules) == 0 && c.Base == nil && r.commentLine():
			r.advance()
			c.Comment = strings.Clone(r.tok.text)
			r.advance()
		case r.is("chain") && r.headsBlock():
			r.problem(at.line, r.lineText(at), "another chain begins before this one ends")
			return
		default:
			if !r.readRule(t, c) {
				return
			}
		}
	}
}

// commentLine tells whether a line is nothing but a comment: that of the chain.
func (r *textReader) commentLine() bool {
	look := r.tokens
	look.advance()
	if look.tok.kind != tokenString {
		return false
	}
	look.advance()
	return look.atEnd()
}

// headsBlock tells whether "chain NAME {" stands here.
func (r *textReader) headsBlock() bool {
	look := r.tokens
	look.advance()
	if look.tok.kind != tokenWord {
		return false
	}
	look.advance()
	return look.is("{")
}

// baseChain reads "type filter hook input priority filter; policy accept;".
func (r *textReader) baseChain(t *Table, c *Chain) {
	at := r.tok
	b := &Base{Policy: "accept"}
	err := r.hook(t.Family, b)
	if err != nil {
		r.problem(at.line, r.lineText(at), "%s", err)
		for r.tok.kind != tokenEnd && r.tok.kind != tokenLine && !r.is("}") {
			r.advance()
		}
	}
	if b.Hook != "" {
		c.Base = b
	}
}

func (r *textReader) hook(f Family, b *Base) error {
	for !r.is("}") && r.tok.kind != tokenLine && r.tok.kind != tokenEnd {
		switch {
		case r.accept(";"):
		case r.accept("type"):
			b.Type = r.wordName()
		case r.accept("hook"):
			b.Hook = r.wordName()
		case r.accept("device"):
			if r.tok.kind != tokenString && r.tok.kind != tokenWord {
				return r.unknown("a device")
			}
			b.Devices = append(b.Devices, r.name(r.tok.text))
			r.advance()
		case r.accept("devices"):
			devices, err := r.devices()
			if err != nil {
				return err
			}
			b.Devices = devices
		case r.accept("priority"):
			priority, err := r.priority(f, b.Hook)
			if err != nil {
				return err
			}
			b.Priority = priority
		case r.accept("policy"):
			switch b.Policy = r.wordName(); b.Policy {
			case "accept", "drop":
			default:
				return fmt.Errorf("the policy %q is not known", b.Policy)
			}
		case r.accept("flags"):
			if !r.accept("offload") {
				return r.unknown("a flag of a chain")
			}
			b.Offload = true
		case r.tok.kind == tokenHash:
			r.remark()
			return nil
		default:
			return r.unknown("a property of a chain")
		}
	}
	return nil
}

// wordName is the word that stands here.
func (r *textReader) wordName() string {
	if r.tok.kind != tokenWord {
		return ""
	}
	s := r.name(r.tok.text)
	r.advance()
	return s
}

// devices reads "= { eth0, eth1 }".
func (r *textReader) devices() ([]string, error) {
	r.accept("=")
	if !r.accept("{") {
		return nil, r.unknown("a list of devices")
	}
	var out []string
	for !r.accept("}") {
		if r.tok.kind != tokenWord && r.tok.kind != tokenString {
			return nil, r.unknown("a device")
		}
		out = append(out, r.name(r.tok.text))
		r.advance()
		r.accept(",")
	}
	return out, nil
}

// priority reads a number, or a name with a number added or taken away.
func (r *textReader) priority(f Family, hook string) (int, error) {
	if r.tok.kind != tokenWord {
		return 0, r.unknown("a priority")
	}
	word := r.tok.text
	if n, err := strconv.ParseInt(word, 10, 32); err == nil {
		r.advance()
		return int(n), nil
	}
	base, ok := priorityNamed(f, hook, word)
	if !ok {
		return 0, fmt.Errorf("the priority %q is not known", word)
	}
	r.advance()
	sign := 0
	switch {
	case r.accept("+"):
		sign = 1
	case r.accept("-"):
		sign = -1
	default:
		return base, nil
	}
	n, err := strconv.ParseInt(r.tok.text, 10, 32)
	if err != nil || r.tok.kind != tokenWord {
		return 0, r.unknown("a number")
	}
	r.advance()
	return base + sign*int(n), nil
}

func (r *textReader) readFlowtable(t *Table, name string, at token) {
	f := Flowtable{Name: name, Line: at.line}
	f.Handle = r.handle(0)
	for {
		r.skipLines()
		var err error
		switch {
		case r.cutOff(at, "the flowtable"):
			t.addFlowtable(f)
			return
		case r.accept("}"):
			t.addFlowtable(f)
			return
		case r.accept(";"):
		case r.accept("hook"):
			f.Hook = r.wordName()
		case r.accept("priority"):
			f.Priority, err = r.priority(Netdev, f.Hook)
		case r.accept("devices"):
			f.Devices, err = r.devices()
		case r.accept("counter"):
			f.Counter = true
		case r.accept("flags"):
			for r.tok.kind == tokenWord {
				f.Offload = f.Offload || r.is("offload")
				r.advance()
				r.accept(",")
			}
		default:
			err = r.unknown("a property of a flowtable")
		}
		if err != nil {
			r.problem(r.tok.line, r.lineText(r.tok), "%s", err)
			r.skipBlock()
		}
	}
}

// readObject keeps the lines of a named object as they are.
func (r *textReader) readObject(t *Table, kind, name string, at token) {
	o := Object{Kind: kind, Name: name, Line: at.line}
	o.Handle = r.handle(0)
	var lines []string
	for {
		r.skipLines()
		if r.cutOff(at, "the object") || r.accept("}") {
			break
		}
		if r.is("comment") && r.peek().kind == tokenString {
			r.advance()
			o.Comment = strings.Clone(r.tok.text)
			r.advance()
			continue
		}
		from, to, depth := r.tok.from, r.tok.to, 0
		for r.tok.kind != tokenEnd && (r.tok.kind != tokenLine || depth > 0) {
			if r.is("{") {
				depth++
			}
			if r.is("}") {
				if depth == 0 {
					break
				}
				depth--
			}
			if r.tok.kind != tokenLine {
				to = r.tok.to
			}
			r.advance()
		}
		lines = append(lines, r.objectLine(kind, from, to))
	}
	o.Text = strings.Join(lines, "\n")
	r.objects.add(t, o)
}

// objectLine is a line of an object without its indentation. A synproxy has a blank on the side of the flag that is not
// set, which is part of it.
func (r *textReader) objectLine(kind string, from, to int) string {
	text := strings.Clone(r.text[from:to])
	if kind == "synproxy" {
		switch text {
		case "timestamp":
			return "timestamp "
		case "sack-perm":
			return " sack-perm"
		}
	}
	return text
}
