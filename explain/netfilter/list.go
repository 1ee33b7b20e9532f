package netfilter

import (
	"slices"
	"strings"
)

// ParseList reads the output of `iptables -L`, with or without -v, -n and --line-numbers, whole or in parts, as
// people paste it: wrapped lines, rules that grep left without their chain header. Such rules are kept in a
// chain with an empty name. What the listing does not show stays open: names that cannot be resolved become
// unreadable matches, and without -v every rule may test interfaces that are not shown.
func ParseList(text, file string, hint Hint) ([]*Ruleset, error) {
	r := listReader{capture: newCapture(plain(text), file, hint)}
	for {
		line, ok := r.in.next()
		if !ok {
			break
		}
		if len(line) > maxLine {
			r.problem(r.in.n, line, "longer than any rule the kernel can hold")
			continue
		}
		r.line(line, r.in.n)
	}
	return r.rulesets("a line of iptables -L")
}

// listReader reads the lines of a listing.
type listReader struct {
	capture
	arena
	// columns are those that the last header named; nil without one.
	columns []string
	chain   *Chain
	// last is the rule that a wrapped line would continue, joins the lines it has so far.
	last     *Rule
	lastLine string
	joins    int
	// mark is the number of problems before those of that rule.
	mark int
}

func (r *listReader) line(line string, n int) {
	line = strings.TrimRight(line, " \t")
	switch trimmed := strings.TrimLeft(line, " \t"); {
	case trimmed == "":
		r.last = nil
	case strings.HasPrefix(line, "Chain ") && r.header(line, n):
	case isColumns(trimmed):
		r.last = nil
		r.columns = fields(trimmed)
	case isElision(line):
		r.last = nil
		r.elided()
	case strings.HasPrefix(line, "# Warning: ip") && strings.Contains(line, "tables-legacy tables present"):
		r.legacy = true
	case r.row(line, n):
	case isPrompt(line):
		r.last, r.chain, r.columns = nil, nil, nil
		r.prompt(line)
	case r.joined(trimmed, n):
	default:
		r.problem(n, line, "not a line of iptables -L")
	}
}

// header reads "Chain FORWARD (policy DROP 0 packets, 0 bytes)" and "Chain KUBE-SERVICES (2 references)".
func (r *listReader) header(line string, n int) bool {
	name, rest, ok := strings.Cut(line[len("Chain "):], " ")
	if !ok || name == "" || !strings.HasPrefix(rest, "(") {
		return false
	}
	r.last, r.columns = nil, nil
	if strings.HasPrefix(rest, "(policy ") {
		r.builtin(name)
	} else if p := r.open; p != nil && p.table.Chain(name) != nil && p.table.Chain(name).Declared {
		r.end()
	}
	r.chain = r.addChain(name)
	r.chain.Declared, r.chain.Line = true, n
	if policy, ok := strings.CutPrefix(rest, "(policy "); ok {
		r.chain.Policy = policy[:max(0, strings.IndexAny(policy, " )"))]
	}
	return true
}

// isColumns tells the line of column titles.
func isColumns(line string) bool {
	for _, beginning := range [...]string{"pkts bytes target", "num   pkts bytes target", "num  target", "target     prot", "num pkts bytes target", "num target", "target prot"} {
		if strings.HasPrefix(line, beginning) {
			return true
		}
	}
	return false
}

// fields splits at blanks, at most the first few.
func fields(line string) []string {
	var out []string
	w := words{s: line}
	for len(out) < 16 {
		f, ok := w.next()
		if !ok {
			break
		}
		out = append(out, f)
	}
	return out
}

// row reads a rule.
func (r *listReader) row(line string, n int) bool {
	cols, ok := splitRow(line, r.columns)
	if !ok {
		return false
	}
	c := r.chain
	if c == nil {
		c = r.addChain("")
		r.problem(n, line, "the chain of this rule is not shown: no \"Chain NAME\" line stands before it")
	}
	rule := r.addRule(c)
	rule.Line = n
	r.last, r.lastLine, r.joins, r.mark = rule, line, 0, len(r.part().problems)
	if why := r.fill(rule, line, cols); why != "" {
		r.problem(n, line, why)
	}
	return true
}

// joined continues a wrapped line. A line break stands for a blank, or for nothing inside a word: the reading that
// leaves nothing open is taken, a blank first. Where there is none, more lines may follow.
func (r *listReader) joined(line string, n int) bool {
	rule := r.last
	r.last = nil
	if rule == nil || r.joins == maxJoins || len(r.lastLine)+len(line) > maxLine {
		return false
	}
	r.joins++
	for _, glue := range [...]string{" ", ""} {
		trial := Rule{Line: rule.Line}
		text := r.lastLine + glue + line
		cols, ok := splitRow(text, r.columns)
		if !ok {
			continue
		}
		p := r.part()
		v4, v6 := p.v4, p.v6
		if why := r.fill(&trial, text, cols); why != "" {
			p.v4, p.v6 = v4, v6
			continue
		}
		r.unproblem(r.mark)
		*rule = trial
		r.last, r.lastLine = rule, text
		return true
	}
	r.problem(n, line, "neither a line of iptables -L nor a readable rest of the line before")
	r.last, r.lastLine = rule, r.lastLine+" "+line
	return true
}

// rowColumns are the columns of a rule; optional ones are empty. rest begins behind the destination.
type rowColumns struct {
	pkts, bytes, target, prot, opt, in, out, src, dst string
	verbose                                           bool
	textAt, restAt                                    int
}

// splitRow finds the columns of a line. The option column ("--", "-f", "!f") is the landmark: the protocol stands
// before it, and before that the target, which may be missing. ip6tables up to 1.8.7 leaves the option column
// blank; then the two addresses are the landmark.
func splitRow(line string, titles []string) (c rowColumns, ok bool) {
	const most = 12 // num pkts bytes target prot opt in out source destination, and what follows
	var (
		f  [most]string
		at [most + 1]int
		n  int
	)
	w := words{s: line}
	for n < most {
		for w.i < len(line) && (line[w.i] == ' ' || line[w.i] == '\t') {
			w.i++
		}
		start := w.i
		end := start
		for end < len(line) && line[end] != ' ' && line[end] != '\t' {
			end++
		}
		if start == end {
			break
		}
		f[n], at[n] = line[start:end], start
		w.i = end
		n++
	}
	all := f[:n]
	landmark := slices.IndexFunc(all, func(s string) bool { return s == "--" || s == "-f" || s == "!f" })
	before := landmark // fields before the option column, the protocol being the last
	after := landmark + 1
	if landmark < 0 || landmark > 5 {
		landmark = -1
		if before, after = unmarked(all); before < 0 {
			return c, false
		}
	}
	if before < 1 {
		return c, false
	}
	c.prot = all[before-1]
	head := all[:before-1]
	numbers := 0
	for numbers < len(head) && isCount(head[numbers]) {
		numbers++
	}
	if len(head)-numbers > 1 {
		return c, false
	}
	if len(head) > numbers {
		c.target = head[numbers]
	}
	switch numbers {
	case 0, 1:
	case 2, 3:
		c.verbose = true
		c.pkts, c.bytes = head[numbers-2], head[numbers-1]
	default:
		return c, false
	}
	if titles != nil && slices.Contains(titles, "pkts") != c.verbose {
		return c, false
	}
	if landmark >= 0 {
		c.opt = all[landmark]
	}
	tail := all[after:]
	addrs := 0
	if c.verbose {
		if len(tail) < 4 {
			return c, false
		}
		c.in, c.out = tail[0], tail[1]
		addrs = 2
	}
	if len(tail) < addrs+2 {
		return c, false
	}
	c.src, c.dst = tail[addrs], tail[addrs+1]
	if landmark < 0 && !(isAddress(c.src) && isAddress(c.dst)) {
		return c, false
	}
	last := after + addrs + 1
	c.restAt = at[last] + len(all[last])
	c.textAt = at[numbers]
	return c, true
}

// unmarked finds the columns of a row without option column by its first two neighbouring addresses.
func unmarked(f []string) (before, after int) {
	for i := 1; i+1 < len(f); i++ {
		if !isAddress(f[i]) || !isAddress(f[i+1]) {
			continue
		}
		// Verbose rows have the two interfaces between protocol and source.
		if i >= 5 && isCount(f[0]) && isCount(f[1]) {
			return i - 2, i - 2
		}
		return i, i
	}
	return -1, -1
}

func isAddress(s string) bool {
	s, _ = negated(s)
	if s == "anywhere" {
		return true
	}
	_, _, ok := parseAddress(s)
	return ok
}

// isCount tells a number of packets or bytes, such as 0, 1234 or 12K.
func isCount(s string) bool {
	_, ok := parseCount(s)
	return ok
}

// parseCount reads a counter: iptables shortens big ones to thousands, with K, M, G or T behind.
func parseCount(s string) (uint64, bool) {
	if s == "" || len(s) > 20 {
		return 0, false
	}
	scale := uint64(1)
	switch s[len(s)-1] {
	case 'K':
		scale = 1e3
	case 'M':
		scale = 1e6
	case 'G':
		scale = 1e9
	case 'T':
		scale = 1e12
	}
	if scale > 1 {
		s = s[:len(s)-1]
	}
	n, ok := counter(s)
	if n > ^uint64(0)/scale {
		return 0, false
	}
	return n * scale, ok
}

// filling is a rule that is being read from a listing.
type filling struct {
	rule *Rule
	keep []Match
	why  string // what could not be read, first
}

// open keeps a test that could not be read.
func (f *filling) open(text, reason string) {
	f.keep = append(f.keep, &UnreadableMatch{Text: text, Why: reason, Rule: f.rule.Text})
	if f.why == "" {
		f.why = problem(text, reason)
	}
}

// fill reads the columns and what stands behind them into a rule. It returns what could not be read.
func (r *listReader) fill(rule *Rule, line string, c rowColumns) (why string) {
	rule.Text = line[c.textAt:]
	f := filling{rule: rule}
	if c.verbose {
		rule.Packets, _ = parseCount(c.pkts)
		rule.Bytes, _ = parseCount(c.bytes)
		rule.HasCounters = true
		if i := (Ifaces{In: listedIface(c.in), Out: listedIface(c.out)}); i != (Ifaces{}) {
			rule.Ifaces = &i
		}
	} else {
		f.keep = append(f.keep, &HiddenIfaces{File: r.file})
	}
	prot, not := negated(c.prot)
	if m, ok := parseProto(prot); ok {
		m.Not = not
		rule.Proto = m
	} else {
		f.open("protocol "+c.prot, "the name of the protocol is not known")
	}
	switch c.opt {
	case "-f":
		rule.Fragment = OnlyFragments
	case "!f":
		rule.Fragment = NoFragments
	}
	r.side(&f, &rule.Src, c.src, false)
	r.side(&f, &rule.Dst, c.dst, true)

	l := listing{s: line, i: c.restAt, rule: rule, arena: &r.arena}
	isGoto := l.word("[goto]")
	act := findAction(c.target)
	f.readMatches(&l, act)
	rule.Target = f.readTarget(&l, c.target, act, isGoto)
	if reject, ok := rule.Target.(Reject); ok {
		if strings.HasPrefix(reject.With, "icmp6-") {
			r.part().v6++
		} else if strings.HasPrefix(reject.With, "icmp-") {
			r.part().v4++
		}
	}
	rule.Matches = r.matches.copy(f.keep)
	return f.why
}

// side reads the source or destination column.
func (r *listReader) side(f *filling, into *AddrMatch, text string, dst bool) {
	s, not := negated(text)
	if s == "anywhere" && !not {
		return
	}
	prefix, odd, ok := parseAddress(s)
	is4 := ok && (prefix.IsValid() && prefix.Addr().Is4() || odd.Addr.Is4())
	switch {
	case !ok:
		name := "source "
		if dst {
			name = "destination "
		}
		f.open(name+text, "the listing was made without -n and shows a name, which only the node can resolve")
		return
	case is4:
		r.part().v4++
	default:
		r.part().v6++
	}
	switch {
	case odd.Addr.IsValid():
		odd.Dst, odd.Not = dst, not
		f.keep = append(f.keep, &odd)
	case prefix.Bits() > 0 || not:
		*into = AddrMatch{Prefix: prefix, Not: not}
	}
}

func listedIface(s string) IfaceMatch {
	if s == "*" || s == "any" || s == "+" {
		return IfaceMatch{}
	}
	name, not := negated(s)
	return IfaceMatch{Name: name, Not: not}
}

// readMatches reads the matches, up to the target's words. Words that nobody knows are kept as an unreadable match.
func (f *filling) readMatches(l *listing, act *action) {
	for l.peek() != "" {
		if m := nextListed(l); m != nil {
			if i, ok := m.(idler); !ok || !i.idle() {
				f.keep = append(f.keep, m)
			}
			if len(f.keep) > maxMatches {
				f.open("the rest of the line", "more matches than a rule can hold")
				l.i = len(l.s)
			}
			continue
		}
		if act != nil && (targetAhead(l, act) || strings.HasPrefix(l.s[l.i:], "[unsupported revision]")) {
			return
		}
		start := l.i
		for l.peek() != "" && (l.i == start || !anythingAhead(l, act)) {
			l.next()
			if l.i-start > 4096 {
				l.i = len(l.s)
			}
		}
		f.open(strings.TrimSpace(l.s[start:l.i]), "these words belong to no known match or target")
	}
}

// readTarget reads the target with its own words.
func (f *filling) readTarget(l *listing, name string, act *action, isGoto bool) Target {
	switch {
	case name == "":
		return nil
	case act == nil:
		return Jump{Chain: name, Goto: isGoto}
	}
	if l.word("[unsupported", "revision]") {
		const why = "printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it"
		f.open(name, why)
		return Unreadable{Name: name, Why: why}
	}
	if act.list == nil {
		return act.fixed
	}
	if t := act.list(l); t != nil {
		return t
	}
	const why = "the target's words cannot be read"
	f.open(name, why)
	return Unreadable{Name: name, Why: why}
}

// nextListed reads the match that stands next, nil when none does.
func nextListed(l *listing) Match {
	for i := range extensions {
		if m := l.try(extensions[i].list); m != nil {
			return m
		}
	}
	return nil
}

// targetAhead tells whether the target's own words stand next and end the line.
func targetAhead(l *listing, act *action) bool {
	if act.list == nil {
		return false
	}
	ahead := *l
	return act.list(&ahead) != nil && ahead.i > l.i && ahead.peek() == ""
}

func anythingAhead(l *listing, act *action) bool {
	ahead := *l
	ahead.rule, ahead.arena = &Rule{Proto: l.rule.Proto}, new(arena)
	return act != nil && targetAhead(&ahead, act) || nextListed(&ahead) != nil
}

// beginsListed tells whether text begins like a match or a target.
func beginsListed(text string) bool {
	w := listing{s: text}
	switch first, _ := negated(w.peek()); first {
	case "tcp", "udp", "udplite", "sctp", "dccp", "icmp", "icmptype", "ipv6-icmp", "ipv6-icmptype", "multiport", "mark", "MARK", "connmark", "CONNMARK",
		"ctstate", "state", "ADDRTYPE", "statistic", "recent:", "match-set", "PHYSDEV", "limit:", "nfacct-name", "reject-with", "random", "random-fully",
		"persistent", "redir", "masq", "/*", "":
		return true
	default:
		return strings.HasPrefix(first, "to:") || strings.HasPrefix(first, "ct")
	}
}
