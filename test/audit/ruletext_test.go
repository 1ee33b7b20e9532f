package audit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ruleText is what iptables-save prints of one family, as lines that can be changed and loaded again.
type ruleText struct{ tables []*tableText }

type tableText struct {
	name string
	// chains are the lines ":NAME POLICY [0:0]", rules those of "-A NAME …", in order.
	chains, rules []string
}

var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// parseRules reads the output of iptables-save. Comments and counters go: they say when, not what.
func parseRules(text string) *ruleText {
	out := &ruleText{}
	var t *tableText
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			t = &tableText{name: line[1:]}
			out.tables = append(out.tables, t)
		case t == nil:
		case strings.HasPrefix(line, ":"):
			t.chains = append(t.chains, counters.ReplaceAllString(line, "[0:0]"))
		case strings.HasPrefix(line, "-A "):
			t.rules = append(t.rules, line)
		}
	}
	return out
}

// String is for iptables-restore.
func (r *ruleText) String() string {
	var b strings.Builder
	for _, t := range r.tables {
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, l := range slices.Concat(t.chains, t.rules) {
			b.WriteString(l + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// canonical is for comparing: the order of chains, and of rules of different chains, is none.
func (r *ruleText) canonical() string {
	c := r.clone()
	slices.SortFunc(c.tables, func(a, b *tableText) int { return strings.Compare(a.name, b.name) })
	for _, t := range c.tables {
		slices.Sort(t.chains)
		slices.SortStableFunc(t.rules, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	}
	return c.String()
}

func (r *ruleText) clone() *ruleText {
	out := &ruleText{}
	for _, t := range r.tables {
		out.tables = append(out.tables, &tableText{t.name, slices.Clone(t.chains), slices.Clone(t.rules)})
	}
	return out
}

// table finds or makes a table.
func (r *ruleText) table(name string) *tableText {
	for _, t := range r.tables {
		if t.name == name {
			return t
		}
	}
	t := &tableText{name: name}
	for _, chain := range builtin[name] {
		t.chains = append(t.chains, fmt.Sprintf(":%s ACCEPT [0:0]", chain))
	}
	r.tables = append(r.tables, t)
	return t
}

var builtin = map[string][]string{
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"raw":    {"PREROUTING", "OUTPUT"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
}

// chainOf is the chain of a rule, targetOf what it jumps to; empty for a rule without target.
func chainOf(rule string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(rule, "-A "), " ")
	return name
}

var jump = regexp.MustCompile(` -[jg] (\S+)`)

func jumpOf(rule string) string {
	if m := jump.FindStringSubmatch(withoutComment(rule)); m != nil {
		return m[1]
	}
	return ""
}

var comment = regexp.MustCompile(` -m comment --comment ("[^"]*"|\S+)`)

func withoutComment(rule string) string { return comment.ReplaceAllString(rule, "") }

// of are the indexes of the rules of a chain.
func (t *tableText) of(chain string) []int {
	var out []int
	for i, r := range t.rules {
		if chainOf(r) == chain {
			out = append(out, i)
		}
	}
	return out
}

// insert puts a rule at a place (from 0) in its chain.
func (t *tableText) insert(at int, rule string) {
	in := t.of(chainOf(rule))
	if at >= len(in) {
		t.rules = append(t.rules, rule)
		return
	}
	t.rules = slices.Insert(t.rules, in[at], rule)
}

var serviceComment = regexp.MustCompile(`store/([a-z0-9-]+)`)

// owners says of every chain of Services of the test which Service it serves: by the comments of its rules, and of
// those that jump to it.
func (r *ruleText) owners() map[string]string {
	out := map[string]string{}
	for _, t := range r.tables {
		for _, rule := range t.rules {
			m := serviceComment.FindStringSubmatch(rule)
			if m == nil {
				continue
			}
			for _, chain := range []string{chainOf(rule), jumpOf(rule)} {
				if serviceChain.MatchString(chain) {
					out[chain] = m[1]
				}
			}
		}
	}
	return out
}

var serviceChain = regexp.MustCompile(`^KUBE-(SVC|SVL|EXT|FW|SEP)-`)
