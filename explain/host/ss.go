package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseSockets reads listening TCP and SCTP and unconnected UDP sockets from `ss -lntu` and its variants
// into Sockets: with or without the Netid column, the process column and the header. Sockets in other
// states and of other kinds are passed over. A line that cannot be used is a Problem; the error is for a
// text that holds neither sockets nor the header of ss.
func ParseSockets(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "sockets (ss)", file: file}
	l := socketListing{
		// Until 2017 ss wrote "*:80" for any IPv4 address and ":::80" for any IPv6 address; since then "*:80"
		// is a socket of both families, and "[::]:80" one of IPv6 alone.
		old: strings.Contains(text, ":::"),
	}
	have := make(map[Socket]bool, len(h.Sockets))
	for _, s := range h.Sockets {
		s.Evidence = Evidence{}
		have[s] = true
	}
	for n, line := range lines(text) {
		r.seen++
		s, what, err := l.socket(line)
		switch {
		case err != nil:
			r.skip(n, line, "%v", err)
		case what == headerLine || what == otherSocket:
			r.used++
		case what == aSocket:
			r.used++
			if have[s] {
				continue
			}
			have[s] = true
			s.Evidence = r.at(n, line)
			h.Sockets = append(h.Sockets, s)
		}
	}
	if r.used > 0 {
		h.HasSockets = true
	}
	return r.result()
}

type socketListing struct{ old bool }

type lineKind int

const (
	notSocket lineKind = iota
	headerLine
	otherSocket // of another kind or state
	aSocket
)

// netids are the kinds of sockets in the first column; those with a number are of interest.
var netids = map[string]uint8{
	"tcp": 6, "udp": 17, "sctp": 132, "dccp": 33,
	"nl": 0, "p_raw": 0, "p_dgr": 0, "raw": 0, "icmp6": 0, "icmp": 0, "u_str": 0, "u_dgr": 0, "u_seq": 0, "ti_st": 0, "ti_dg": 0,
	"ti_sq": 0, "ti_rd": 0, "v_str": 0, "v_dgr": 0, "xdp": 0, "mptcp": 0, "ti": 0,
}

var socketStates = map[string]bool{
	"LISTEN": true, "UNCONN": true, "ESTAB": false, "SYN-SENT": false, "SYN-RECV": false, "FIN-WAIT-1": false, "FIN-WAIT-2": false,
	"TIME-WAIT": false, "CLOSE-WAIT": false, "LAST-ACK": false, "CLOSING": false, "CLOSED": false,
}

func (l *socketListing) socket(line string) (s Socket, kind lineKind, err error) {
	words := strings.Fields(line)
	switch {
	case strings.Contains(line, "Recv-Q") && strings.Contains(line, "Address:Port"):
		return s, headerLine, nil
	case len(words) > 1 && (words[0] == "State" || words[0] == "Netid"):
		return s, headerLine, nil
	}
	proto := "tcp" // `ss -lnt` has no Netid column
	if _, ok := netids[words[0]]; ok {
		proto, words = words[0], words[1:]
	} else if words[0] == "UNCONN" {
		proto = "udp" // `ss -lnu`
	}
	if len(words) == 0 {
		return s, notSocket, fmt.Errorf("a row without a state")
	}
	listens, ok := socketStates[words[0]]
	switch {
	case !ok && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") || paste.Prompt(line)):
		return s, notSocket, nil // a row's second line (-i, -m), or the command
	case !ok:
		return s, notSocket, fmt.Errorf("not a row of ss")
	case !listens || netids[proto] == 0:
		return s, otherSocket, nil
	}
	if len(words) < 5 {
		return s, notSocket, fmt.Errorf("a row without addresses")
	}
	s.Proto = netids[proto]
	if err := l.bound(&s, words[3], words[4]); err != nil {
		return s, notSocket, err
	}
	s.owner(strings.Join(words[5:], " "))
	for _, w := range words[5:] {
		switch w {
		case "v6only:1":
			s.V6Only = Yes
		case "v6only:0":
			s.V6Only = No
		}
	}
	return s, aSocket, nil
}

// bound reads the local address: "0.0.0.0:80", "127.0.0.53%lo:53", "[::]:80", "[fe80::1]%eth0:546", "*:10256".
func (l *socketListing) bound(s *Socket, local, peer string) error {
	i := strings.LastIndexByte(local, ':')
	if i < 0 {
		return fmt.Errorf("local address %q has no port", paste.Quote(local))
	}
	port, err := strconv.ParseUint(local[i+1:], 10, 16)
	if err != nil {
		return fmt.Errorf("port %q is not a number: the capture was made without -n", paste.Quote(local[i+1:]))
	}
	s.Port = uint16(port)
	addr, device, _ := strings.Cut(local[:i], "%")
	s.Device = strings.TrimSuffix(device, "]")
	addr = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	switch {
	case addr == "*" && (l.old || strings.HasPrefix(peer, "0.0.0.0:")):
		s.Addr = netip.IPv4Unspecified()
		return nil
	case addr == "*":
		s.Addr, s.V6Only = netip.IPv6Unspecified(), No
		return nil
	}
	if s.Addr, err = netip.ParseAddr(addr); err != nil {
		return fmt.Errorf("local address %q cannot be read", paste.Quote(local))
	}
	if s.Addr = s.Addr.Unmap(); s.Addr == netip.IPv6Unspecified() && !l.old {
		s.V6Only = Yes
	}
	return nil
}

// owner reads `users:(("kubelet",pid=902,fd=21),…)`; of several processes that share a socket the first.
func (s *Socket) owner(text string) {
	_, text, ok := strings.Cut(text, `users:(("`)
	if !ok {
		return
	}
	s.Process, text, _ = strings.Cut(text, `"`)
	if _, pid, ok := strings.Cut(text, "pid="); ok {
		pid, _, _ = strings.Cut(pid, ",")
		s.PID, _ = strconv.Atoi(strings.TrimSuffix(pid, ")"))
	}
}

// Takes tells whether the socket receives packets for this address: it is bound to it, or to any address of
// its family. Unknown is a socket on [::] that may or may not take IPv4.
func (s Socket) Takes(a netip.Addr) Known {
	a = a.Unmap()
	switch {
	case s.Addr == a:
		return Yes
	case !s.Addr.IsUnspecified():
		return No
	case s.Addr.Is4():
		return is(a.Is4())
	case a.Is6():
		return Yes
	}
	switch s.V6Only {
	case Yes:
		return No
	case No:
		return Yes
	}
	return Unknown
}

func is(b bool) Known {
	if b {
		return Yes
	}
	return No
}
