package netfilter

import (
	"errors"
	"strconv"
	"strings"
)

// Hint is what is known of a capture beside its text. What the text itself says counts more.
type Hint struct {
	Family  Family
	Backend Backend
	Table   string
}

// ErrNoRules is the error of a text that holds nothing of the form that was asked for.
var ErrNoRules = errors.New("no iptables rules found")

// ParseSave reads the output of iptables-save and ip6tables-save, with or without counters: one ruleset for
// each family, backend and capture in it, in order of appearance. file names the text in evidence. A text
// without any line of that form is ErrNoRules; an empty one is a ruleset without tables, because
// iptables-save prints nothing where no table is registered.
func ParseSave(text, file string, hint Hint) ([]*Ruleset, error) {
	return parseRules(text, file, hint)
}

// ParseRules reads the output of `iptables -S`, whole or in parts, as people paste it: with shell prompts, "..."
// for what was left out, or filtered by grep. The table comes from the prompt, the hint, or the chains
// themselves. Its tables are never complete.
func ParseRules(text, file string, hint Hint) ([]*Ruleset, error) {
	return parseRules(text, file, hint)
}

// saveReader reads the lines of both forms.
type saveReader struct {
	capture
	rules ruleReader
	// last is the rule that a wrapped line would continue.
	last continuable
}

// continuable is a rule whose line may go on in the next.
type continuable struct {
	chain *Chain
	text  string // what stands behind "-A CHAIN "
	line  string
	mark  int // the number of problems before the rule's own
	joins int // the lines it has so far beside the first
}

// maxJoins bounds the lines that one rule is wrapped into.
const maxJoins = 8

func parseRules(text, file string, hint Hint) ([]*Ruleset, error) {
	text = plain(text)
	r := saveReader{capture: newCapture(text, file, hint)}
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
	return r.rulesets("a line of iptables-save or iptables -S")
}

// line reads one line.
func (r *saveReader) line(line string, n int) {
	line = strings.TrimRight(line, " \t")
	if line == "" {
		r.last.chain = nil
		return
	}
	switch line[0] {
	case '-':
		r.command(line, n)
		return
	case '[':
		if packets, bytes, rest, ok := counters(line); ok && strings.HasPrefix(rest, "-A ") {
			r.rule(rest, n, packets, bytes, true)
			return
		}
	case ':':
		r.declare(line, n)
		return
	case '*':
		if name := line[1:]; name != "" && strings.IndexByte(name, ' ') < 0 {
			r.last.chain = nil
			r.begin(name, n)
			return
		}
	case '#':
		if r.remark(line, n) || !isPrompt(line) {
			return
		}
	case 'C':
		if line == "COMMIT" {
			r.last.chain = nil
			r.commit()
			return
		}
	}
	switch {
	case isElision(line):
		r.last.chain = nil
		r.elided()
	case isPrompt(line):
		r.last.chain = nil
		r.prompt(line)
	case r.joined(line):
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), "-A "):
		r.rule(strings.TrimLeft(line, " \t"), n, 0, 0, false)
	default:
		r.problem(n, line, "not a line of iptables-save or iptables -S")
	}
}

// command reads a line that begins with "-".
func (r *saveReader) command(line string, n int) {
	switch {
	case strings.HasPrefix(line, "-A "):
		r.rule(line, n, 0, 0, false)
	case strings.HasPrefix(line, "-N "):
		r.last.chain = nil
		r.chain(strings.TrimSpace(line[3:]), "", n)
	case strings.HasPrefix(line, "-P "):
		r.last.chain = nil
		w := words{s: line[3:]}
		name, _ := w.next()
		policy, ok := w.next()
		if !ok {
			r.problem(n, line, "no policy")
			return
		}
		r.builtin(name)
		r.chain(name, policy, n)
	case r.joined(line):
	default:
		r.problem(n, line, "a command, not a rule of a capture")
	}
}

// declare reads ":CHAIN POLICY [packets:bytes]".
func (r *saveReader) declare(line string, n int) {
	r.last.chain = nil
	name, rest, ok := strings.Cut(line[1:], " ")
	if !ok || name == "" {
		r.problem(n, line, "not a chain declaration")
		return
	}
	policy, counters, _ := strings.Cut(rest, " ")
	if policy == "-" {
		policy = ""
	}
	c := r.chain(name, policy, n)
	if packets, _, ok := strings.Cut(strings.TrimPrefix(counters, "["), ":"); ok && policy != "" {
		// A count that is no number says nothing.
		c.PolicyPackets, _ = strconv.ParseUint(packets, 10, 64)
	}
}

func (r *saveReader) chain(name, policy string, n int) *Chain {
	c := r.addChain(name)
	if !c.Declared {
		c.Declared, c.Line = true, n
	}
	if policy != "" {
		c.Policy = policy
	}
	return c
}

// rule reads "-A CHAIN …".
func (r *saveReader) rule(line string, n int, packets, bytes uint64, counted bool) {
	name, rest := appendedTo(line[len("-A "):])
	if name == "" {
		r.problem(n, line, "no chain")
		return
	}
	c := r.addChain(name)
	rule := r.addRule(c)
	rule.Text, rule.Line = line, n
	rule.Packets, rule.Bytes, rule.HasCounters = packets, bytes, counted
	mark := len(r.part().problems)
	if why := r.read(rest, rule); why != "" {
		r.problem(n, line, why)
	}
	r.last = continuable{c, rest, line, mark, 0}
}

// read fills a rule and notes what it says of the family.
func (r *saveReader) read(text string, rule *Rule) (why string) {
	r.rules.v4, r.rules.v6 = 0, 0
	why = r.rules.read(text, rule)
	p := r.part()
	p.v4 += r.rules.v4
	p.v6 += r.rules.v6
	if r.rules.counts != "" {
		rule.Text = strings.Replace(rule.Text, " "+strings.TrimSpace(r.rules.counts), "", 1)
	}
	if why != "" {
		why = problem(r.rules.what, why)
	}
	return why
}

// joined continues the rule of the line before, which a terminal or a mail program has wrapped, if the two
// together can be read. A line break stands for a blank, or for nothing inside a word. A line that begins with an
// option belongs to the rule in any case: more of it may follow.
func (r *saveReader) joined(line string) bool {
	before := r.last
	r.last.chain = nil
	if before.chain == nil || before.joins == maxJoins || len(before.text)+len(line) > maxLine {
		return false
	}
	line = strings.TrimLeft(line, " \t")
	rule := &before.chain.Rules[len(before.chain.Rules)-1]
	join := func(glue string) (joined Rule, why string) {
		joined = Rule{Line: rule.Line, Packets: rule.Packets, Bytes: rule.Bytes, HasCounters: rule.HasCounters, Text: before.line + glue + line}
		why = r.read(before.text+glue+line, &joined)
		return joined, why
	}
	glue := " "
	trial, why := join(glue)
	if why != "" {
		if inWord, whyNot := join(""); whyNot == "" {
			glue, trial, why = "", inWord, ""
		} else if !beginsOption(line) {
			return false
		}
	}
	r.unproblem(before.mark)
	if why != "" {
		r.problem(rule.Line, trial.Text, why)
	}
	*rule = trial
	r.last = continuable{before.chain, before.text + glue + line, trial.Text, before.mark, before.joins + 1}
	return true
}

func beginsOption(line string) bool {
	if strings.HasPrefix(line, "--") {
		return true
	}
	return len(line) > 2 && line[0] == '-' && line[2] == ' ' && strings.IndexByte("sdiopmjg", line[1]) >= 0
}

// remark reads a comment of the tool; false for any other.
func (r *saveReader) remark(line string, n int) bool {
	r.last.chain = nil
	switch {
	case strings.HasPrefix(line, "# Generated by "):
		r.header(line[len("# Generated by "):])
	case strings.HasPrefix(line, "# Completed on "):
	case strings.HasPrefix(line, "# Table `") && strings.Contains(line, "is incompatible"):
		name, _, _ := strings.Cut(line[len("# Table `"):], "'")
		r.begin(name, n)
		r.problem(n, line, "the table holds rules that iptables cannot print: read it with `nft list ruleset`")
		r.elided()
		r.end()
	case strings.HasPrefix(line, "# Warning: ip") && strings.Contains(line, "tables-legacy tables present"):
		r.legacy = true
	default:
		return false
	}
	return true
}

// counters reads "[packets:bytes] " and returns what stands behind.
func counters(line string) (packets, bytes uint64, rest string, ok bool) {
	end := strings.IndexByte(line, ']')
	if end < 0 || end > 48 {
		return 0, 0, "", false
	}
	p, b, ok := strings.Cut(line[1:end], ":")
	if !ok {
		return 0, 0, "", false
	}
	if packets, ok = counter(p); !ok {
		return 0, 0, "", false
	}
	if bytes, ok = counter(b); !ok {
		return 0, 0, "", false
	}
	return packets, bytes, strings.TrimLeft(line[end+1:], " "), true
}

func counter(s string) (uint64, bool) {
	if s == "0" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// isElision tells whether a line stands for lines that were left out.
func isElision(line string) bool {
	line = strings.TrimSpace(line)
	switch line {
	case "…", "[...]", "[…]", "<snip>", "--":
		return true
	}
	return len(line) >= 2 && strings.Trim(line, ".") == ""
}
