package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// saveService reads "-A -t 10.96.0.1:443 -s rr -p 10800 -M 255.255.255.0 --pe sip -o -b sh-port".
func (r *reader) saveService(n int, line string, words []string) {
	s, _, err := options(words)
	if err != nil {
		r.into, r.dest = nil, -1
		r.lose(n)
		r.skip(n, line, "%v", err)
		return
	}
	r.service(n, line, saved, s)
}

// saveDest reads "-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1 -x 100 -y 50 --tun-type gue --tun-port 6080".
func (r *reader) saveDest(n int, line string, words []string) {
	s, d, err := options(words)
	if err == nil && !d.Addr.IsValid() {
		err = fmt.Errorf("a real server has an address (-r)")
	}
	if err != nil {
		r.lose(n)
		r.skip(n, line, "%v", err)
		return
	}
	// The line names its virtual server: mostly, and not always, the one that was read last.
	c := r.captures[saved]
	if c == nil {
		r.skip(n, line, "the virtual server of this real server is not in the capture")
		r.lose(n)
		return
	}
	at, ok := c.at[s.id()]
	if !ok {
		r.skip(n, line, "the virtual server of this real server is not in the capture")
		r.lose(n)
		return
	}
	r.into, r.dest = c, at
	r.add(n, line, d)
}

// Command reads a command of ipvsadm without the program's name, as `ipvsadm -R` reads it from a line: its verb (-A, -E, -D
// for virtual servers, -a, -e, -d for real servers), the virtual server that it names, with what it says of it, and for
// the latter the real server. The error says what of the line is not understood.
func Command(text string) (verb string, s Service, d Dest, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return "", s, d, fmt.Errorf("the line is empty")
	}
	verb, ok := map[string]string{
		"-A": "-A", "--add-service": "-A", "-E": "-E", "--edit-service": "-E", "-D": "-D", "--delete-service": "-D",
		"-a": "-a", "--add-server": "-a", "-e": "-e", "--edit-server": "-e", "-d": "-d", "--delete-server": "-d",
	}[words[0]]
	if !ok {
		return "", s, d, fmt.Errorf("%s is no command for a virtual server or a real server", paste.Quote(words[0]))
	}
	if s, d, err = options(words[1:]); err != nil {
		return "", s, d, err
	}
	backend := verb == "-a" || verb == "-e" || verb == "-d"
	switch {
	case backend != d.Addr.IsValid():
		return "", s, d, fmt.Errorf("%s and -r do not go together, or -r is missing", verb)
	case (verb == "-A" || verb == "-E") && s.Scheduler == "":
		return "", s, d, fmt.Errorf("no scheduler is named (-s)")
	}
	return verb, s, d, nil
}

// options reads the options of a line of the save form.
func options(words []string) (s Service, d Dest, err error) {
	var named bool
	six := false
	for i := 0; i < len(words) && err == nil; i++ {
		value := func() string {
			if i++; i < len(words) {
				return words[i]
			}
			err = fmt.Errorf("%s has no value", words[i-1])
			return ""
		}
		count := func(most int) int {
			v := value()
			c, e := strconv.Atoi(v)
			if err == nil && (e != nil || c < 0 || c > most) {
				err = fmt.Errorf("%s is not a number that %s can have", paste.Quote(v), words[i-1])
			}
			return c
		}
		switch words[i] {
		case "-t", "--tcp-service", "-u", "--udp-service", "--sctp-service":
			s.Proto = map[byte]uint8{'t': tcp, 'u': udp, 's': sctp}[strings.TrimLeft(words[i], "-")[0]]
			var a netip.AddrPort
			if a, err = address(value(), false); err == nil {
				s.Addr, s.Port, s.Family = a.Addr(), a.Port(), familyOf(a.Addr())
			}
			named = true
		case "-f", "--fwmark-service":
			s.FWMark = uint32(count(1<<32 - 1))
			named = s.FWMark != 0
		case "-6", "--ipv6":
			six = true
		case "-s", "--scheduler":
			s.Scheduler = value()
		case "-p", "--persistent":
			s.Persistent, s.Timeout = true, 300 // the value when none is given
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				s.Timeout = count(1 << 31)
			}
		case "-M", "--netmask":
			v := value()
			if s.Mask, err = maskBits(v); err != nil {
				err = fmt.Errorf("%s is not a netmask", paste.Quote(v))
			}
		case "-b", "--sched-flags":
			s.SchedFlags = strings.Split(value(), ",")
		case "-o", "--ops":
			s.OnePacket = true
		case "--pe":
			s.PE = value()
		case "-r", "--real-server":
			var a netip.AddrPort
			if a, err = address(value(), false); err == nil {
				d.Addr, d.Port = a.Addr(), a.Port()
			}
		case "-m", "--masquerading":
			d.Method = Masq
		case "-g", "--gatewaying":
			d.Method = Route
		case "-i", "--ipip":
			d.Method = Tunnel
		case "-w", "--weight":
			d.Weight, d.HasWeight = count(1<<31-1), true
		case "-x", "--u-threshold":
			d.Upper = count(1<<31 - 1)
		case "-y", "--l-threshold":
			d.Lower = count(1<<31 - 1)
		case "--tun-type", "--tun-port":
			name := words[i]
			d.Tunnel = strings.TrimSpace(d.Tunnel + " " + name + " " + value())
		case "--tun-nocsum", "--tun-csum", "--tun-remcsum":
			d.Tunnel = strings.TrimSpace(d.Tunnel + " " + words[i])
		default:
			err = fmt.Errorf("the option %s is not known", paste.Quote(words[i]))
		}
	}
	if err == nil && !named {
		err = fmt.Errorf("no virtual server is named (-t, -u, --sctp-service or -f)")
	}
	if s.FWMark != 0 {
		s.Family = 4
		if six {
			s.Family = 6
		}
	}
	if s.Mask == 0 {
		s.Mask = 32
		if s.Family == 6 {
			s.Mask = 128
		}
	}
	return s, d, err
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// maskBits reads a netmask, as an address for IPv4 and as a length for IPv6.
func maskBits(v string) (int, error) {
	if bits, err := strconv.Atoi(v); err == nil {
		if bits < 1 || bits > 128 {
			return 0, fmt.Errorf("out of range")
		}
		return bits, nil
	}
	a, err := netip.ParseAddr(v)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("not a netmask")
	}
	bits := 0
	for b := a.As4(); bits < 32 && b[bits/8]&(0x80>>(bits%8)) != 0; bits++ {
		continue
	}
	if netmask(bits) != a.String() || bits == 0 {
		return 0, fmt.Errorf("not the mask of a prefix")
	}
	return bits, nil
}

// address reads "10.96.0.1:443", "[fd00::1]:443", also with the name of a port, as ipvsadm prints it without -n, and
// "0A600001:01BB", as the kernel does. The names of hosts are not to be had.
func address(v string, kernel bool) (netip.AddrPort, error) {
	i := strings.LastIndexByte(v, ':')
	if i < 0 || strings.HasSuffix(v, "]") {
		// A real server of a virtual server with a mark may come without a port.
		if a, err := netip.ParseAddr(strings.Trim(v, "[]")); err == nil && a.Zone() == "" {
			return netip.AddrPortFrom(a, 0), nil
		}
		return netip.AddrPort{}, fmt.Errorf("%s is not an address with a port", paste.Quote(v))
	}
	host, port := v[:i], v[i+1:]
	if len(host) == 8 && len(port) == 4 && !strings.ContainsAny(host, ".:") {
		h, err := strconv.ParseUint(host, 16, 32)
		p, err2 := strconv.ParseUint(port, 16, 16)
		if err == nil && err2 == nil {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)}), uint16(p)), nil
		}
	}
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	switch {
	case err != nil && host == "localhost":
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("%s is the name of a host and no address: capture with -n (ipvsadm -Sn)", paste.Quote(host))
	case a.Is6() != bracketed || a.Zone() != "":
		return netip.AddrPort{}, fmt.Errorf("%s is not an address with a port", paste.Quote(v))
	}
	if kernel && len(host) == 41 && len(port) == 4 {
		if p, err := strconv.ParseUint(port, 16, 16); err == nil {
			return netip.AddrPortFrom(a, uint16(p)), nil
		}
	}
	if p, err := strconv.ParseUint(port, 10, 16); err == nil {
		return netip.AddrPortFrom(a, uint16(p)), nil
	}
	if p, ok := portNamed(port); ok {
		return netip.AddrPortFrom(a, p), nil
	}
	return netip.AddrPort{}, fmt.Errorf("%s is the name of a port that is not known: capture with -n (ipvsadm -Sn)", paste.Quote(port))
}

// portNamed knows the names of ports that Services often have.
func portNamed(name string) (uint16, bool) {
	p, ok := map[string]uint16{
		"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "http": 80, "www": 80, "kerberos": 88,
		"pop3": 110, "sunrpc": 111, "ntp": 123, "imap2": 143, "snmp": 161, "bgp": 179, "ldap": 389, "https": 443,
		"microsoft-ds": 445, "submission": 587, "submissions": 465, "ipp": 631, "ldaps": 636, "domain-s": 853, "imaps": 993,
		"pop3s": 995, "openvpn": 1194, "ms-sql-s": 1433, "nfs": 2049, "mysql": 3306, "ms-wbt-server": 3389, "epmd": 4369,
		"sip": 5060, "sip-tls": 5061, "postgresql": 5432, "amqps": 5671, "amqp": 5672, "x11": 6000, "redis": 6379,
		"http-alt": 8080, "git": 9418, "webmin": 10000, "zabbix-agent": 10050, "zabbix-trapper": 10051,
	}[name]
	return p, ok
}
