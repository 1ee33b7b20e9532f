package host

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseRules reads `ip rule` into Rules, as text or JSON (-j). The family is 4 or 6 where the command that
// was run tells, else 0: it is then derived for each listing in the text, from its addresses, from a pasted
// command or the file's name, and last from the kernel's own rules, of which only IPv4 has one for the
// default table.
//
// A line that cannot be used is a Problem; the error is for a text without any rule.
func ParseRules(h *Host, family int, text, file string) ([]Problem, error) {
	r := &reading{what: "routing rules (ip rule)", file: file}
	l := ruleListing{reading: r, family: family}
	if family == 0 && nameSaysIPv6(file) {
		l.family = 6
	}
	if isJSON(text) {
		eachObject(r, text, l.json)
	} else {
		for n, line := range lines(text) {
			r.seen++
			l.line(n, line)
		}
	}
	l.settle()
	l.addTo(h)
	r.used = len(l.rules)
	return r.result()
}

// ipv6Name matches file names such as ip-6-rule.txt, ip6-route.txt and ip-rule6.txt.
var ipv6Name = regexp.MustCompile(`(?i)(?:ip|ipv|inet|rules?|routes?)[-_]*6(?:\D|$)`)

func nameSaysIPv6(file string) bool { return ipv6Name.MatchString(path.Base(file)) }

type ruleListing struct {
	*reading
	family int
	rules  []Rule
	first  int // where the current listing starts in rules
}

func (l *ruleListing) line(n int, line string) {
	if paste.Prompt(line) {
		l.settle()
		if m := familyWord.FindStringSubmatch(line); m != nil {
			l.family = 4
			if m[1] == "6" || m[2] == "6" {
				l.family = 6
			}
		}
		return
	}
	rule, err := ruleOf(strings.Fields(line))
	if err != nil {
		l.skip(n, line, "%v", err)
		return
	}
	rule.Evidence = l.at(n, line)
	l.add(rule)
}

// add adds a rule. Rules are listed by priority, so a lower one starts the listing of another family.
func (l *ruleListing) add(r Rule) {
	if k := len(l.rules); k > l.first && r.Priority < l.rules[k-1].Priority {
		l.settle()
	}
	l.rules = append(l.rules, r)
}

// settle ends a listing: it gives its rules a family.
func (l *ruleListing) settle() {
	listing := l.rules[l.first:]
	l.first = len(l.rules)
	family, main := l.family, false
	for _, r := range listing {
		if family == 0 {
			family = r.Family
		}
		main = main || r.Table == "main"
	}
	if family == 0 {
		if family = 4; main {
			family = 6
		}
		for _, r := range listing {
			if r.Table == "default" {
				family = 4
			}
		}
	}
	for i := range listing {
		if listing[i].Family == 0 {
			listing[i].Family = family
		}
	}
}

func (l *ruleListing) addTo(h *Host) {
	have := make(map[Rule]bool, len(h.Rules)+len(l.rules))
	for _, r := range h.Rules {
		r.Evidence = Evidence{}
		have[r] = true
	}
	for _, r := range l.rules {
		if h.HasRules == nil {
			h.HasRules = make(map[int]bool, 2)
		}
		h.HasRules[r.Family] = true
		key := r
		key.Evidence = Evidence{}
		if !have[key] {
			have[key] = true
			h.Rules = append(h.Rules, r)
		}
	}
}

// ruleOf reads "1536: from 10.244.1.9 fwmark 0x80/0x80 iif eth0 lookup 2".
func ruleOf(words []string) (Rule, error) {
	var r Rule
	if len(words) < 3 || !strings.HasSuffix(words[0], ":") {
		return r, fmt.Errorf("a rule starts with its priority and a colon")
	}
	var err error
	if r.Priority, err = number(strings.TrimSuffix(words[0], ":")); err != nil {
		return r, err
	}
	var other []string
	for i := 1; i < len(words); i++ {
		key, value := words[i], ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		var err error
		switch key {
		case "not":
			r.Not = true
			continue
		case "[detached]":
			r.Detached = true
			continue
		case "[unresolved]", "unresolved":
			continue // a goto whose target does not exist, as the listing shows
		case "l3mdev":
			other = append(other, key)
			continue
		case "nop", "blackhole", "unreachable", "prohibit":
			r.Action = key
			continue
		case "from":
			err = r.prefix(&r.From, value)
		case "to":
			err = r.prefix(&r.To, value)
		case "fwmark":
			err = r.mark(value)
		case "iif", "dev":
			r.In = value
		case "oif":
			r.Out = value
		case "lookup", "table":
			r.Action, r.Table = "lookup", tableName(value)
			if value == "[l3mdev-table]" {
				r.Table, other = "", append(other, "l3mdev")
			}
		case "goto":
			r.Action = "goto"
			r.Goto, err = number(value)
		case "suppress_prefixlength":
			r.Suppress = true
			r.SuppressLength, err = number(value)
		case "tos", "dsfield", "uidrange", "ipproto", "sport", "dport", "tun_id", "suppress_ifgroup", "flowlabel", "dscp":
			other = append(other, key+" "+value)
		case "proto", "protocol", "realms":
		default:
			other = append(other, key)
			continue
		}
		if err != nil {
			return r, err
		}
		i++
	}
	if r.Action == "" {
		return r, fmt.Errorf("a rule without an action")
	}
	r.Other = strings.Join(other, " ")
	return r, nil
}

func (r *Rule) prefix(p *netip.Prefix, s string) error {
	if s == "all" || s == "default" || s == "any" {
		return nil
	}
	v, err := prefixOf(s)
	if err != nil {
		return err
	}
	*p, r.Family = v.Masked(), familyOf(v.Addr())
	return nil
}

func (r *Rule) mark(s string) error {
	mark, mask, masked := strings.Cut(s, "/")
	m, err := strconv.ParseUint(mark, 0, 32)
	if err != nil {
		return fmt.Errorf("fwmark %q cannot be read", paste.Quote(s))
	}
	r.Mark, r.Mask = uint32(m), 0xffffffff
	if masked {
		if m, err = strconv.ParseUint(mask, 0, 32); err != nil {
			return fmt.Errorf("fwmark %q cannot be read", paste.Quote(s))
		}
		r.Mask = uint32(m)
	}
	return nil
}

// ruleJSON is a rule as `ip -j rule` prints it. What is a flag there has the value null, so its presence is
// what counts.
type ruleJSON map[string]any

func (o ruleJSON) text(key string) string {
	switch v := o[key].(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// prefixed is an address with its length in a field of its own, as the text form writes it.
func (o ruleJSON) prefixed(key string) string {
	s := o.text(key)
	if n := o.text(key + "len"); n != "" && s != "" && s != "all" {
		s += "/" + n
	}
	return s
}

func (l *ruleListing) json(o ruleJSON, ev Evidence) {
	words := []string{o.text("priority") + ":"}
	flag := func(key, word string) {
		if _, ok := o[key]; ok {
			words = append(words, word)
		}
	}
	value := func(word, v string) {
		if v != "" {
			words = append(words, word, v)
		}
	}
	flag("not", "not")
	value("from", o.prefixed("src"))
	value("to", o.prefixed("dst"))
	mark := o.text("fwmark")
	if mask := o.text("fwmask"); mask != "" {
		mark += "/" + mask
	}
	value("fwmark", mark)
	value("iif", o.text("iif"))
	flag("iif_detached", "[detached]")
	value("oif", o.text("oif"))
	flag("oif_detached", "[detached]")
	flag("l3mdev", "l3mdev")
	value("tos", o.text("tos"))
	value("uidrange", span(o, "uid"))
	value("ipproto", o.text("ipproto"))
	value("sport", span(o, "sport")+o.text("sport"))
	value("dport", span(o, "dport")+o.text("dport"))
	value("tun_id", o.text("tun_id"))
	value("lookup", o.text("table"))
	value("suppress_prefixlength", o.text("suppress_prefixlen"))
	value("suppress_ifgroup", o.text("suppress_ifgroup"))
	value("goto", o.text("goto"))
	if a := o.text("action"); a != "" && a != "to_tbl" {
		words = append(words, a)
	}
	flag("nop", "nop")
	rule, err := ruleOf(words)
	if err != nil {
		l.skip(ev.Line, ev.Text, "%v", err)
		return
	}
	rule.Evidence = ev
	l.add(rule)
}

// span is a range that JSON gives in two fields.
func span(o ruleJSON, key string) string {
	from, to := o.text(key+"_start"), o.text(key+"_end")
	if from == "" {
		return ""
	}
	return from + "-" + to
}
