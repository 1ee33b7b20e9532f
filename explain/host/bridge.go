package host

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseBridges reads `brctl show` into Links: bridges get their kind, ports their master. It does not make
// the list of interfaces complete. A line that cannot be used is a Problem; the error is for a text without
// any bridge.
func ParseBridges(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "bridges (brctl show)", file: file}
	l := newLinks(h)
	bridge := ""
	for n, line := range lines(text) {
		r.seen++
		words := strings.Fields(line)
		port := ""
		switch {
		case len(words) > 1 && words[0] == "bridge" && words[1] == "name":
			r.used++
			continue
		case (line[0] == ' ' || line[0] == '\t') && len(words) == 1:
			port = words[0]
		case len(words) == 3 || len(words) == 4:
			if words[2] != "yes" && words[2] != "no" {
				r.skip(n, line, "the third column of brctl show is yes or no")
				continue
			}
			bridge = words[0]
			b := l.get(bridge)
			b.Kind = "bridge"
			if b.BridgeEvidence == (Evidence{}) {
				b.BridgeEvidence = r.at(n, line)
			}
			r.used++
			if len(words) == 4 {
				port = words[3]
			}
		case paste.Prompt(line):
			continue
		default:
			r.skip(n, line, "not a row of brctl show")
			continue
		}
		switch {
		case port == "":
		case bridge == "":
			r.skip(n, line, "a port without a bridge above it")
		default:
			p := l.get(port)
			p.Master = bridge
			if p.BridgeEvidence == (Evidence{}) {
				p.BridgeEvidence = r.at(n, line)
			}
		}
	}
	return r.result()
}

// ParseBridgeLinks reads `bridge -d link`, as text or JSON (-j), into Links: the master of each port and its
// hairpin mode. It does not make the list of interfaces complete. A line that cannot be used is a Problem;
// the error is for a text without any port.
func ParseBridgeLinks(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "bridge ports (bridge link)", file: file}
	l := newLinks(h)
	if isJSON(text) {
		eachObject(r, text, func(o linkJSON, ev Evidence) {
			if l.json(r, o, ev) {
				r.used++
			}
		})
		return r.result()
	}
	blocks := linkBlocks{links: l, reading: r}
	for n, line := range lines(text) {
		r.seen++
		blocks.line(n, line)
	}
	return r.result()
}

var (
	hairpinPort = regexp.MustCompile(`/brif/([^/\s:=]+)/hairpin_mode\b`)
	hairpinLink = regexp.MustCompile(`/net/([^/\s:=]+)/brport/hairpin_mode\b`)
	hairpinOf   = regexp.MustCompile(`/net/([^/\s:=]+)/brif/`)
)

// ParseHairpin reads hairpin_mode files of bridge ports with their paths, as `grep . /sys/…/hairpin_mode`
// prints them: "/sys/devices/virtual/net/cni0/brif/veth1/hairpin_mode:0". Links get the mode, and the
// master where the path has it. A line that cannot be used is a Problem; the error is for a text without
// any mode.
func ParseHairpin(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "hairpin modes (/sys/…/hairpin_mode)", file: file}
	l := newLinks(h)
	for n, line := range lines(text) {
		r.seen++
		if err := l.hairpin(line, r.at(n, line)); err != nil {
			if !paste.Prompt(line) {
				r.skip(n, line, "%v", err)
			}
			continue
		}
		r.used++
	}
	return r.result()
}

func (l *links) hairpin(line string, ev Evidence) error {
	m := hairpinPort.FindStringSubmatchIndex(line)
	if m == nil {
		m = hairpinLink.FindStringSubmatchIndex(line)
	}
	if m == nil {
		return fmt.Errorf("no path of a hairpin_mode file")
	}
	value := strings.Trim(line[m[1]:], " \t:=")
	if value != "0" && value != "1" {
		return fmt.Errorf("hairpin_mode is 0 or 1, not %q", paste.Quote(value))
	}
	k := l.get(line[m[2]:m[3]])
	k.setHairpin(value, ev)
	if b := hairpinOf.FindStringSubmatch(line); b != nil {
		k.Master = b[1]
	}
	return nil
}
