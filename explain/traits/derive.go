package traits

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// Derive says what the proxy is. Of several pieces of evidence for a trait the one that speaks most directly of
// the running process counts: an answer of its HTTP ports, its configuration, its command line, its log, and
// last the rules, which may be left over from another. What contradicts it is kept as a fact with a note.
//
// What nothing speaks of stays at its zero value, or at kube-proxy's default where Proxy says so. A source that
// cannot be read gives a fact named "unreadable" and no conclusion.
func Derive(in Evidence) Proxy {
	d := deriver{in: in, ledger: &ledger{}}
	d.proxy.MasqueradeMark = 1 << 14
	d.proxy.LocalhostNodePorts = true
	d.proxy.SyncPeriod = 30 * time.Second
	d.read()
	d.settleMode()
	d.settleVersion()
	d.settleSettings()
	d.settleRanges()
	d.settlePresence()
	d.proxy.Facts = append(d.proxy.Facts, d.unreadable...)
	return d.proxy
}

type deriver struct {
	in     Evidence
	ledger *ledger
	proxy  Proxy
	// live is what the answers of the HTTP ports say of the version.
	live span
	// modeSigns is what the rules say of the mode; undecided are rules of two modes.
	modeSigns  []modeSign
	undecided  []Fact
	unreadable []Fact
}

func (d *deriver) failed(src Source, err error) {
	if err != nil {
		d.unreadable = append(d.unreadable, Fact{Name: "unreadable", Value: src.File, File: src.File, Line: max(src.Line, 1), Note: err.Error()})
	}
}

// read collects the claims of all sources.
func (d *deriver) read() {
	l := d.ledger
	for _, src := range d.in.ProxyModes {
		l.readProxyMode(src)
	}
	for _, src := range d.in.Configz {
		d.failed(src, l.readConfigz(src, &d.live))
	}
	for _, src := range d.in.Metrics {
		l.readMetrics(src, &d.live)
		d.proxy.Health.readSyncMetrics(src)
	}
	for _, src := range d.in.Healthz {
		d.failed(src, readHealthz(src, &d.live))
		d.proxy.Health.readHealth(src)
	}
	for _, src := range d.in.Kubeconfigs {
		d.failed(src, l.readKubeconfig(src))
	}
	for _, src := range d.in.Configs {
		d.failed(src, l.readConfig(src, configured))
	}
	for _, src := range d.in.Args {
		set := setOf(readFlags(src))
		l.claimFlags(set, commandLine, false)
		l.claimClusterFlags(set)
	}
	for _, src := range d.in.ConfigMaps {
		d.failed(src, l.readConfig(src, clusterWide))
	}
	for _, src := range d.in.Logs {
		events, ends := l.readLog(src)
		d.proxy.Events = append(d.proxy.Events, events...)
		d.proxy.LogEnds = cmp.Or(ends, d.proxy.LogEnds)
	}
	for _, src := range d.in.HNS {
		l.add("mode", hosted, Fact{Name: "mode", Value: modeKernelspace, File: src.File, Line: max(src.Line, 1), Text: src.Text})
	}
	for _, src := range d.in.APIServerFlags {
		l.claimClusterFlags(setOf(readFlags(src)))
	}
	for _, src := range d.in.KubeadmConfigs {
		d.failed(src, l.readKubeadm(src))
	}
	for _, src := range d.in.CNILogs {
		l.readCNILog(src)
	}
	d.modeSigns = rulesOfMode(d.in.Rulesets)
	d.modeSigns = append(d.modeSigns, nftSigns(d.in.NFT)...)
	d.readOthers()
	d.undecided = l.readModeOfRules(d.modeSigns)
	// Other programs make virtual servers too: they tell the mode only where nothing else does.
	if f := d.in.VirtualServer; f.File != "" {
		f.Name, f.Value = "mode", modeIPVS
		l.add("mode", served, f)
	}
	l.readRules(d.in.Rulesets, d.in.Nodes)
	l.readNFT(d.in.NFT, d.in.Nodes)
	l.readFallback(d.in.NFT, d.in.Nodes)
}

// settle takes over the facts of a trait and returns the value that decides, "" and false when there is none.
func (d *deriver) settle(key string) (string, bool) {
	facts := d.ledger.settle(key)
	if len(facts) == 0 {
		return "", false
	}
	d.proxy.Facts = append(d.proxy.Facts, facts...)
	return facts[0].Value, true
}

func (d *deriver) settleMode() {
	d.proxy.Mode, _ = d.settle("mode")
	d.proxy.Facts = append(d.proxy.Facts, d.undecided...)
	if d.proxy.Mode == "" || d.proxy.Mode == modeNFTables || d.proxy.Mode == modeFallback {
		return
	}
	backend, facts := backendOf(d.modeSigns, d.proxy.Mode)
	d.proxy.Backend = string(backend)
	d.proxy.Facts = append(d.proxy.Facts, facts...)
}

// settleVersion takes the version that something names; else the range that the shape of answers and rules
// leaves. Rules that contradict an answer, or a named version, are another proxy's, or left over.
func (d *deriver) settleVersion() {
	if d.proxy.Mode == modeFallback {
		return // it does what the newest kube-proxy does, whichever there is or was
	}
	rules := d.spanOfRules()
	if text, ok := d.settle("version"); ok {
		d.proxy.Version, _ = ParseVersion(text)
		for _, s := range [...]span{d.live, rules} {
			for _, f := range s.facts() {
				if t, ok := boundOf(f, s); ok && !t.holds(d.proxy.Version) {
					f.Note = "not used: does not agree with " + d.proxy.Version.String()
					d.proxy.Facts = append(d.proxy.Facts, f)
				}
			}
		}
		return
	}
	s := rules
	if d.live.oldest > 0 || d.live.newest > 0 {
		s = d.live
		both := s
		both.intersect(rules)
		if both.empty() {
			d.contradicted(rules.facts(), "not used: does not agree with the proxy's own answers")
		} else {
			s = both
		}
	}
	if s.empty() {
		// New rules never outlive a downgrade as old ones outlive an upgrade: chains that nothing cleans up.
		d.contradicted([]Fact{s.newestFact}, "not used: other rules are of "+s.oldestFact.Value)
		s.newest = 0
	}
	if s.oldest == 0 && s.newest == 0 {
		return
	}
	d.proxy.VersionFromRules = true
	d.proxy.Version = floor
	if s.oldest > 0 {
		d.proxy.Version = Version{1, s.oldest, -1}
	}
	if s.newest > 0 {
		d.proxy.Newest = Version{1, s.newest, -1}
	}
	d.proxy.Facts = append(d.proxy.Facts, s.facts()...)
}

func (d *deriver) contradicted(facts []Fact, note string) {
	for _, f := range facts {
		f.Note = note
		d.proxy.Facts = append(d.proxy.Facts, f)
	}
}

// boundOf is the part of a span that one of its facts is the evidence for.
func boundOf(f Fact, s span) (span, bool) {
	switch {
	case s.oldest > 0 && f == s.oldestFact:
		return span{oldest: s.oldest}, true
	case s.newest > 0 && f == s.newestFact:
		return span{newest: s.newest}, true
	}
	return span{}, false
}

// spanOfRules narrows the version down by the rules of the mode at hand. Rules in a backend that is not the
// proxy's are left out.
func (d *deriver) spanOfRules() span {
	var table []tell
	switch d.proxy.Mode {
	case modeIPTables:
		table = iptablesTells
	case modeIPVS:
		table = ipvsTells
	case modeUserspace:
		table = userspaceTells
	}
	var rulesets []*netfilter.Ruleset
	for _, rs := range d.in.Rulesets {
		if d.proxy.Backend == "" || rs.Backend == "" || string(rs.Backend) == d.proxy.Backend {
			rulesets = append(rulesets, rs)
		}
	}
	found := findSigns(rulesets)
	if d.proxy.Mode == modeNFTables {
		found, table = nftFeatures(d.in.NFT), nftTells
	}
	var s span
	for _, t := range table {
		if at, ok := found[t.sign]; ok {
			s.narrow(t, Fact{File: at.file, Line: at.line, Text: at.text, Note: "by the rules: " + t.sign})
		}
	}
	d.settleDigits(found)
	return s
}

// settleDigits notes how probabilities are written; where both ways are seen, some rules are left over.
func (d *deriver) settleDigits(found map[string]seen) {
	short, isShort := found["probability with 5 digits"]
	long, isLong := found["probability with 10 digits"]
	at := long
	switch {
	case isShort == isLong:
		return
	case isShort:
		d.proxy.ProbabilityDigits, at = 5, short
	case isLong:
		d.proxy.ProbabilityDigits = 10
	}
	d.proxy.Facts = append(d.proxy.Facts, Fact{
		Name: "probabilityDigits", Value: strconv.Itoa(d.proxy.ProbabilityDigits),
		File: at.file, Line: at.line, Text: clip(at.text),
	})
}

func (d *deriver) settleSettings() {
	p := &d.proxy
	p.NodeName, _ = d.settle("nodeName")
	p.LocalMode, _ = d.settle("localMode")
	d.settleClusterCIDRs()
	if p.LocalMode == "BridgeInterface" || p.LocalMode == "InterfaceNamePrefix" {
		p.LocalInterface, _ = d.settle("localInterface")
	}
	suffix := ""
	if p.Mode == modeNFTables || p.Mode == modeFallback {
		suffix = "/" + p.Mode
	}
	if v, ok := d.settle("masqueradeAll" + suffix); ok {
		p.MasqueradeAll = v == "true"
	}
	if v, ok := d.settle("masqueradeMark" + suffix); ok {
		if mark, err := strconv.ParseUint(v, 0, 32); err == nil {
			p.MasqueradeMark = uint32(mark)
		}
	}
	d.settleNodePorts()
	if v, ok := d.settle("localhostNodePorts"); ok {
		p.LocalhostNodePorts = v == "true"
	}
	p.Server, _ = d.settle("server")
	// What virtual servers are given is no fact of its own either: it shows in them.
	if facts := d.ledger.settle("scheduler"); len(facts) > 0 {
		p.Scheduler = facts[0].Value
	}
	if facts := d.ledger.settle("excludeCIDRs"); len(facts) > 0 {
		p.ExcludeCIDRs = prefixes(strings.Split(facts[0].Value, ","))
	}
	// A period is no fact that anybody asks for: it only measures what the log says.
	if facts := d.ledger.settle("syncPeriod/" + p.Mode); len(facts) > 0 {
		if period, err := time.ParseDuration(facts[0].Value); err == nil && period > 0 {
			p.SyncPeriod = period
		}
	}
}

// settlePresence says whether the proxy runs. An answer or a process is enough for yes; for no both have to be
// missing, because some programs contain kube-proxy under their own name, and some run it without its ports.
func (d *deriver) settlePresence() {
	p := &d.proxy
	add := func(value string, sources []Source) {
		for _, src := range sources {
			text, _, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(src.Text, "\x00", " ")), "\n")
			p.PresenceEvidence = append(p.PresenceEvidence, Fact{Name: "presence", Value: value, File: src.File, Line: max(src.Line, 1), Text: clip(text)})
		}
	}
	answers := slices.Concat(d.in.ProxyModes, d.in.Healthz, d.in.Configz, d.in.Metrics)
	answers = answers[:min(len(answers), 1)] // one is enough
	if len(answers)+len(d.in.Args) > 0 {
		p.Presence = Running
		add("answers", answers)
		add("process", d.in.Args)
		return
	}
	if len(d.in.NoProcess) > 0 && len(d.in.NoListener) > 0 {
		p.Presence = Gone
	}
	add("no process", d.in.NoProcess)
	add("nobody listens", d.in.NoListener)
}

// settleClusterCIDRs fills the ranges that tell local pods.
func (d *deriver) settleClusterCIDRs() {
	p := &d.proxy
	switch p.LocalMode {
	case "NodeCIDR":
		// The range is in the Node object, and the proxy takes it from there.
		if n, ok := d.ownNode(); ok {
			for _, c := range n.PodCIDRs {
				f := Fact{Name: "clusterCIDR", Value: c.String(), File: n.File, Line: n.Line, Text: "podCIDRs of Node " + n.Name}
				d.ledger.add(familyKey("clusterCIDR", c), configured, f)
			}
		}
	case "ClusterCIDR":
	default:
		return
	}
	p.ClusterCIDRs = d.settlePrefixes("clusterCIDR")
}

// settlePrefixes returns the first range of each family.
func (d *deriver) settlePrefixes(trait string) []netip.Prefix {
	var ps []netip.Prefix
	for _, family := range [...]string{"/4", "/6"} {
		v, ok := d.settle(trait + family)
		if !ok {
			continue
		}
		if c, err := netip.ParsePrefix(v); err == nil {
			ps = append(ps, c)
		}
	}
	return ps
}

// ownNode is the Node object of the proxy's name; without a name, of the node whose evidence this is.
func (d *deriver) ownNode() (Node, bool) {
	name := d.proxy.NodeName
	if name == "" {
		name = d.in.NodeName
	}
	for _, n := range d.in.Nodes {
		if n.Name == name || name == "" && len(d.in.Nodes) == 1 {
			return n, true
		}
	}
	return Node{}, false
}

// settleNodePorts fills the addresses of node ports. Configured ranges come before the addresses that rules
// show; without either, nftables mode serves the primary addresses only since 1.31, and every local address before, as
// the others do.
func (d *deriver) settleNodePorts() {
	p := &d.proxy
	v, ok := d.settle("nodePortAddresses")
	if !ok {
		for _, family := range [...]string{"/4", "/6"} {
			if a, ok := d.settle("nodePortAddresses" + family); ok {
				v += "," + a
			}
		}
	}
	items := strings.Split(v, ",")
	p.NodePortAddresses = prefixes(items)
	for _, s := range items {
		p.NodePortPrimary = p.NodePortPrimary || s == "primary"
	}
	if p.NodePortAddresses == nil && p.Mode == modeNFTables && !p.Within(0, 30) {
		p.NodePortPrimary = true
	}
}

func (d *deriver) settleRanges() {
	p := &d.proxy
	p.ServiceCIDRs = d.settlePrefixes("serviceCIDR")
	if p.LocalMode == "ClusterCIDR" {
		for _, c := range p.ClusterCIDRs {
			f := Fact{Name: "podCIDR", Value: c.String(), Note: "the proxy's cluster CIDR"}
			for _, known := range p.Facts {
				if known.Name == "clusterCIDR" && known.Value == c.String() {
					f.File, f.Line, f.Text = known.File, known.Line, known.Text
					break
				}
			}
			d.ledger.add(familyKey("podCIDR", c), stated, f)
		}
	}
	p.PodCIDRs = d.settlePrefixes("podCIDR")
	if n, ok := d.ownNode(); ok {
		for _, c := range n.PodCIDRs {
			p.Facts = append(p.Facts, Fact{Name: "nodePodCIDR", Value: c.String(), File: n.File, Line: n.Line, Text: fmt.Sprintf("podCIDRs of Node %s", n.Name)})
		}
	}
}
