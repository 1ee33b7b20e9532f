package traits

import (
	"net/netip"
	"strconv"
	"strings"
)

// flag is one command line flag with where it was read.
type flag struct {
	name, value string
	at          Fact // File, Line, Text
}

// switches are the flags that take no value of their own: what follows "--masquerade-all" is another word.
var switches = map[string]bool{
	"bind-address-hard-fail": true, "cleanup": true, "init-only": true, "ipvs-strict-arp": true,
	"iptables-localhost-nodeports": true, "logtostderr": true, "masquerade-all": true, "profiling": true,
}

// maxFlags bounds what is read of a command line; kube-proxy has under a hundred flags.
const maxFlags = 4096

// readFlags reads flags out of a command line in any of the ways in which one is captured: a line, one word a
// line, NUL between words (/proc/PID/cmdline), a list in a manifest ("- --proxy-mode=ipvs"), a JSON array.
func readFlags(src Source) []flag {
	var flags []flag
	waiting := false  // the last flag has no value yet
	embedded := false // the words are those of a program that runs kube-proxy inside itself
	src.lines(func(n int, line string) bool {
		at := Fact{File: src.File, Line: n, Text: clip(strings.TrimSpace(strings.ReplaceAll(line, "\x00", " ")))}
		// A JSON array need not have blanks.
		for _, word := range strings.FieldsFunc(strings.ReplaceAll(line, `","`, " "), isWordEnd) {
			word = strings.Trim(word, `"'[],`)
			if word == "" || word == "-" {
				continue
			}
			name, isFlag := strings.CutPrefix(word, "-")
			if !isFlag || waiting && flags[len(flags)-1].name == "kube-proxy-arg" {
				if waiting {
					flags[len(flags)-1].value = word
				}
				switch word[strings.LastIndexByte(word, '/')+1:] {
				case "k3s", "rke2":
					embedded = true
				}
				waiting = false
				continue
			}
			name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
			waiting = !hasValue && !switches[name]
			if switches[name] && !hasValue {
				value = "true"
			}
			flags = append(flags, flag{name, strings.Trim(value, `"'`), at})
			if len(flags) == maxFlags {
				return false
			}
		}
		return true
	})
	if embedded {
		return throughK3s(flags)
	}
	return flags
}

func isWordEnd(r rune) bool { return r == ' ' || r == '\t' || r == 0 }

// throughK3s returns the flags that k3s and RKE2 hand on to the kube-proxy inside them: those wrapped as
// --kube-proxy-arg=proxy-mode=ipvs, and some under names of their own. The rest (--config!) is not kube-proxy's.
func throughK3s(flags []flag) []flag {
	var inner []flag
	for _, f := range flags {
		switch f.name {
		case "kube-proxy-arg":
			f.name, f.value, _ = strings.Cut(strings.TrimLeft(f.value, "-"), "=")
		case "node-name":
			f.name = "hostname-override"
		case "cluster-cidr", "service-cidr":
		default:
			continue
		}
		inner = append(inner, f)
	}
	return inner
}

// flagSet is the flags of one command line; a flag given twice counts as given last.
type flagSet map[string]flag

func setOf(flags []flag) flagSet {
	set := make(flagSet, len(flags))
	for _, f := range flags {
		set[f.name] = f
	}
	return set
}

// claimFlags claims what kube-proxy's flags say. complete is true for a list of all flags with their defaults,
// as kube-proxy logs it; elsewhere a flag that is not there may be a default or not have been captured.
//
// With --config kube-proxy reads all of this from the file, and only --hostname-override still counts.
func (l *ledger) claimFlags(set flagSet, r rank, complete bool) {
	if f := set["hostname-override"]; f.value != "" {
		l.claimFlag(f, "nodeName", overridden, nodeName(f.value))
	}
	if set["config"].value != "" {
		return
	}
	if f, ok := set["proxy-mode"]; ok && f.value != "" {
		l.claimFlag(f, "mode", r, f.value)
	} else if ok && complete {
		// Linux; on Windows the default is kernelspace, which the log then says.
		l.claimDefault("mode", modeIPTables, f.at, "--proxy-mode is empty: kube-proxy's default")
	}
	if f, ok := set["masquerade-all"]; ok {
		l.claimBool(f, "masqueradeAll", r)
	}
	if f, ok := set["iptables-masquerade-bit"]; ok {
		if bit, err := strconv.ParseUint(f.value, 10, 5); err == nil {
			l.claimFlag(f, "masqueradeMark", r, markText(1<<bit))
		}
	}
	if f, ok := set["iptables-localhost-nodeports"]; ok {
		l.claimBool(f, "localhostNodePorts", r)
	}
	for _, mode := range [...]string{modeIPTables, modeIPVS} {
		if f, ok := set[mode+"-sync-period"]; ok {
			l.claimFlag(f, "syncPeriod/"+mode, r, f.value)
		}
	}
	if f := set["ipvs-scheduler"]; f.value != "" {
		l.claimFlag(f, "scheduler", r, f.value)
	}
	if f := set["ipvs-exclude-cidrs"]; strings.Trim(f.value, "[]") != "" {
		l.claimFlag(f, "excludeCIDRs", r, strings.ReplaceAll(strings.Trim(f.value, "[]"), " ", ","))
	}
	if f, ok := set["nodeport-addresses"]; ok {
		l.claimNodePortAddresses(strings.Split(strings.Trim(f.value, "[]"), ","), r, f.at)
	}
	_, hasCIDR := set["cluster-cidr"]
	l.claimDetector(detector{
		mode: set["detect-local-mode"].value, cidrs: set["cluster-cidr"].value,
		bridge: set["pod-bridge-interface"].value, prefix: set["pod-interface-name-prefix"].value,
		complete: complete && hasCIDR,
		at: func(trait string) Fact {
			mode := set["detect-local-mode"]
			switch {
			case trait == "localInterface" && mode.value == "BridgeInterface":
				return set["pod-bridge-interface"].at
			case trait == "localInterface":
				return set["pod-interface-name-prefix"].at
			case trait == "localMode" && mode.value != "" && mode.value != "ClusterCIDR":
				return mode.at
			}
			return set["cluster-cidr"].at
		},
	}, r)
}

func (l *ledger) claimFlag(f flag, trait string, r rank, value string) {
	fact := f.at
	fact.Name, fact.Value = trait, value
	l.add(trait, r, fact)
}

func (l *ledger) claimBool(f flag, trait string, r rank) {
	if b, err := strconv.ParseBool(f.value); err == nil {
		l.claimFlag(f, trait, r, strconv.FormatBool(b))
	}
}

func (l *ledger) claimDefault(trait, value string, at Fact, note string) {
	at.Name, at.Value, at.Note = trait, value, note
	l.add(trait, assumed, at)
}

// nodeName is how kube-proxy makes its node name of --hostname-override.
func nodeName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// noDetector is the local mode of a proxy that cannot tell pods of this node from other clients.
const noDetector = "-"

// detector is the configuration of the local detector in one source.
type detector struct {
	mode, cidrs, bridge, prefix string
	// complete is true when what is empty is empty on the node too.
	complete bool
	// at gives the evidence for a trait.
	at func(trait string) Fact
}

// claimDetector claims how local pods are told. kube-proxy's default is ClusterCIDR, and without a cluster
// CIDR that is no detector at all. Up to 1.17 there was nothing else.
func (l *ledger) claimDetector(d detector, r rank) {
	claim := func(trait, value, note string) {
		f := d.at(trait)
		f.Name, f.Value, f.Note = trait, value, note
		l.add(trait, r, f)
	}
	cidrs := prefixes(strings.Split(d.cidrs, ","))
	if d.mode != "NodeCIDR" {
		l.claimRanges("clusterCIDR", d.cidrs, r, d.at("clusterCIDR"))
	}
	switch d.mode {
	case "BridgeInterface", "InterfaceNamePrefix":
		claim("localMode", d.mode, "")
		name := d.bridge
		if d.mode == "InterfaceNamePrefix" {
			name = d.prefix
		}
		if name != "" {
			claim("localInterface", name, "")
		}
	case "NodeCIDR":
		claim("localMode", d.mode, "")
	case "ClusterCIDR", "":
		switch {
		case len(cidrs) > 0:
			claim("localMode", "ClusterCIDR", "")
		case d.complete:
			claim("localMode", noDetector, "there is no cluster CIDR: the proxy cannot tell pods from other clients")
		case d.mode != "":
			claim("localMode", d.mode, "")
		}
	}
}

// claimNodePortAddresses claims --nodeport-addresses; an empty list is the default of the mode.
func (l *ledger) claimNodePortAddresses(items []string, r rank, at Fact) {
	var values []string
	for _, s := range items {
		s = strings.TrimSpace(s)
		if s == "primary" {
			values = append(values, s)
		} else if p, err := netip.ParsePrefix(s); err == nil {
			values = append(values, p.Masked().String())
		}
	}
	if values == nil {
		values = []string{"default"}
	}
	at.Name, at.Value = "nodePortAddresses", strings.Join(values, ",")
	l.add("nodePortAddresses", r, at)
}

// prefixes reads ranges; what is none is passed over. Host bits are cleared, as kube-proxy does.
func prefixes(items []string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range items {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			ps = append(ps, p.Masked())
		}
	}
	return ps
}

// familyKey is the key of a trait that has a value for each address family.
func familyKey(trait string, p netip.Prefix) string {
	if p.Addr().Is4() {
		return trait + "/4"
	}
	return trait + "/6"
}

// claimRanges claims a range for each family, the first of a list as kube-proxy uses it.
func (l *ledger) claimRanges(trait, value string, r rank, at Fact) {
	done := make(map[string]bool)
	for _, p := range prefixes(strings.Split(value, ",")) {
		key := familyKey(trait, p)
		if done[key] {
			continue
		}
		done[key] = true
		at.Name, at.Value = trait, p.String()
		l.add(key, r, at)
	}
}

// claimClusterFlags claims the cluster's ranges out of flags of kube-apiserver, kube-controller-manager and k3s.
func (l *ledger) claimClusterFlags(set flagSet) {
	for _, name := range [...]string{"service-cidr", "service-cluster-ip-range"} {
		if f, ok := set[name]; ok {
			l.claimRanges("serviceCIDR", f.value, commandLine, f.at)
		}
	}
	if f, ok := set["cluster-cidr"]; ok {
		l.claimRanges("podCIDR", f.value, commandLine, f.at)
	}
}
