package host

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseSysctls reads sysctls into Sysctls: `sysctl -a` ("net.ipv4.ip_forward = 1"), "key: value" and
// "key=value", and paths under /proc/sys as `grep . -r` prints them ("/proc/sys/net/ipv4/ip_forward:1").
// Where a key stands twice the last one counts.
//
// A sysctl that is not there may not exist, or may not have been captured. It does not exist where the capture is known
// to be whole: SysctlsWithin. A line "# all of net.bridge net.netfilter" says so, and the whole output of `sysctl -a` does.
//
// Names are kept as sysctl(8) prints them: separated by dots, with a slash for a dot inside an interface
// name ("net.ipv4.conf.eth0/100.rp_filter"). What sysctl says it could not read is a Problem, not an empty
// value; the error is for a text without any value.
func ParseSysctls(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "sysctls", file: file}
	var (
		listed sysctlListing
		within []SysctlTree
	)
	for n, line := range lines(text) {
		r.seen++
		name, value, ok := sysctlOf(line)
		switch names, all := strings.CutPrefix(strings.TrimSpace(line), "# all of "); {
		case all:
			for name := range strings.FieldsSeq(names) {
				within = append(within, SysctlTree{Name: name, Evidence: r.at(n, line)})
			}
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "sysctl: "):
			r.skip(n, line, "sysctl could not read this one")
			listed.refused = true
			continue
		case !ok && paste.Prompt(line):
			continue
		case !ok:
			r.skip(n, line, "not a sysctl with its value")
			continue
		}
		if h.Sysctls == nil {
			h.Sysctls = make(map[string]string)
		}
		if h.SysctlEvidence == nil {
			h.SysctlEvidence = make(map[string]Evidence)
		}
		h.Sysctls[name] = value
		h.SysctlEvidence[name] = r.at(n, line)
		listed.add(name, r.at(n, line))
		r.used++
	}
	if listed.whole() {
		within = append(within, SysctlTree{Name: "net", Below: true, Evidence: listed.net})
	}
	if r.used > 0 {
		h.SysctlsWithin = append(h.SysctlsWithin, within...)
	}
	return r.result()
}

// SysctlTree is the beginning of names of which every sysctl was captured.
type SysctlTree struct {
	Name string // net.bridge
	// Below is true when names with further parts (net.netfilter.nf_log.2) were captured too.
	Below bool
	Evidence
}

// sysctlListing tells the whole output of `sysctl -a` from an excerpt of it: it goes through the trees in their order,
// and those of net are neither the first nor the last.
type sysctlListing struct {
	trees []string
	count int
	net   Evidence // of the first name of net
	// refused is true when sysctl could not read one that there is.
	refused bool
}

// leastListed is fewer than any kernel has below its trees, and more than anybody pastes by hand.
const leastListed = 300

func (l *sysctlListing) add(name string, ev Evidence) {
	l.count++
	tree, _, _ := strings.Cut(name, ".")
	if len(l.trees) > 0 && l.trees[len(l.trees)-1] == tree {
		return
	}
	l.trees = append(l.trees, tree)
	if tree == "net" {
		l.net = ev
	}
}

func (l *sysctlListing) whole() bool {
	at := slices.Index(l.trees, "net")
	return l.count >= leastListed && at > 0 && at < len(l.trees)-1 && slices.IsSorted(l.trees) && !l.refused
}

// SysctlAbsent tells whether there is certainly no such sysctl on the node, by a capture that has all of its kind.
func (h *Host) SysctlAbsent(name string) (Evidence, bool) {
	if _, there := h.Sysctls[name]; there {
		return Evidence{}, false
	}
	for _, t := range h.SysctlsWithin {
		if last, within := strings.CutPrefix(name, t.Name+"."); within && (t.Below || !strings.Contains(last, ".")) {
			return t.Evidence, true
		}
	}
	return Evidence{}, false
}

func sysctlOf(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(line)
	path := strings.HasPrefix(line, "/proc/sys/")
	line = strings.TrimPrefix(line, "/proc/sys/")
	// An interface name may hold a colon, so "=" is the separator where there is one.
	i := strings.IndexByte(line, '=')
	if colon := strings.IndexByte(line, ':'); i < 0 || path && colon >= 0 && colon < i {
		i = colon
	}
	if i <= 0 {
		return "", "", false
	}
	name, value = strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:])
	if name == "" || strings.ContainsAny(name, " \t\"'") || !strings.ContainsAny(name, "./") {
		return "", "", false
	}
	return sysctlName(name), value, true
}

// sysctlName turns a path into a dotted name. As for sysctl(8), the first separator in it tells which of
// the two forms it is.
func sysctlName(s string) string {
	if i := strings.IndexAny(s, "./"); i < 0 || s[i] == '.' {
		return s
	}
	return strings.Map(func(c rune) rune {
		switch c {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return c
	}, s)
}

// Sysctl is the value of a sysctl by its dotted name, with where it was read; ok is false when it was not
// captured.
func (h *Host) Sysctl(name string) (value string, ev Evidence, ok bool) {
	value, ok = h.Sysctls[name]
	if ok {
		ev = h.SysctlEvidence[name]
		if ev.Text == "" {
			ev.Text = name + " = " + value
		}
	}
	return value, ev, ok
}

// confName is the name of a per-interface sysctl: net.ipv4.conf.eth0.rp_filter.
func confName(family int, iface, key string) string {
	ip := "ipv4"
	if family == 6 {
		ip = "ipv6"
	}
	return "net." + ip + ".conf." + strings.ReplaceAll(iface, ".", "/") + "." + key
}
