package ipvs

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// columns are those of a listing, by its heading.
type columns uint8

const (
	anyColumns columns = iota
	forwardColumns
	statsColumns
	rateColumns
	thresholdColumns
	persistColumns
)

// isHeading tells the lines that ipvsadm and the kernel print above lists.
func isHeading(line string, words []string) bool {
	switch {
	case strings.HasPrefix(line, "IP Virtual Server version"),
		strings.HasPrefix(line, "IPVS connection entries"),
		words[0] == "Prot" && len(words) > 1 && strings.HasPrefix(words[1], "LocalAddress"),
		words[0] == "pro" && len(words) > 1 && words[1] == "expire",
		words[0] == "Pro" && len(words) > 1 && words[1] == "FromIP",
		strings.HasPrefix(line, "Timeout (tcp tcpfin udp):"):
		return true
	}
	return false
}

func (r *reader) heading(line string, words []string) {
	r.used++
	switch {
	case words[0] == "Prot":
		r.table.HasServices = true
		r.columns = anyColumns
		for _, w := range words[2:] {
			switch w {
			case "Scheduler":
				r.columns = forwardColumns
			case "Conns":
				r.columns = statsColumns
			case "CPS":
				r.columns = rateColumns
			case "Uthreshold":
				r.columns = thresholdColumns
			case "PersistConn":
				r.columns = persistColumns
			}
		}
	case words[0] == "pro" || words[0] == "Pro" || strings.HasPrefix(line, "IPVS connection"):
		r.table.HasConns = true
	}
}

// isNumbers tells whether all words are counters: "12", "34K".
func isNumbers(words []string) bool {
	for _, w := range words {
		if _, ok := counter(w); !ok {
			return false
		}
	}
	return len(words) > 0
}

// counter reads a number as ipvsadm prints it: "1234", "12K", "3M", "5G", "7T".
func counter(w string) (uint64, bool) {
	scale := uint64(1)
	if w != "" {
		switch w[len(w)-1] {
		case 'K':
			scale = 1e3
		case 'M':
			scale = 1e6
		case 'G':
			scale = 1e9
		case 'T':
			scale = 1e12
		}
		if scale > 1 {
			w = w[:len(w)-1]
		}
	}
	n, err := strconv.ParseUint(w, 10, 64)
	return n * scale, err == nil && n < 1<<63/scale
}

func statsOf(words []string) Stats {
	var n [5]uint64
	for i := range n {
		n[i], _ = counter(words[i])
	}
	return Stats{Conns: n[0], InPkts: n[1], OutPkts: n[2], InBytes: n[3], OutBytes: n[4], Known: true}
}

// listService reads "TCP  10.96.0.1:443 rr (flag-1) persistent 300 mask 255.255.255.0 pe sip ops" and, with counters,
// "TCP  10.96.0.1:443   0 0 0 0 0".
func (r *reader) listService(n int, line string, words []string) {
	s, f, err := r.listed(words)
	if err != nil {
		r.into, r.dest = nil, -1
		r.lose(n)
		r.skip(n, line, "%v", err)
		return
	}
	r.service(n, line, f, s)
}

func (r *reader) listed(words []string) (s Service, f form, err error) {
	rest := words[2:]
	if words[0] == "FWM" {
		mark, base := words[1], 10
		if r.kernel || len(mark) == 8 && mark[0] == '0' {
			base = 16
		}
		m, err := strconv.ParseUint(mark, base, 32)
		if err != nil || m == 0 {
			return s, 0, fmt.Errorf("%s is not a mark", paste.Quote(mark))
		}
		s.FWMark, s.Family = uint32(m), 4
		if len(rest) > 0 && rest[0] == "IPv6" {
			s.Family, rest = 6, rest[1:]
		}
	} else {
		a, err := address(words[1], r.kernel)
		if err != nil {
			return s, 0, err
		}
		s.Addr, s.Port, s.Family = a.Addr(), a.Port(), familyOf(a.Addr())
		s.Proto = map[string]uint8{"TCP": tcp, "UDP": udp, "SCTP": sctp}[words[0]]
		if s.Proto == 0 {
			return s, 0, fmt.Errorf("no virtual server has protocol %s", words[0])
		}
	}
	s.Mask = 32
	if s.Family == 6 {
		s.Mask = 128
	}
	if len(rest) == 5 && isNumbers(rest) {
		if r.columns == statsColumns {
			s.Stats = statsOf(rest)
		}
		return s, counted, nil
	}
	for i := 0; i < len(rest); i++ {
		w := rest[i]
		value := func() string {
			if i++; i < len(rest) {
				return rest[i]
			}
			return ""
		}
		switch {
		case i == 0:
			s.Scheduler = w
		case strings.HasPrefix(w, "(") && strings.HasSuffix(w, ")"):
			if flags := strings.Trim(w, "()"); flags != "" {
				s.SchedFlags = strings.Split(flags, ",")
			}
		case w == "ops":
			s.OnePacket = true
		case w == "persistent":
			s.Persistent = true
			if s.Timeout, err = strconv.Atoi(value()); err != nil || s.Timeout < 0 {
				return s, 0, fmt.Errorf("the timeout cannot be read")
			}
			if i+1 < len(rest) && len(rest[i+1]) == 8 && rest[i+1] != "mask" {
				// In /proc/net/ip_vs: the mask in hexadecimal, and a timeout in ticks, whose length nothing tells.
				mask, err := strconv.ParseUint(value(), 16, 32)
				if err != nil {
					return s, 0, fmt.Errorf("the netmask cannot be read")
				}
				s.Timeout = 0
				if s.Mask, err = kernelMask(s.Family, uint32(mask)); err != nil && s.FWMark != 0 {
					s.Family = 6 // which is not printed
					s.Mask, err = kernelMask(6, uint32(mask))
				}
				if err != nil {
					return s, 0, err
				}
			}
		case w == "mask":
			if s.Mask, err = maskBits(value()); err != nil {
				return s, 0, fmt.Errorf("the netmask cannot be read")
			}
		case w == "pe":
			s.PE = value()
		default:
			return s, 0, fmt.Errorf("%s is not known", paste.Quote(w))
		}
	}
	if s.Scheduler == "" {
		return s, 0, fmt.Errorf("the line ends behind the address")
	}
	return s, listed, nil
}

// kernelMask is a netmask as /proc/net/ip_vs prints it: that of IPv6 is a length in the order of the machine.
func kernelMask(family int, mask uint32) (int, error) {
	if family == 6 {
		for _, bits := range []uint32{mask, mask>>24 | mask>>8&0xff00 | mask<<8&0xff0000 | mask<<24} {
			if bits >= 1 && bits <= 128 {
				return int(bits), nil
			}
		}
		return 0, fmt.Errorf("the netmask cannot be read")
	}
	return maskBits(netip.AddrFrom4([4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}).String())
}

// listDest reads what stands behind "->": "10.0.0.1:6443  Masq 1 0 0", and the other columns.
func (r *reader) listDest(n int, line string, words []string) {
	if len(words) > 0 && strings.HasPrefix(words[0], "RemoteAddress") {
		// The kernel separates the columns of its heading by one blank each.
		r.kernel = strings.HasPrefix(strings.TrimSpace(line), "-> RemoteAddress:Port Forward")
		r.used++
		return
	}
	d, err := r.real(words)
	if err != nil {
		r.lose(n)
		r.skip(n, line, "%v", err)
		return
	}
	r.add(n, line, d)
}

func (r *reader) real(words []string) (d Dest, err error) {
	if len(words) == 0 {
		return d, fmt.Errorf("a real server has an address")
	}
	a, err := address(words[0], r.kernel)
	if err != nil {
		return d, err
	}
	d.Addr, d.Port = a.Addr(), a.Port()
	rest := words[1:]
	if len(rest) == 0 {
		return d, nil // cut behind the address, or a listing of counters without any
	}
	switch {
	case len(rest) == 5 && isNumbers(rest):
		if r.columns == statsColumns {
			d.Stats = statsOf(rest)
		}
		return d, nil
	case len(rest) == 4 && isNumbers(rest):
		n := ints(rest)
		d.ActiveConns, d.InactConns, d.HasConns = n[2], n[3], true
		switch r.columns {
		case thresholdColumns:
			d.Upper, d.Lower = n[0], n[1]
		case persistColumns:
			d.Weight, d.HasWeight = n[0], true
			d.PersistConns, d.HasPersist = n[1], true
		}
		return d, nil
	}
	switch rest[0] {
	case "Masq":
		d.Method = Masq
	case "Route":
		d.Method = Route
	case "Tunnel":
		d.Method = Tunnel
	case "Local":
		d.Method = Local
	default:
		return d, fmt.Errorf("%s is no way to reach a real server", paste.Quote(rest[0]))
	}
	rest = rest[1:]
	if len(rest) > 0 && !isNumbers(rest[:1]) {
		d.Tunnel = tunnelOptions(rest[0])
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return d, nil
	}
	if !isNumbers(rest) || len(rest) > 3 {
		return d, fmt.Errorf("weight and connections cannot be read")
	}
	n := ints(rest)
	d.Weight, d.HasWeight = n[0], true
	if len(rest) == 3 {
		d.ActiveConns, d.InactConns, d.HasConns = n[1], n[2], true
	}
	return d, nil
}

func ints(words []string) []int {
	var out []int
	for _, w := range words {
		n, _ := counter(w)
		out = append(out, int(min(n, 1<<31-1)))
	}
	return out
}

// tunnelOptions writes "gue:6080:-c" as the save form does.
func tunnelOptions(info string) string {
	parts := strings.Split(info, ":")
	if parts[0] == "n/a" {
		return ""
	}
	out := "--tun-type " + parts[0]
	for _, p := range parts[1:] {
		switch p {
		case "-c":
			out += " --tun-nocsum"
		case "+c":
			out += " --tun-csum"
		case "+r":
			out += " --tun-remcsum"
		default:
			out += " --tun-port " + p
		}
	}
	return out
}

// clock is the time left of a connection: minutes and seconds.
var clock = regexp.MustCompile(`^(\d+):(\d\d)(?:\.\d+)?$`)

// isConn tells a line of a list of connections from one of virtual servers.
func isConn(words []string) bool {
	if len(words) < 9 {
		return len(words) >= 6 && clock.MatchString(words[1])
	}
	_, err := kernelAddress(words[1], words[2])
	return err == nil || clock.MatchString(words[1])
}

// conn reads "TCP 01:54 TIME_WAIT 10.244.1.9:40310 10.96.10.20:80 10.244.1.106:8080", and in /proc/net/ip_vs_conn
// "TCP 0AF40109 9D76 0A600A14 0050 0AF4016A 1F90 TIME_WAIT 114".
func (r *reader) conn(n int, line string, words []string) {
	c := Conn{Proto: map[string]uint8{"TCP": tcp, "UDP": udp, "SCTP": sctp}[words[0]], Evidence: r.at(n, line)}
	var err error
	if m := clock.FindStringSubmatch(words[1]); m != nil {
		minutes, _ := strconv.Atoi(m[1])
		seconds, _ := strconv.Atoi(m[2])
		c.Expires = min(minutes, 1<<24)*60 + seconds
		c.State = words[2]
		for i, into := range []*netip.AddrPort{&c.Client, &c.Virtual, &c.Server} {
			if *into, err = address(words[3+i], false); err != nil {
				r.skip(n, line, "%v", err)
				return
			}
		}
	} else {
		for i, into := range []*netip.AddrPort{&c.Client, &c.Virtual, &c.Server} {
			if *into, err = kernelAddress(words[1+2*i], words[2+2*i]); err != nil {
				r.skip(n, line, "%v", err)
				return
			}
		}
		c.State = words[7]
		if c.Expires, err = strconv.Atoi(words[8]); err != nil || c.Expires < 0 {
			r.skip(n, line, "the time left cannot be read")
			return
		}
	}
	r.used++
	r.table.HasConns = true
	r.table.Conns = append(r.table.Conns, c)
}

// kernelAddress reads an address and a port as /proc/net/ip_vs_conn prints them.
func kernelAddress(addr, port string) (netip.AddrPort, error) {
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s is not a port", paste.Quote(port))
	}
	if strings.Contains(addr, ":") {
		a, err := netip.ParseAddr(addr)
		if err != nil || a.Zone() != "" {
			return netip.AddrPort{}, fmt.Errorf("%s is not an address", paste.Quote(addr))
		}
		return netip.AddrPortFrom(a, uint16(p)), nil
	}
	h, err := strconv.ParseUint(addr, 16, 32)
	if err != nil || len(addr) != 8 {
		return netip.AddrPort{}, fmt.Errorf("%s is not an address", paste.Quote(addr))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)}), uint16(p)), nil
}
