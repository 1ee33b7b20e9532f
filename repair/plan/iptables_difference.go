package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// xtDifference is one thing in which a table is not as kube-proxy writes it, with the change that would mend it.
type xtDifference struct {
	table *xtTable
	chain string
	// service is the Service whose it is, as "namespace/name"; empty for what serves all.
	service string
	object  object
	reason  string
	// harmless: packets fare the same with it. Only a finding that is about it asks for the change.
	harmless bool
	// repeated: the same rule stands there more than once.
	repeated bool
	// removes: the chain goes. orphan: nothing leads to it.
	removes bool
	// behind are rules of others that packets meet first.
	behind []*netfilter.Rule
	// change makes it as it should be. needs are the chains that rules lead to which it makes.
	change func(c *xtChain) *xtChain
	needs  []string
	// move makes the change for those of behind alone that findings name.
	move func(named []*netfilter.Rule) func(c *xtChain) *xtChain
}

// differ sets a table beside what kube-proxy writes in it.
type differ struct {
	table *xtTable
	want  *kubeproxy.Table
	out   []*xtDifference
	// mode is set where chains of other modes than that are removed by themselves (leftoverSteps).
	mode string
	// services are Services by the part of chain names that is a hash of their ports.
	services map[string]string
	// leadTo are Services by chains that their rules lead to, gathered at the first question.
	leadTo map[string]string
}

func (d *differ) add(x xtDifference) {
	x.table = d.table
	d.out = append(d.out, &x)
}

// differences are all in which a table is not as it should be, in a stable order.
func (d *differ) differences() []*xtDifference {
	for _, c := range d.want.Chains {
		d.chain(c)
	}
	if d.table.read != nil {
		for _, c := range d.table.read.Chains {
			d.extra(c)
		}
	}
	for _, b := range builtIns[d.want.Name] {
		d.jumps(b)
	}
	return d.out
}

// chain compares one chain that kube-proxy makes.
func (d *differ) chain(want *kubeproxy.Chain) {
	if want.Name == canaryChain {
		// kube-proxy writes everything anew when it is gone, and must not be kept from it.
		return
	}
	var have *netfilter.Chain
	if d.table.read != nil {
		have = d.table.read.Chain(want.Name)
	}
	switch {
	case want.Exists:
		if have == nil {
			d.add(xtDifference{chain: want.Name, reason: "the chain is missing", change: func(c *xtChain) *xtChain { return &xtChain{there: true} }})
		}
	case want.Kubelets:
		d.shared(want, have)
	case want.AnyOrder:
		d.portals(want, have)
	default:
		d.whole(want, have)
	}
}

const canaryChain = "KUBE-PROXY-CANARY"

// whole compares a chain whose rules have an order.
func (d *differ) whole(want *kubeproxy.Chain, have *netfilter.Chain) {
	if have != nil && alike(have.Rules, want.Rules) {
		return
	}
	x := xtDifference{chain: want.Name, service: want.Service, reason: whyWhole(want, have), needs: needsOf(want.Rules)}
	spelled := spelling(have)
	x.change = func(*xtChain) *xtChain {
		out := &xtChain{there: true}
		for _, r := range want.Rules {
			out.rules = append(out.rules, &xtRule{spelled.of(r.Text)})
		}
		return out
	}
	d.add(x)
}

// alike tells whether the rules of a chain do the same as those that are written. Which endpoint has which place among
// those that are chosen by lot makes no difference: each has the same chance.
func alike(have []netfilter.Rule, want []kubeproxy.Rule) bool {
	if len(have) != len(want) {
		return false
	}
	var here, there []string // endpoints that stand elsewhere, or the rules that remember clients of theirs
	for i := range want {
		a, b := have[i].Text, want[i].Text
		if sameRule(a, b, false) {
			continue
		}
		formA, endpointA, ok := chosen(a)
		formB, endpointB, also := chosen(b)
		if !ok || !also || !sameRule(formA, formB, false) {
			return false
		}
		here, there = append(here, endpointA), append(there, endpointB)
	}
	slices.Sort(here)
	slices.Sort(there)
	return slices.Equal(here, there)
}

// chosen takes a rule that leads to the chain of an endpoint apart: into what it is for any endpoint, and what it is for
// this one.
func chosen(rule string) (form, endpoint string, ok bool) {
	at := strings.LastIndex(rule, " -j "+dataplane.SEPPrefix)
	if at < 0 {
		return "", "", false
	}
	chain := rule[at+len(" -j "):]
	if strings.Contains(rule[:at], chain) { // -m recent --name KUBE-SEP-…
		return strings.ReplaceAll(rule, chain, dataplane.SEPPrefix), "recent " + chain, true
	}
	return rule[:at], chain, true
}

// whyWhole says how a chain differs.
func whyWhole(want *kubeproxy.Chain, have *netfilter.Chain) string {
	switch {
	case have == nil:
		return "the chain is missing"
	case len(have.Rules) == 0:
		return "the chain is empty"
	}
	left := make(map[string]int, len(have.Rules))
	for i := range have.Rules {
		left[ruleKey(have.Rules[i].Text)]++
	}
	missing := 0
	for _, r := range want.Rules {
		if k := ruleKey(r.Text); left[k] > 0 {
			left[k]--
		} else {
			missing++
		}
	}
	extra := len(have.Rules) - (len(want.Rules) - missing)
	switch {
	case missing > 0 && extra > 0:
		return fmt.Sprintf("%s not as kube-proxy writes %s", areRules(max(missing, extra)), map[bool]string{true: "it", false: "them"}[max(missing, extra) == 1])
	case missing > 0:
		return fmt.Sprintf("%s missing", areRules(missing))
	case extra > 0:
		return fmt.Sprintf("%s too many", areRules(extra))
	}
	return "the rules stand in another order than kube-proxy's"
}

func areRules(n int) string { return plural(n, "rule") + " " + agree(n, "is", "are") }

// needsOf are the chains that rules lead to.
func needsOf(rules []kubeproxy.Rule) []string {
	var out []string
	for _, r := range rules {
		if to := jumpOf(r.Text); to != "" && !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	return out
}

// jumpOf is the target of a rule; empty for a rule without.
func jumpOf(rule string) string {
	i := strings.LastIndex(rule, " -j ")
	if i < 0 {
		return ""
	}
	to, _, _ := strings.Cut(rule[i+len(" -j "):], " ")
	return to
}

// spelled are the rules of a chain as the node's iptables prints them.
type spelled map[string]string

func spelling(c *netfilter.Chain) spelled {
	if c == nil {
		return nil
	}
	out := make(spelled, len(c.Rules))
	for i := range c.Rules {
		text := c.Rules[i].Text
		out[strings.Join(ruleParts(text, true), "\x00")] = text
	}
	return out
}

// of is a rule as it stands there already, or as it is written.
func (s spelled) of(rule string) string {
	if len(s) == 0 {
		return rule
	}
	if have, ok := s[strings.Join(ruleParts(rule, true), "\x00")]; ok {
		return have
	}
	return rule
}

// shared compares a chain that kubelet fills too: what is missing, and what neither of them writes.
func (d *differ) shared(want *kubeproxy.Chain, have *netfilter.Chain) {
	var missing []kubeproxy.Rule
	for _, r := range want.Rules {
		if have == nil || !slices.ContainsFunc(have.Rules, func(h netfilter.Rule) bool { return sameRule(h.Text, r.Text, false) }) {
			missing = append(missing, r)
		}
	}
	if have == nil || len(missing) > 0 {
		reason := "the chain is missing"
		if have != nil {
			reason = areRules(len(missing)) + " missing"
		}
		d.add(xtDifference{chain: want.Name, reason: reason, change: func(c *xtChain) *xtChain {
			out := &xtChain{there: true, rules: slices.Clone(c.rules)}
			for _, r := range missing {
				out.rules = append(out.rules, &xtRule{r.Text})
			}
			return out
		}})
	}
	if have == nil {
		return
	}
	for i := range have.Rules {
		r := &have.Rules[i]
		if kubelets(r) || slices.ContainsFunc(want.Rules, func(w kubeproxy.Rule) bool { return sameRule(r.Text, w.Text, false) }) {
			continue
		}
		d.add(xtDifference{chain: want.Name, reason: "neither kube-proxy nor kubelet writes the rule " + ruleOnly(r.Text), behind: []*netfilter.Rule{r},
			change: func(c *xtChain) *xtChain { return withoutRule(c, r.Text, 1) }})
	}
}

// kubelets tells the rules that kubelet writes into KUBE-FIREWALL.
func kubelets(r *netfilter.Rule) bool {
	if _, drops := r.Target.(netfilter.Drop); !drops || r.Always() {
		return false
	}
	return r.Comment == "block incoming localnet connections" || r.Comment == "kubernetes firewall for dropping marked packets"
}

// ruleOnly is a rule without its chain.
func ruleOnly(text string) string {
	if rest, ok := strings.CutPrefix(text, "-A "); ok {
		_, rest, _ = strings.Cut(rest, " ")
		return rest
	}
	return text
}

// withoutRule takes rules of a text out of a chain, the last ones of them.
func withoutRule(c *xtChain, text string, times int) *xtChain {
	out := &xtChain{there: c.there, policy: c.policy, rules: slices.Clone(c.rules)}
	for i := len(out.rules) - 1; i >= 0 && times > 0; i-- {
		if out.rules[i].text == text {
			out.rules = slices.Delete(out.rules, i, i+1)
			times--
		}
	}
	return out
}

// portals compares a chain with rules of each Service, in no order but that those with Last come last.
func (d *differ) portals(want *kubeproxy.Chain, have *netfilter.Chain) {
	g := portalGroups{want: want, have: have, by: make(map[string]*portalGroup)}
	g.compare()
	for _, group := range g.inOrder {
		d.group(want.Name, have != nil, group)
	}
	if have != nil && len(g.order) > 0 {
		moved := g.order
		d.add(xtDifference{chain: want.Name, object: object{last: true}, reason: "the rules for node ports have to come last",
			change: func(c *xtChain) *xtChain {
				out := &xtChain{there: true}
				for _, r := range c.rules {
					if !slices.Contains(moved, r.text) {
						out.rules = append(out.rules, r)
					}
				}
				for _, text := range moved {
					out.rules = append(out.rules, &xtRule{text})
				}
				return out
			}})
	}
}

// portalGroup is what differs of the rules of one Service in such a chain.
type portalGroup struct {
	service string
	// missing are rules that are not there, extra the texts of those that should not be, twice of those that are there
	// more than once.
	missing []kubeproxy.Rule
	extra   []string
	twice   []string
}

type portalGroups struct {
	want    *kubeproxy.Chain
	have    *netfilter.Chain
	by      map[string]*portalGroup
	inOrder []*portalGroup
	// order are last rules that stand before rules of Services.
	order []string
}

func (g *portalGroups) of(service string) *portalGroup {
	if g.by[service] == nil {
		g.by[service] = &portalGroup{service: service}
		g.inOrder = append(g.inOrder, g.by[service])
	}
	return g.by[service]
}

func (g *portalGroups) compare() {
	// Most rules are there as they are written: these are found by their text alone.
	left := make(map[string]int)
	texts := make(map[string]bool)
	var rules []netfilter.Rule
	if g.have != nil {
		rules = g.have.Rules
		for i := range rules {
			left[rules[i].Text]++
			texts[rules[i].Text] = true
		}
	}
	var missing []kubeproxy.Rule
	for _, r := range g.want.Rules {
		switch {
		case left[r.Text] > 0:
			left[r.Text]--
		case texts[r.Text]:
			// An address that stands twice in an object is written twice.
		default:
			missing = append(missing, r)
		}
	}
	wanted := make(map[string]bool, len(g.want.Rules))
	lasts := make(map[string]bool)
	for _, r := range g.want.Rules {
		wanted[r.Text] = true
		if r.Last {
			lasts[r.Text] = true
		}
	}
	extra := make(map[string][]string) // by what they say, in any spelling
	var keys []string
	for i := range rules {
		text := rules[i].Text
		if left[text] == 0 {
			continue
		}
		if wanted[text] {
			left[text]--
			s := serviceOfComment(rules[i].Comment)
			g.of(s).twice = append(g.of(s).twice, text)
			continue
		}
		k := ruleKey(text)
		if extra[k] == nil {
			keys = append(keys, k)
		}
		extra[k] = append(extra[k], text)
		left[text]--
	}
	for _, r := range missing {
		if k := ruleKey(r.Text); len(extra[k]) > 0 {
			if r.Last {
				lasts[extra[k][0]] = true
			}
			extra[k] = extra[k][1:]
			continue
		}
		g.of(r.Service).missing = append(g.of(r.Service).missing, r)
	}
	for _, k := range keys {
		for _, text := range extra[k] {
			s := serviceOfRule(text)
			g.of(s).extra = append(g.of(s).extra, text)
		}
	}
	g.findOrder(rules, lasts)
}

// findOrder looks for last rules before others that stay.
func (g *portalGroups) findOrder(rules []netfilter.Rule, lasts map[string]bool) {
	gone := make(map[string]bool)
	for _, group := range g.inOrder {
		for _, text := range group.extra {
			gone[text] = true
		}
	}
	late := false
	for i := len(rules) - 1; i >= 0; i-- {
		text := rules[i].Text
		switch {
		case lasts[text] && late && !slices.Contains(g.order, text):
			g.order = append(g.order, text)
		case !lasts[text] && !gone[text]:
			late = true
		}
	}
	slices.Reverse(g.order)
}

// group makes the differences of one Service in such a chain.
func (d *differ) group(chain string, there bool, g *portalGroup) {
	o := object{service: g.service, shared: g.service == ""}
	if len(g.missing) > 0 || len(g.extra) > 0 || !there {
		d.add(xtDifference{chain: chain, service: g.service, object: o, reason: g.why(), needs: needsOf(g.missing), change: g.change})
	}
	if len(g.twice) > 0 {
		twice := g.twice
		d.add(xtDifference{chain: chain, service: g.service, object: o, harmless: true, repeated: true, reason: areRules(len(twice)) + " there more than once",
			change: func(c *xtChain) *xtChain {
				for _, text := range twice {
					c = withoutRule(c, text, 1)
				}
				return c
			}})
	}
}

func (g *portalGroup) why() string {
	switch m, x := len(g.missing), len(g.extra); {
	case m > 0 && x > 0:
		return fmt.Sprintf("%s not as kube-proxy writes %s", areRules(max(m, x)), map[bool]string{true: "it", false: "them"}[max(m, x) == 1])
	case m > 0:
		return areRules(m) + " missing"
	default:
		return fmt.Sprintf("%s not kube-proxy's, or not of a Service that is there", areRules(x))
	}
}

// change takes out what should not be there, and puts in what is missing: in the place of what goes, or before the rules
// that have to come last.
func (g *portalGroup) change(c *xtChain) *xtChain {
	out := &xtChain{there: true, rules: slices.Clone(c.rules)}
	at := -1
	for _, text := range g.extra {
		for i, r := range out.rules {
			if r.text == text {
				out.rules = slices.Delete(out.rules, i, i+1)
				if at < 0 {
					at = i
				}
				break
			}
		}
	}
	if at < 0 {
		at = len(out.rules)
		for at > 0 && isLast(out.rules[at-1].text) {
			at--
		}
	}
	for _, r := range g.missing {
		if r.Last {
			out.rules = append(out.rules, &xtRule{r.Text})
			continue
		}
		out.rules = slices.Insert(out.rules, at, &xtRule{r.Text})
		at++
	}
	return out
}

// isLast tells a rule that stands behind those of all Services.
func isLast(rule string) bool {
	return strings.HasPrefix(rule, "-A KUBE-SERVICES ") && strings.HasSuffix(rule, " -j KUBE-NODEPORTS")
}

// extra looks at a chain that is there: one of kube-proxy's that it would not have.
func (d *differ) extra(c *netfilter.Chain) {
	if d.want.Chain(c.Name) != nil || c.Name == canaryChain || dataplane.WrittenBy(d.want.Name, c.Name) != dataplane.KubeProxy {
		return
	}
	if d.mode != "" && dataplane.OtherMode(d.want.Name, c.Name, d.mode) != "" {
		return
	}
	service := d.serviceOf(c)
	d.add(xtDifference{
		chain: c.Name, service: service, removes: true, harmless: false, reason: "kube-proxy has no such chain for what the objects ask for",
		change: func(*xtChain) *xtChain { return &xtChain{} },
	})
}

// serviceOf is the Service whose chain it is: by its name, or what its rules say.
func (d *differ) serviceOf(c *netfilter.Chain) string {
	if s := d.services[hashOf(c.Name)]; s != "" {
		return s
	}
	for i := range c.Rules {
		if s := serviceOfComment(c.Rules[i].Comment); s != "" {
			return s
		}
	}
	// Large clusters leave comments out.
	if d.leadTo == nil {
		d.leadTo = make(map[string]string)
		for _, from := range d.table.read.Chains {
			owner := d.services[hashOf(from.Name)]
			for i := range from.Rules {
				to, ok := from.Rules[i].Target.(netfilter.Jump)
				if !ok || !dataplane.PerService(to.Chain) {
					continue
				}
				if s := cmp.Or(serviceOfComment(from.Rules[i].Comment), owner); s != "" {
					d.leadTo[to.Chain] = s
				}
			}
		}
	}
	return d.leadTo[c.Name]
}

// hashOf is the part of the name of a chain that the chains of one service port share; empty for others.
func hashOf(chain string) string {
	for _, prefix := range []string{dataplane.SVCPrefix, dataplane.SVLPrefix, dataplane.EXTPrefix, dataplane.FWPrefix, dataplane.XLBPrefix} {
		if id, ok := strings.CutPrefix(chain, prefix); ok {
			return id
		}
	}
	return ""
}

// jumps compares the jumps of one built-in chain.
func (d *differ) jumps(from string) {
	var have []netfilter.Rule
	if d.table.read != nil {
		if c := d.table.read.Chain(from); c != nil {
			have = c.Rules
		}
	}
	var missing []kubeproxy.Jump
	var late []string
	var behind []*netfilter.Rule
	wanted := make(map[string]bool)
	for _, j := range d.want.Jumps {
		if j.From != from {
			continue
		}
		wanted[j.To] = true
		at, times := -1, 0
		for i := range have {
			if to, ok := have[i].Target.(netfilter.Jump); ok && to.Chain == j.To && sameRule(have[i].Text, j.Text, false) {
				if times++; at < 0 {
					at = i
				}
			}
		}
		if at < 0 {
			missing = append(missing, j)
			continue
		}
		if before := d.obstacles(have[:at]); len(before) > 0 {
			late = append(late, have[at].Text)
			behind = append(behind, before...)
		}
		if times > 1 {
			text := have[at].Text
			d.add(xtDifference{chain: from, harmless: true, repeated: true, reason: fmt.Sprintf("the jump to %s stands there %d times", j.To, times),
				change: func(c *xtChain) *xtChain { return withoutRule(c, text, times-1) }})
		}
	}
	if len(late) > 0 {
		d.add(xtDifference{chain: from, harmless: true, behind: behind, reason: "packets meet rules of others before they get to kube-proxy's chains",
			move: func(named []*netfilter.Rule) func(c *xtChain) *xtChain {
				return func(c *xtChain) *xtChain { return moved(c, late, named) }
			}})
	}
	d.wrongJumps(from, have, wanted, missing)
}

// wrongJumps are the jumps that are missing, with those that lead to the same chain on other conditions.
func (d *differ) wrongJumps(from string, have []netfilter.Rule, wanted map[string]bool, missing []kubeproxy.Jump) {
	var wrong []string
	for i := range have {
		to, ok := have[i].Target.(netfilter.Jump)
		if !ok || !dataplane.Stock(d.want.Name, to.Chain) || dataplane.WrittenBy(d.want.Name, to.Chain) == dataplane.Kubelet || to.Chain == "KUBE-MARK-DROP" {
			continue
		}
		right := slices.ContainsFunc(d.want.Jumps, func(j kubeproxy.Jump) bool { return j.From == from && sameRule(have[i].Text, j.Text, false) })
		if !right && (wanted[to.Chain] || dataplane.WrittenBy(d.want.Name, to.Chain) == dataplane.KubeProxy) {
			wrong = append(wrong, have[i].Text)
		}
	}
	if len(missing) == 0 && len(wrong) == 0 {
		return
	}
	x := xtDifference{chain: from, change: func(c *xtChain) *xtChain { return rejumped(c, missing, wrong) }}
	var names []string
	for _, j := range missing {
		names = append(names, j.To)
		x.needs = append(x.needs, j.To)
	}
	switch {
	case len(wrong) == 0 && len(names) == 1:
		x.reason = "the jump to " + names[0] + " is missing"
	case len(wrong) == 0:
		x.reason = "the jumps to " + strings.Join(names, ", ") + " are missing"
	default:
		x.reason = areRules(len(wrong)) + " not as kube-proxy writes its jumps"
	}
	d.add(x)
}

// rejumped puts missing jumps in front, as kube-proxy does, or in the place of the rule that is there instead.
func rejumped(c *xtChain, missing []kubeproxy.Jump, wrong []string) *xtChain {
	out := &xtChain{there: true, policy: c.policy, rules: slices.Clone(c.rules)}
	left := slices.Clone(missing)
	for _, text := range wrong {
		at := slices.IndexFunc(out.rules, func(r *xtRule) bool { return r.text == text })
		if at < 0 {
			continue
		}
		out.rules = slices.Delete(out.rules, at, at+1)
		for i, j := range left {
			if j.To == jumpOf(text) {
				out.rules = slices.Insert(out.rules, at, &xtRule{j.Text})
				left = slices.Delete(left, i, i+1)
				break
			}
		}
	}
	for i := len(left) - 1; i >= 0; i-- {
		out.rules = slices.Insert(out.rules, 0, &xtRule{left[i].Text})
	}
	return out
}

// obstacles are rules of others that end packets, or bind their translation, before the jumps of kube-proxy.
func (d *differ) obstacles(rules []netfilter.Rule) []*netfilter.Rule {
	var out []*netfilter.Rule
	for i := range rules {
		r := &rules[i]
		switch to := r.Target.(type) {
		case netfilter.Accept, netfilter.Return:
			out = append(out, r)
		case *netfilter.Translate:
			if to.Kind == netfilter.DNAT || to.Kind == netfilter.Redirect {
				out = append(out, r)
			}
		case netfilter.Jump:
			if !dataplane.Stock(d.want.Name, to.Chain) && d.table.read.Ends(r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// moved puts jumps before the first of the rules that they stand behind.
func moved(c *xtChain, jumps []string, behind []*netfilter.Rule) *xtChain {
	out := &xtChain{there: true, policy: c.policy, rules: slices.Clone(c.rules)}
	first := slices.IndexFunc(out.rules, func(r *xtRule) bool {
		return slices.ContainsFunc(behind, func(b *netfilter.Rule) bool { return b.Text == r.text })
	})
	if first < 0 {
		return out
	}
	var again []*xtRule
	for i := first + 1; i < len(out.rules); i++ {
		if slices.Contains(jumps, out.rules[i].text) {
			again = append(again, &xtRule{out.rules[i].text})
			out.rules = slices.Delete(out.rules, i, i+1)
			i--
		}
	}
	out.rules = slices.Insert(out.rules, first, again...)
	return out
}

// editOf is a difference as an edit.
func (x *xtDifference) editOf(findings []string) report.RepairEdit {
	return report.RepairEdit{Reason: x.reason, Service: x.service, Findings: findings}
}
