package traits

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// The modes that rules tell apart.
const (
	modeIPTables  = "iptables"
	modeIPVS      = "ipvs"
	modeNFTables  = "nftables"
	modeUserspace = "userspace"
	// modeKernelspace is that of Windows, where there are no rules.
	modeKernelspace = "kernelspace"
)

// modeSign is what one rule set says of the mode. Strong: the entry chain leads to services in that mode's
// way; kube-proxy rewrites it at every start, so it is of the last mode that ran. Weak: a chain of that mode
// exists, which may be left over.
type modeSign struct {
	mode    string
	strong  bool
	backend netfilter.Backend
	Fact
}

// rulesOfMode says which mode the rule sets are of.
func rulesOfMode(rulesets []*netfilter.Ruleset) []modeSign {
	var signs []modeSign
	for _, rs := range rulesets {
		if s, ok := entrySign(rs); ok {
			signs = append(signs, s)
		} else if s, ok := chainSign(rs); ok {
			signs = append(signs, s)
		}
	}
	return signs
}

// entrySign looks at nat KUBE-SERVICES and at the portals of userspace mode.
func entrySign(rs *netfilter.Ruleset) (modeSign, bool) {
	nat := rs.Table("nat")
	if nat == nil {
		return modeSign{}, false
	}
	found := func(mode string, r *netfilter.Rule) (modeSign, bool) {
		return modeSign{mode, true, rs.Backend, Fact{Name: "mode", Value: mode, File: rs.File, Line: r.Line, Text: r.Text}}, true
	}
	if c := nat.Chain("KUBE-SERVICES"); c != nil {
		for i := range c.Rules {
			r := &c.Rules[i]
			switch to := jumpTarget(r); {
			case to == "KUBE-NODE-PORT", to == "KUBE-LOAD-BALANCER", strings.Contains(r.Text, "match-set KUBE-CLUSTER-IP "):
				return found(modeIPVS, r)
			case leadsToService(to):
				return found(modeIPTables, r)
			}
		}
	}
	for _, name := range [...]string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST"} {
		if c := nat.Chain(name); c != nil && len(c.Rules) > 0 {
			return found(modeUserspace, &c.Rules[0])
		}
	}
	return modeSign{}, false
}

func leadsToService(chain string) bool {
	switch signChain(chain) {
	case "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-":
		return true
	}
	return false
}

// chainSign looks for chains of one mode only.
func chainSign(rs *netfilter.Ruleset) (modeSign, bool) {
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			mode := ""
			switch signChain(c.Name) {
			case "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-IPVS-FILTER":
				mode = modeIPVS
			case "KUBE-NODEPORTS", "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-SEP-":
				mode = modeIPTables
			default:
				continue
			}
			f := Fact{Name: "mode", Value: mode, File: rs.File, Line: c.Line, Text: ":" + c.Name}
			if len(c.Rules) > 0 && c.Line == 0 {
				f.Line, f.Text = c.Rules[0].Line, c.Rules[0].Text
			}
			return modeSign{mode, false, rs.Backend, f}, true
		}
	}
	return jumpSign(rs)
}

// jumpSign looks for jumps to chains that were not captured themselves: `iptables -L | grep NAME`.
func jumpSign(rs *netfilter.Ruleset) (modeSign, bool) {
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			for i := range c.Rules {
				r := &c.Rules[i]
				if to := jumpTarget(r); leadsToService(to) || signChain(to) == "KUBE-SEP-" {
					return modeSign{modeIPTables, false, rs.Backend, ruleFact(rs, r, "mode", modeIPTables)}, true
				}
			}
		}
	}
	return modeSign{}, false
}

// readModeOfRules claims the mode that the rules are of. Rules of two modes claim nothing: which of the two
// still runs cannot be told from them. What they say is returned instead.
func (l *ledger) readModeOfRules(signs []modeSign) (undecided []Fact) {
	strongest := strongSigns(signs)
	modes := make(map[string]bool)
	for _, s := range strongest {
		modes[s.mode] = true
	}
	for _, s := range strongest {
		if len(modes) == 1 {
			l.add("mode", ruled, s.Fact)
			continue
		}
		f := s.Fact
		f.Text, f.Note = clip(f.Text), "not used: there are rules of two proxy modes"
		undecided = append(undecided, f)
	}
	return undecided
}

// strongSigns leaves out weak signs where there are strong ones.
func strongSigns(signs []modeSign) []modeSign {
	var strong []modeSign
	for _, s := range signs {
		if s.strong {
			strong = append(strong, s)
		}
	}
	if len(strong) > 0 {
		return strong
	}
	return signs
}

// backendOf says which backend holds the rules of the mode, with a fact for each. It is empty where the
// captures do not say, or where both backends have such rules.
func backendOf(signs []modeSign, mode string) (netfilter.Backend, []Fact) {
	var ofMode []modeSign
	for _, s := range signs {
		if s.mode == mode {
			ofMode = append(ofMode, s)
		}
	}
	var backends []netfilter.Backend
	var facts []Fact
	for _, s := range strongSigns(ofMode) {
		if s.backend == netfilter.UnknownBackend || slices.Contains(backends, s.backend) {
			continue
		}
		backends = append(backends, s.backend)
		f := s.Fact
		f.Name, f.Value, f.Text = "backend", string(s.backend), clip(f.Text)
		facts = append(facts, f)
	}
	if len(backends) == 1 {
		return backends[0], facts
	}
	for i := range facts {
		facts[i].Note = "not used: both backends hold rules of the proxy"
	}
	return netfilter.UnknownBackend, facts
}

// readRules claims the settings that the rules show.
func (l *ledger) readRules(rulesets []*netfilter.Ruleset, nodes []Node) {
	for _, rs := range rulesets {
		nat := rs.Table("nat")
		if nat == nil {
			continue
		}
		l.readMark(rs, nat)
		l.readNodePortRules(rs, nat)
		l.readDetector(rs, nat, nodes)
	}
}

// readMark reads the masquerade bit from KUBE-MARK-MASQ, which both kube-proxy and older kubelets write.
func (l *ledger) readMark(rs *netfilter.Ruleset, nat *netfilter.Table) {
	c := nat.Chain("KUBE-MARK-MASQ")
	if c == nil {
		return
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if m, ok := r.Target.(netfilter.SetMark); ok && m.Value != 0 && m.Value == m.Mask {
			l.add("masqueradeMark", ruled, ruleFact(rs, r, "masqueradeMark", markText(m.Value)))
		}
	}
}

// readNodePortRules reads the last rules of KUBE-SERVICES: all local addresses, or one rule for each address
// that --nodeport-addresses selected. That there is no such rule is not read as "no node ports": it may be gone.
func (l *ledger) readNodePortRules(rs *netfilter.Ruleset, nat *netfilter.Table) {
	c := nat.Chain("KUBE-SERVICES")
	if c == nil {
		return
	}
	var addrs []string
	var first *netfilter.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		if jumpTarget(r) != "KUBE-NODEPORTS" || !r.Dst.Prefix.IsValid() {
			continue
		}
		if !r.Dst.Not {
			addrs = append(addrs, r.Dst.Prefix.String())
			if first == nil {
				first = r
			}
		} else if rs.Family == netfilter.IPv4 && r.Dst.Prefix.Addr().IsLoopback() {
			l.add("localhostNodePorts", ruled, ruleFact(rs, r, "localhostNodePorts", "false"))
		}
	}
	if first == nil {
		return
	}
	slices.Sort(addrs)
	f := ruleFact(rs, first, "nodePortAddresses", strings.Join(addrs, ","))
	f.Note = "the addresses that the configured ranges selected"
	l.add(fmt.Sprintf("nodePortAddresses/%d", rs.Family), ruled, f)
}

// readDetector reads how the proxy tells pods of this node from other clients: the rule that masquerades
// cluster IP traffic excepts them, and the rule for pod traffic of a KUBE-EXT (KUBE-XLB) chain names them.
func (l *ledger) readDetector(rs *netfilter.Ruleset, nat *netfilter.Table, nodes []Node) {
	var masqueradesAll, services *netfilter.Rule
	exempt := false
	for _, c := range nat.Chains {
		switch signChain(c.Name) {
		case "KUBE-SERVICES", "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-XLB-":
		default:
			continue
		}
		for i := range c.Rules {
			r := &c.Rules[i]
			if services == nil && clusterIPRule(nat, r) {
				services = r
			}
			src, in, ok := detectorTests(rs, r)
			switch {
			case !ok:
				continue
			case src.Prefix.IsValid():
				l.addCIDRDetector(rs, r, src.Prefix, nodes)
				exempt = true
			case in.Name != "":
				l.addInterfaceDetector(rs, r, in.Name)
				exempt = true
			case masqueradesClusterTraffic(rs, r) && masqueradesAll == nil:
				masqueradesAll = r
			}
			if exempt {
				// One rule is enough: all of them are made by the same detector.
				return
			}
		}
	}
	switch {
	case masqueradesAll != nil:
		l.add("masqueradeAll", ruled, ruleFact(rs, masqueradesAll, "masqueradeAll", "true"))
	case services != nil && nat.Complete:
		f := ruleFact(rs, services, "localMode", noDetector)
		f.Note = "no cluster IP of this family has a rule that masquerades other clients"
		// Another family may have a detector, and then decides.
		l.add("localMode", assumed, f)
	}
}

// clusterIPRule tells a rule that sends a cluster IP to a chain that the table has with its rules.
func clusterIPRule(nat *netfilter.Table, r *netfilter.Rule) bool {
	if strings.Contains(r.Text, "match-set KUBE-CLUSTER-IP src,dst") {
		return true
	}
	if !strings.HasSuffix(r.Comment, " cluster IP") || !leadsToService(jumpTarget(r)) {
		return false
	}
	c := nat.Chain(jumpTarget(r))
	return c != nil && len(c.Rules) > 0
}

// masqueradesClusterTraffic tells the rule that masquerades traffic to a cluster IP, in iptables or IPVS mode.
// In IPVS mode "src,dst" is the rule of a proxy without detector, for connections of a service to itself.
func masqueradesClusterTraffic(rs *netfilter.Ruleset, r *netfilter.Rule) bool {
	if masqueradesClusterIP(rs, r) {
		return true
	}
	return jumpTarget(r) == "KUBE-MARK-MASQ" && strings.Contains(r.Text, "match-set KUBE-CLUSTER-IP dst,dst")
}

// detectorTests returns the source tests of a rule that the local detector makes.
func detectorTests(rs *netfilter.Ruleset, r *netfilter.Rule) (netfilter.AddrMatch, netfilter.IfaceMatch, bool) {
	if masqueradesClusterTraffic(rs, r) {
		if r.Src.Prefix.IsValid() && !r.Src.Not || r.In().Name != "" && !r.In().Not {
			return netfilter.AddrMatch{}, netfilter.IfaceMatch{}, false
		}
		return r.Src, r.In(), true
	}
	forPods := strings.HasPrefix(r.Comment, "pod traffic for ") || // KUBE-EXT, 1.24+
		strings.HasPrefix(r.Comment, "Redirect pods trying to reach external loadbalancer VIP") // KUBE-XLB
	if forPods && !r.Src.Not && !r.In().Not && (r.Src.Prefix.IsValid() || r.In().Name != "") {
		return r.Src, r.In(), true
	}
	return netfilter.AddrMatch{}, netfilter.IfaceMatch{}, false
}

func (l *ledger) addCIDRDetector(rs *netfilter.Ruleset, r *netfilter.Rule, cidr netip.Prefix, nodes []Node) {
	mode, note := "ClusterCIDR", ""
	for _, n := range nodes {
		if len(nodes) > 1 && slices.Contains(n.PodCIDRs, cidr) {
			mode, note = "NodeCIDR", "the range is the podCIDR of Node "+n.Name
		}
	}
	l.add(fmt.Sprintf("clusterCIDR/%d", rs.Family), ruled, ruleFact(rs, r, "clusterCIDR", cidr.String()))
	f := ruleFact(rs, r, "localMode", mode)
	f.Note = note
	l.add("localMode", ruled, f)
}

func (l *ledger) addInterfaceDetector(rs *netfilter.Ruleset, r *netfilter.Rule, name string) {
	mode := "BridgeInterface"
	if strings.HasSuffix(name, "+") {
		mode, name = "InterfaceNamePrefix", strings.TrimSuffix(name, "+")
	}
	l.add("localMode", ruled, ruleFact(rs, r, "localMode", mode))
	l.add("localInterface", ruled, ruleFact(rs, r, "localInterface", name))
}

func ruleFact(rs *netfilter.Ruleset, r *netfilter.Rule, name, value string) Fact {
	return Fact{Name: name, Value: value, File: rs.File, Line: r.Line, Text: r.Text}
}

func markText(mark uint32) string { return "0x" + strconv.FormatUint(uint64(mark), 16) }
