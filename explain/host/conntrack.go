package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseConntrack reads tracked connections into Flows: `conntrack -L` with or without -o extended, and
// /proc/net/nf_conntrack. Lines of `conntrack -E` are events and no entries: each is a Problem. So is a
// closing line that counts more entries than there are: the capture is cut. The error is for a text without
// any entry, unless it says that there are none.
func ParseConntrack(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "tracked connections (conntrack -L)", file: file}
	flows := 0
	for n, line := range lines(text) {
		r.seen++
		if count, ok := shownCount(line); ok {
			if r.used++; count > flows {
				r.skip(n, line, "only %d of %d entries are in the capture", flows, count)
			}
			flows = 0
			continue
		}
		f, err := flowOf(strings.Fields(line))
		if err != nil {
			if !paste.Prompt(line) {
				r.skip(n, line, "%v", err)
			}
			continue
		}
		f.Evidence = r.at(n, line)
		h.Flows = append(h.Flows, f)
		flows++
		r.used++
	}
	if r.used > 0 {
		h.HasFlows = true
	}
	return r.result()
}

// shownCount reads "conntrack v1.4.7 (conntrack-tools): 3 flow entries have been shown."
func shownCount(line string) (int, bool) {
	if !strings.HasPrefix(line, "conntrack v") {
		return 0, false
	}
	_, rest, ok := strings.Cut(line, "): ")
	if !ok {
		return 0, false
	}
	count, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(count)
	return n, err == nil && strings.HasPrefix(rest, "flow entries have been shown")
}

// flowOf reads an entry: protocol by name and number, seconds left, state, original tuple, reply tuple, and
// what is printed in between and after.
func flowOf(words []string) (Flow, error) {
	var f Flow
	if len(words) > 2 && (words[0] == "ipv4" || words[0] == "ipv6") {
		words = words[2:] // the columns of the network protocol, as its name and number
	}
	if len(words) < 4 {
		return f, fmt.Errorf("too short for an entry")
	}
	if strings.HasPrefix(words[0], "[") {
		return f, fmt.Errorf("an event of conntrack -E, not an entry of the table")
	}
	proto, err := strconv.ParseUint(words[1], 10, 8)
	if err != nil {
		return f, fmt.Errorf("the second word is not a protocol number")
	}
	f.Proto = uint8(proto)
	words = words[2:]
	// An offloaded entry has no timeout, and protocols without states have no state.
	if n, err := strconv.Atoi(words[0]); err == nil {
		f.Timeout, words = n, words[1:]
	}
	if len(words) > 0 && !strings.ContainsAny(words[0], "=[") {
		f.State, words = words[0], words[1:]
	}
	var tuples [2]tuple
	dir := -1 // 0 in the original tuple, 1 in the reply
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			switch w {
			case "[UNREPLIED]":
				f.Unreplied = true
			case "[ASSURED]":
				f.Assured = true
			case "[OFFLOAD]", "[HW_OFFLOAD]":
				f.Offloaded = true
			}
			continue
		}
		if key == "src" {
			if dir++; dir > 1 {
				return f, fmt.Errorf("three tuples in one entry")
			}
		}
		switch key {
		case "src", "dst", "sport", "dport":
			if dir < 0 {
				return f, fmt.Errorf("%s before the first src", key)
			}
			if err := tuples[dir].set(key, value); err != nil {
				return f, err
			}
		case "mark":
			m, err := strconv.ParseUint(value, 0, 32)
			if err != nil {
				return f, fmt.Errorf("mark %q cannot be read", paste.Quote(value))
			}
			f.Mark = uint32(m)
		case "zone":
			f.Zone, _ = strconv.Atoi(value)
		}
	}
	orig, reply := tuples[0], tuples[1]
	if !orig.src.IsValid() || !orig.dst.IsValid() || !reply.src.IsValid() || !reply.dst.IsValid() {
		return f, fmt.Errorf("an entry needs an original and a reply tuple")
	}
	f.Family = familyOf(orig.src)
	f.Src, f.Dst, f.SrcPort, f.DstPort = orig.src, orig.dst, orig.sport, orig.dport
	f.ReplySrc, f.ReplyDst, f.ReplySrcPort, f.ReplyDstPort = reply.src, reply.dst, reply.sport, reply.dport
	return f, nil
}

type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
}

func (t *tuple) set(key, value string) error {
	switch key {
	case "src", "dst":
		a, err := netip.ParseAddr(value)
		if err != nil {
			return fmt.Errorf("%s %q is not an address", key, paste.Quote(value))
		}
		if key == "src" {
			t.src = a
		} else {
			t.dst = a
		}
	case "sport", "dport":
		p, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("%s %q is not a port number", key, paste.Quote(value))
		}
		if key == "sport" {
			t.sport = uint16(p)
		} else {
			t.dport = uint16(p)
		}
	}
	return nil
}
