package kubeproxy

import (
	"net/netip"
	"strings"
)

// chainText collects the rules of one chain in one piece of memory: a node has hundreds of thousands of them.
type chainText struct {
	name string
	// service is the Service that the rules added next are for; last as Rule.Last.
	service string
	last    bool

	text  strings.Builder
	rules []ruleEnd
}

// ruleEnd is a rule by where its text ends.
type ruleEnd struct {
	end     int
	service string
	last    bool
}

// add adds a rule of the parts, which are put together with blanks; empty ones are left out.
func (c *chainText) add(parts ...string) {
	c.text.WriteString("-A ")
	c.text.WriteString(c.name)
	for _, p := range parts {
		if p != "" {
			c.text.WriteByte(' ')
			c.text.WriteString(p)
		}
	}
	c.rules = append(c.rules, ruleEnd{c.text.Len(), c.service, c.last})
}

// chain is what was collected.
func (c *chainText) chain() *Chain {
	out := &Chain{Name: c.name, Rules: make([]Rule, len(c.rules))}
	text, begin := c.text.String(), 0
	for i, r := range c.rules {
		out.Rules[i] = Rule{Text: text[begin:r.end], Service: r.service, Last: r.last}
		begin = r.end
	}
	return out
}

// comment is the match of a comment. Texts with anything but letters, digits and "-_." are printed in quotes; those of
// kube-proxy hold no quote.
func comment(parts ...string) string {
	return `-m comment --comment "` + strings.Join(parts, "") + `"`
}

// not is a test turned round, nothing for none.
func not(test string) string {
	if test == "" {
		return ""
	}
	return "! " + test
}

// single is an address as iptables-save prints it: with the length of its prefix.
func single(a netip.Addr) string {
	if a.Is4() {
		return a.String() + "/32"
	}
	return a.String() + "/128"
}

// source is -s of a range; nothing for the range that holds all.
func source(p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return "-s " + p.String()
}
