package host

import (
	"strings"
)

// ParseSysctls reads sysctls into Sysctls: `sysctl -a` ("net.ipv4.ip_forward = 1"), "key: value" and
// "key=value", and paths under /proc/sys as `grep . -r` prints them ("/proc/sys/net/ipv4/ip_forward:1").
// Where a key stands twice the last one counts.
//
// Names are kept as sysctl(8) prints them: separated by dots, with a slash for a dot inside an interface
// name ("net.ipv4.conf.eth0/100.rp_filter"). What sysctl says it could not read is a Problem, not an empty
// value; the error is for a text without any value.
func ParseSysctls(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "sysctls", file: file}
	for n, line := range lines(text) {
		r.seen++
		name, value, ok := sysctlOf(line)
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "sysctl: "):
			r.skip(n, line, "sysctl could not read this one")
			continue
		case !ok && isPrompt(line):
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
		r.used++
	}
	return r.result()
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
