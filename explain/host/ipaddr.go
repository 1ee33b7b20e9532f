package host

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseAddrs reads `ip addr` into Addrs, and into Links where interfaces are shown with their flags: plain,
// with -d, one-line (-o), brief (-br) and JSON (-j), of one family or both. A line or object that cannot be
// used is a Problem; the error is for a text without any interface or address.
func ParseAddrs(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "addresses (ip addr)", file: file}
	l := newLinks(h)
	before := len(h.Links)
	add := newAddrs(h)
	shown := false // interfaces were listed, not only named beside their addresses
	if isJSON(text) {
		eachObject(r, text, func(o linkJSON, ev Evidence) {
			if len(o.Flags) > 0 || o.Index != 0 {
				if !l.json(r, o, ev) {
					return
				}
				shown = true
			}
			r.used++
			for _, a := range o.Addrs {
				add.json(r, o.Name, a, ev)
			}
		})
	} else {
		blocks := linkBlocks{links: l, reading: r}
		blocks.address = func(link string, words []string, ev Evidence) {
			a, err := addrOf(words)
			if err != nil {
				r.skip(ev.Line, ev.Text, "%v", err)
				return
			}
			if a.Link = link; link == "" {
				// A leftover of grep: IPv4 addresses end in their label, which starts with the interface.
				a.Link, _, _ = strings.Cut(a.label, ":")
			}
			a.Evidence = ev
			add.one(a.Addr)
			r.used++
		}
		for n, line := range lines(text) {
			r.seen++
			blocks.line(n, line)
		}
		shown = len(h.Links) > before
	}
	if r.used > 0 {
		h.HasAddrs = true
		h.HasLinks = h.HasLinks || shown
	}
	return r.result()
}

// addrs adds to the addresses of a host, each once.
type addrs struct {
	h    *Host
	have map[addrKey]bool
}

type addrKey struct {
	link   string
	prefix netip.Prefix
	peer   netip.Prefix
}

func newAddrs(h *Host) *addrs {
	s := &addrs{h: h, have: make(map[addrKey]bool, len(h.Addrs))}
	for _, a := range h.Addrs {
		s.have[addrKey{a.Link, a.Prefix, a.Peer}] = true
	}
	return s
}

func (s *addrs) one(a Addr) {
	k := addrKey{a.Link, a.Prefix, a.Peer}
	if s.have[k] {
		return
	}
	s.have[k] = true
	s.h.Addrs = append(s.h.Addrs, a)
}

type labelledAddr struct {
	Addr
	label string
}

// addrOf reads "inet 192.168.10.11/24 brd 192.168.10.255 scope global secondary eth0" from its first word on.
func addrOf(words []string) (labelledAddr, error) {
	var a labelledAddr
	if len(words) < 2 {
		return a, fmt.Errorf("an address line without an address")
	}
	p, err := prefixOf(words[1])
	if err != nil {
		return a, err
	}
	if words[0] != "" && (words[0] == "inet") != p.Addr().Is4() {
		return a, fmt.Errorf("%s is no %s address", words[1], words[0])
	}
	a.Prefix = p
	for i := 2; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch words[i] {
		case "peer":
			peer, err := prefixOf(value)
			if err != nil {
				return a, err
			}
			a.Peer, a.Prefix = peer, single(p.Addr())
			i++
		case "brd":
			if b, err := netip.ParseAddr(value); err == nil {
				a.Broadcast = b
			}
			i++
		case "scope":
			a.Scope = value
			i++
		case "any", "metric", "proto", "valid_lft", "preferred_lft":
			i++
		default:
			if p.Addr().Is4() && i == len(words)-1 && !addrFlags[words[i]] {
				a.label = words[i]
			} else {
				a.Flags = append(a.Flags, words[i])
			}
		}
	}
	return a, nil
}

// addrFlags are the words that ip prints for the flags of an address; another last word is the label.
var addrFlags = map[string]bool{
	"secondary": true, "temporary": true, "dynamic": true, "permanent": true, "deprecated": true, "tentative": true,
	"dadfailed": true, "nodad": true, "optimistic": true, "home": true, "mngtmpaddr": true, "noprefixroute": true,
	"autojoin": true, "stable-privacy": true,
}

// HasFlag tells whether the capture shows this address flag, e.g. "deprecated".
func (a *Addr) HasFlag(flag string) bool {
	for _, f := range a.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

// addrJSON is an address as `ip -j addr` prints it.
type addrJSON struct {
	Local         string `json:"local"`
	Peer          string `json:"address"`
	PrefixLen     int    `json:"prefixlen"`
	Broadcast     string `json:"broadcast"`
	Scope         string `json:"scope"`
	Label         string `json:"label"`
	Secondary     bool   `json:"secondary"`
	Temporary     bool   `json:"temporary"`
	Deprecated    bool   `json:"deprecated"`
	Tentative     bool   `json:"tentative"`
	DADFailed     bool   `json:"dadfailed"`
	NoPrefixRoute bool   `json:"noprefixroute"`
}

func (s *addrs) json(r *reading, link string, o addrJSON, ev Evidence) {
	if o == (addrJSON{}) {
		return
	}
	addr, err := netip.ParseAddr(o.Local)
	if err != nil || o.PrefixLen < 0 || o.PrefixLen > addr.BitLen() || addr.Zone() != "" {
		r.skip(ev.Line, ev.Text, "address %q with prefix length %d cannot be read", o.Local, o.PrefixLen)
		return
	}
	a := Addr{Link: link, Prefix: netip.PrefixFrom(addr, o.PrefixLen), Scope: o.Scope, Evidence: ev}
	if a.Link == "" {
		a.Link, _, _ = strings.Cut(o.Label, ":")
	}
	if peer, err := netip.ParseAddr(o.Peer); err == nil && peer.BitLen() == addr.BitLen() {
		a.Peer, a.Prefix = netip.PrefixFrom(peer, o.PrefixLen), single(addr)
	}
	if b, err := netip.ParseAddr(o.Broadcast); err == nil {
		a.Broadcast = b
	}
	for _, f := range []struct {
		set  bool
		name string
	}{
		{o.Secondary, "secondary"}, {o.Temporary, "temporary"}, {o.Deprecated, "deprecated"}, {o.Tentative, "tentative"},
		{o.DADFailed, "dadfailed"}, {o.NoPrefixRoute, "noprefixroute"},
	} {
		if f.set {
			a.Flags = append(a.Flags, f.name)
		}
	}
	a.Text = a.String()
	s.one(a)
}

// String is the address as `ip addr` prints it.
func (a *Addr) String() string {
	words := []string{"inet6", a.Prefix.String()}
	if a.Prefix.Addr().Is4() {
		words[0] = "inet"
	}
	if a.Peer.IsValid() {
		words = append(words[:1], a.Prefix.Addr().String(), "peer", a.Peer.String())
	}
	if a.Broadcast.IsValid() {
		words = append(words, "brd", a.Broadcast.String())
	}
	if a.Scope != "" {
		words = append(words, "scope", a.Scope)
	}
	words = append(words, a.Flags...)
	return strings.Join(append(words, a.Link), " ")
}

// prefixOf reads "192.168.10.11/24", or a single address. The address keeps its host bits.
func prefixOf(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", paste.Quote(s))
	}
	return single(a), nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
