package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/report"
)

// kindRoute is the kind of steps that change routes and routing rules.
const kindRoute = "route"

// mendRoutes removes routes and routing rules that discard packets of Services. A route that is missing is the network
// plugin's to make, and is left.
func mendRoutes(s *site) []report.RepairStep {
	var out []report.RepairStep
	for _, o := range s.discarding() {
		reached := s.which(func(f *report.Finding) bool {
			return (f.ID == "no-route-to-backend" || f.ID == "no-route-to-service" || f.ID == "frontend-unreachable" || f.ID == "reply-blocked") && o.named(f)
		})
		if len(reached) == 0 {
			continue
		}
		first := &s.findings[reached[0]]
		step := report.RepairStep{
			Kind: kindRoute, Owner: ownerForeign, Consent: AllowForeign,
			Title:   fmt.Sprintf("remove %s %q", o.what, o.line),
			Reason:  first.Message,
			Affects: "packets to " + o.to + ", which then go by the next " + o.what + " that fits",
			Risk:    "whoever made it wanted such packets discarded, and may make it again",
			Do:      o.command("del"),
			Undo:    o.command("add"),
			Edits:   []report.RepairEdit{{Table: o.table, Object: o.line, Reason: first.Message, Was: []string{o.line}, Will: []string{}, Remove: true}},
		}
		step.Edits[0].Findings = s.mends(reached...)
		out = append(out, step)
	}
	return out
}

// A discarder is a route or a routing rule that discards packets.
type discarder struct {
	what, table string // "route", "IPv4 routes"
	family      int
	// words are what ip takes after "add" or "del", line what it prints, to what it is for.
	words    []string
	line, to string
	// text is how findings name it.
	text string
}

func (o *discarder) command(verb string) report.RepairCommand {
	object := "route"
	if o.what == "routing rule" {
		object = "rule"
	}
	return report.RepairCommand{Command: append([]string{"ip", fmt.Sprintf("-%d", o.family), object, verb}, o.words...)}
}

// named tells whether a finding says that packets end at this route or rule.
func (o *discarder) named(f *report.Finding) bool {
	return slices.ContainsFunc([]string{f.Subject, f.Got, f.Message}, func(text string) bool {
		_, after, ok := strings.Cut(text, o.text)
		// "… to 192.0.2.0/24 unreachable" is not the end of a longer name.
		return ok && (after == "" || strings.HasPrefix(after, ";") || strings.HasPrefix(after, " "))
	})
}

var discards = []string{"blackhole", "unreachable", "prohibit"}

// discarding are the routes and routing rules of the node that discard packets and that somebody made: the kernel's own
// are not among them, nor those of which not everything is known that ip needs to make them again.
func (s *site) discarding() []*discarder {
	var out []*discarder
	for i := range s.node.Host.Routes {
		r := &s.node.Host.Routes[i]
		if !slices.Contains(discards, r.Type) || r.Proto == "kernel" || r.From.IsValid() || r.TOS != "" || r.Via.IsValid() || len(r.NextHops) > 0 {
			continue
		}
		out = append(out, routeDiscarder(r))
	}
	for i := range s.node.Host.Rules {
		r := &s.node.Host.Rules[i]
		if !slices.Contains(discards, r.Action) || r.Other != "" || r.Detached {
			continue
		}
		out = append(out, ruleDiscarder(r))
	}
	return out
}

func routeDiscarder(r *host.Route) *discarder {
	o := &discarder{what: "route", table: fmt.Sprintf("IPv%d routes", r.Family), family: r.Family, to: r.Dst.String()}
	table := r.Table
	if table == "" {
		table = "main"
	}
	o.words = []string{r.Type, r.Dst.String()}
	if r.Metric != 0 {
		o.words = append(o.words, "metric", fmt.Sprint(r.Metric))
	}
	if r.Proto != "" && r.Proto != "boot" {
		o.words = append(o.words, "proto", r.Proto)
	}
	o.words = append(o.words, "table", table)
	o.line = strings.Join(o.words, " ")
	// As package host names a route.
	text := strings.TrimSpace(r.Text)
	if text == "" || strings.HasPrefix(text, "{") {
		text = r.String()
	}
	if o.text = "table " + table + ": " + text; strings.Contains(text, " table ") {
		o.text = "route " + text
	}
	return o
}

func ruleDiscarder(r *host.Rule) *discarder {
	o := &discarder{what: "routing rule", table: fmt.Sprintf("IPv%d routing rules", r.Family), family: r.Family, to: "all", text: "routing rule " + r.String()}
	add := func(words ...string) { o.words = append(o.words, words...) }
	if r.Not {
		add("not")
	}
	add("pref", fmt.Sprint(r.Priority))
	prefix := func(word string, p netip.Prefix) {
		if p.IsValid() {
			add(word, p.String())
		}
	}
	prefix("from", r.From)
	prefix("to", r.To)
	if r.To.IsValid() {
		o.to = r.To.String()
	}
	if r.Mask != 0 {
		add("fwmark", fmt.Sprintf("%#x/%#x", r.Mark, r.Mask))
	}
	if r.In != "" {
		add("iif", r.In)
	}
	if r.Out != "" {
		add("oif", r.Out)
	}
	add(r.Action)
	o.line = strings.Join(o.words, " ")
	return o
}

// findRoute is the route or routing rule of an edit.
func findRoute(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	s := &site{node: n}
	for _, o := range s.discarding() {
		if o.table == e.Table && o.line == e.Object {
			return []string{o.line}, true, nil
		}
	}
	return nil, false, nil
}
