package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// kindSysctl is the kind of steps that set sysctls.
const kindSysctl = "sysctl"

// A knob is a sysctl that a finding asks for.
type knob struct {
	name, value string
	findings    []int
}

// mendSysctls sets the sysctls that findings say are wrong, one a step. What writes a sysctl at boot is not touched.
func mendSysctls(s *site) []report.RepairStep {
	var knobs []*knob
	for _, i := range s.which(func(*report.Finding) bool { return true }) {
		for _, k := range s.wanted(&s.findings[i]) {
			at := slices.IndexFunc(knobs, func(o *knob) bool { return o.name == k.name })
			if at < 0 {
				knobs = append(knobs, &k)
				at = len(knobs) - 1
			}
			knobs[at].findings = append(knobs[at].findings, i)
		}
	}
	var out []report.RepairStep
	for _, k := range knobs {
		// Setting the switch of all interfaces sets that of each.
		if s.setByAll(k, knobs) {
			s.mends(k.findings...)
			continue
		}
		out = append(out, s.set(k))
	}
	return out
}

// setByAll tells whether another knob sets this one too.
func (s *site) setByAll(k *knob, knobs []*knob) bool {
	family, key, ok := ofInterface(k.name)
	if !ok || key != "forwarding" {
		return false
	}
	return slices.ContainsFunc(knobs, func(o *knob) bool { return o != k && switchesAll(o.name) == family })
}

var interfaceSysctl = regexp.MustCompile(`^net\.(ipv[46])\.conf\.[^. ]+\.([a-z_]+)$`)

// ofInterface takes the name of a sysctl of an interface apart.
func ofInterface(name string) (family, key string, ok bool) {
	m := interfaceSysctl.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// switchesAll is the family whose interfaces a sysctl switches all at once when it is written, empty for others:
// inet_forward_change and addrconf_fixup_forwarding of the kernel write the forwarding of every interface.
func switchesAll(name string) string {
	switch name {
	case "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding":
		return "ipv4"
	case "net.ipv6.conf.all.forwarding":
		return "ipv6"
	}
	return ""
}

var (
	switchedOff = regexp.MustCompile(`\bnet\.ipv[46]\.conf\.[^ ]+\.forwarding is 0\b`)
	// loopbackOff is how package host says that loopback addresses are not routed on an interface.
	loopbackOff = regexp.MustCompile(`\bnet\.ipv4\.conf\.[^ ]+\.route_localnet (and|is|are)\b.* 0\b`)
	setting     = regexp.MustCompile(`^(net\.[^ =]+) = ([0-9]+)$`)
)

// wanted are the sysctls that would mend a finding.
func (s *site) wanted(f *report.Finding) []knob {
	var out []knob
	ask := func(name, value string) {
		// The names in a finding come from the node: only what was read as a sysctl is written as one.
		if now, _, ok := s.node.Host.Sysctl(name); ok && now != value {
			out = append(out, knob{name: name, value: value})
		}
	}
	switch f.ID {
	case "ip-forward-off":
		ask(f.Subject, "1")
	case "ipvs-conntrack-off":
		ask(f.Subject, "1")
	case "bridge-nf-call-iptables-off":
		// The bridge's own setting may say no as well, and then this sysctl is the one that counts for all bridges.
		if m := setting.FindStringSubmatch(f.Want); m != nil {
			ask(m[1], m[2])
		}
	case "rp-filter-strict-multi-interface":
		// The larger of all's and the interface's own counts, and 2 is the larger.
		ask("net.ipv4.conf."+f.Subject+".rp_filter", "2")
	case "conntrack-table-full":
		if m := conntrackMax.FindStringSubmatch(f.Remedy); m != nil && check.Rank(f.Severity) <= check.Rank(check.Critical) {
			ask(m[1], m[2])
		}
	case "frontend-unreachable", "reply-blocked":
		for _, text := range []string{f.Subject, f.Got} {
			if m := switchedOff.FindString(text); m != "" {
				ask(strings.TrimSuffix(m, " is 0"), "1")
			}
			if loopbackOff.MatchString(text) && s.node.Proxy.Mode == "iptables" {
				// As kube-proxy sets it when it starts (1.4 and newer, unless localhostNodePorts is off).
				ask("net.ipv4.conf.all.route_localnet", "1")
			}
		}
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(out, func(k knob) bool {
		again := seen[k.name]
		seen[k.name] = true
		return again
	})
}

var conntrackMax = regexp.MustCompile(`^sysctl -w (net\.[a-z_.]+)=([0-9]+) for now`)

// set is the step that writes a sysctl, with what takes it back: writing one may write others.
func (s *site) set(k *knob) report.RepairStep {
	was, _, _ := s.node.Host.Sysctl(k.name)
	step := report.RepairStep{
		Kind: kindSysctl, Owner: ownerNode,
		Title:   fmt.Sprintf("set %s to %s", k.name, k.value),
		Reason:  s.findings[k.findings[0]].Message,
		Affects: "all packets of the node that the sysctl decides about",
		Risk:    "what set it to " + was + " may have had a reason, and may set it again",
		Do:      report.RepairCommand{Command: []string{"sysctl", "-w", k.name + "=" + k.value}},
		Undo:    report.RepairCommand{Command: append([]string{"sysctl", "-w", k.name + "=" + was}, s.written(k)...)},
		Lasts:   "until the machine starts again, or sysctl --system or another program sets it",
	}
	edit := func(name, was, will string) {
		step.Edits = append(step.Edits, report.RepairEdit{
			Table: "sysctl", Object: name, Was: []string{name + " = " + was}, Will: []string{name + " = " + will}, Reason: step.Reason,
		})
	}
	edit(k.name, was, k.value)
	switch family := switchesAll(k.name); {
	case family == "ipv6" && s.hasAdvertisedRoutes():
		step.Risk += "; a router forgets the default routes that router advertisements gave it, unless accept_ra is 2: without another default route of IPv6 the node has none afterwards, and taking it back does not bring it before the next advertisement"
		fallthrough
	case family != "":
		step.Affects = "all " + map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family] + " packets that come to the node for somebody else; it switches the forwarding of every interface"
	}
	step.Edits[0].Findings = s.mends(k.findings...)
	return step
}

// written are the sysctls that writing one changes beside it and that have to be written after it to be as they are.
func (s *site) written(k *knob) []string {
	family := switchesAll(k.name)
	if family == "" {
		return nil
	}
	var out []string
	was, _, _ := s.node.Host.Sysctl(k.name)
	for name, value := range s.node.Host.Sysctls {
		of, key, ok := ofInterface(name)
		if ok && of == family && key == "forwarding" && value != was && switchesAll(name) == "" {
			out = append(out, name+"="+value)
		}
	}
	slices.Sort(out)
	// inet_forward_change: who forwards takes no redirects.
	const redirects = "net.ipv4.conf.all.accept_redirects"
	if value, _, ok := s.node.Host.Sysctl(redirects); ok && family == "ipv4" {
		out = append(out, redirects+"="+value)
	}
	return out
}

// hasAdvertisedRoutes tells whether a default route of IPv6 came from a router's advertisement.
func (s *site) hasAdvertisedRoutes() bool {
	for i := range s.node.Host.Routes {
		if r := &s.node.Host.Routes[i]; r.Family == 6 && r.Dst.Bits() == 0 && r.Proto == "ra" {
			return true
		}
	}
	return false
}

// findSysctl is the sysctl of an edit.
func findSysctl(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error) {
	value, _, ok := n.Host.Sysctl(e.Object)
	if !ok {
		return nil, false, nil
	}
	return []string{e.Object + " = " + value}, true, nil
}
