package host

import (
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseLinks reads `ip link` into Links: plain, with -d, one-line (-o), brief (-br) and JSON (-j). A line or
// object that cannot be used is a Problem; the error is for a text without any interface.
func ParseLinks(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "interfaces (ip link)", file: file}
	l := newLinks(h)
	if isJSON(text) {
		eachObject(r, text, func(o linkJSON, ev Evidence) {
			if l.json(r, o, ev) {
				r.used++
			}
		})
	} else {
		blocks := linkBlocks{links: l, reading: r}
		for n, line := range lines(text) {
			r.seen++
			blocks.line(n, line)
		}
	}
	if r.used > 0 {
		h.HasLinks = true
	}
	return r.result()
}

// links adds to the interfaces of a host, each once by name.
type links struct {
	h      *Host
	byName map[string]int // index into h.Links
}

func newLinks(h *Host) *links {
	l := &links{h: h, byName: make(map[string]int, len(h.Links))}
	for i := range h.Links {
		l.byName[h.Links[i].Name] = i
	}
	return l
}

// get is the interface of this name, made when it is new. The pointer is good until the next get.
func (l *links) get(name string) *Link {
	i, ok := l.byName[name]
	if !ok {
		i = len(l.h.Links)
		l.byName[name] = i
		l.h.Links = append(l.h.Links, Link{Name: name})
	}
	return &l.h.Links[i]
}

// linkBlocks reads the blocks that `ip addr`, `ip link` and `bridge link` have in common: a header line with
// the interface, then indented lines about it.
type linkBlocks struct {
	*links
	*reading
	current string // the interface of the block, empty before the first
	// address takes the words of an inet or inet6 line; nil where addresses are of no interest.
	address func(link string, words []string, ev Evidence)
}

// line reads one line; with -o, a backslash stands for each line end within a block.
func (b *linkBlocks) line(n int, line string) {
	for part := range strings.SplitSeq(line, `\`) {
		if words := strings.Fields(part); len(words) > 0 {
			b.words(words, n, line)
		}
	}
}

func (b *linkBlocks) words(words []string, n int, line string) {
	switch {
	case b.header(words, n, line), b.oneLine(words, n, line), b.brief(words, n, line):
	case words[0] == "inet" || words[0] == "inet6":
		if b.address != nil {
			b.address(b.current, words, b.at(n, line))
		}
	case b.current != "":
		b.detail(words, n, line)
	case paste.Prompt(line):
	default:
		b.skip(n, line, "not a line of ip addr or ip link")
	}
}

// header reads "2: eth0@if3: <BROADCAST,UP> mtu 1500 … master cni0 state UP".
func (b *linkBlocks) header(words []string, n int, line string) bool {
	if len(words) < 3 || !strings.HasSuffix(words[1], ":") || !strings.HasPrefix(words[2], "<") {
		return false
	}
	index, err := strconv.Atoi(strings.TrimSuffix(words[0], ":"))
	if err != nil || !strings.HasSuffix(words[0], ":") {
		return false
	}
	name, peer, _ := strings.Cut(strings.TrimSuffix(words[1], ":"), "@")
	if name == "" {
		return false
	}
	l := b.get(name)
	l.Index, l.Peer = index, peer
	l.setFlags(strings.Split(strings.Trim(words[2], "<>"), ","))
	for i := 3; i+1 < len(words); i += 2 {
		switch words[i] {
		case "mtu":
			l.MTU, _ = strconv.Atoi(words[i+1])
		case "master":
			l.Master = words[i+1]
		}
	}
	if l.Evidence == (Evidence{}) {
		l.Evidence = b.at(n, line)
	}
	b.current = name
	b.used++
	return true
}

// oneLine reads the start of "2: eth0    inet 192.168.10.11/24 …", where the interface is only named.
func (b *linkBlocks) oneLine(words []string, n int, line string) bool {
	if len(words) < 4 || !strings.HasSuffix(words[0], ":") || words[2] != "inet" && words[2] != "inet6" {
		return false
	}
	if _, err := strconv.Atoi(strings.TrimSuffix(words[0], ":")); err != nil {
		return false
	}
	b.current, _, _ = strings.Cut(words[1], "@")
	if b.address != nil {
		b.address(b.current, words[2:], b.at(n, line))
	}
	return true
}

// operStates are the states that `ip -br` prints in its second column.
var operStates = map[string]bool{
	"UP": true, "DOWN": true, "UNKNOWN": true, "LOWERLAYERDOWN": true, "NOTPRESENT": true, "TESTING": true, "DORMANT": true,
}

// brief reads a line of `ip -br`: "eth0@if3 UP 192.168.10.11/24 fe80::1/64", or with a hardware address and
// flags. An operational state of UNKNOWN is that of most virtual interfaces that are up.
func (b *linkBlocks) brief(words []string, n int, line string) bool {
	if len(words) < 2 || !operStates[words[1]] || strings.HasSuffix(words[0], ":") {
		return false
	}
	name, peer, _ := strings.Cut(words[0], "@")
	if name == "" {
		return false
	}
	l := b.get(name)
	l.Peer, l.Up = peer, words[1] == "UP" || words[1] == "UNKNOWN" || words[1] == "LOWERLAYERDOWN"
	if l.Evidence == (Evidence{}) {
		l.Evidence = b.at(n, line)
	}
	b.current = ""
	b.used++
	for rest := words[2:]; len(rest) > 0; rest = rest[1:] {
		switch w := rest[0]; {
		case strings.HasPrefix(w, "<"):
			l.setFlags(strings.Split(strings.Trim(w, "<>"), ","))
		case b.address == nil || strings.Count(w, ":") == 5 && !strings.Contains(w, "/"): // a hardware address
		case len(rest) > 2 && rest[1] == "peer":
			b.address(name, []string{"", w, "peer", rest[2]}, b.at(n, line))
			rest = rest[2:]
		default:
			b.address(name, []string{"", w}, b.at(n, line))
		}
	}
	return true
}

// detail reads an indented line below a header: the kind that -d shows, with its properties, and the flags of a bridge
// port.
func (b *linkBlocks) detail(words []string, n int, line string) {
	l := b.get(b.current)
	switch {
	case words[0] == "bridge_slave" || words[0] == "hairpin":
		for i := 0; i+1 < len(words); i++ {
			if words[i] == "hairpin" {
				l.setHairpin(words[i+1], b.at(n, line))
			}
		}
	case linkKinds[words[0]] && (l.Kind == "" || l.Kind == words[0]):
		l.Kind = words[0]
		l.setProperties(words[1:])
	}
}

// setProperties takes from the properties of a kind, each a word and its value, those that are of interest.
func (l *Link) setProperties(words []string) {
	for i := 0; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "dev":
			l.Carrier = value
		case "nf_call_iptables":
			l.CallsIPTables = is(value == "1")
		case "nf_call_ip6tables":
			l.CallsIP6Tables = is(value == "1")
		}
	}
}

// linkKinds are the names of interface kinds (IFLA_INFO_KIND) that -d prints first on a line of their own.
var linkKinds = map[string]bool{
	"amt": true, "bareudp": true, "bond": true, "bridge": true, "can": true, "dummy": true, "erspan": true, "geneve": true,
	"gre": true, "gretap": true, "gtp": true, "hsr": true, "ifb": true, "ip6erspan": true, "ip6gre": true, "ip6gretap": true,
	"ip6tnl": true, "ipip": true, "ipoib": true, "ipvlan": true, "ipvtap": true, "macsec": true, "macvlan": true,
	"macvtap": true, "netdevsim": true, "netkit": true, "nlmon": true, "openvswitch": true, "ppp": true, "sit": true,
	"team": true, "tun": true, "vcan": true, "veth": true, "vlan": true, "vrf": true, "vti": true, "vti6": true,
	"vxcan": true, "vxlan": true, "wireguard": true, "wwan": true, "xfrm": true,
}

// setFlags sets the interface flags; UP is the administrative state.
func (l *Link) setFlags(flags []string) {
	l.Flags, l.Up = nil, false
	for _, f := range flags {
		if f = strings.TrimSpace(f); f == "" {
			continue
		}
		l.Flags = append(l.Flags, f)
		l.Up = l.Up || f == "UP"
	}
}

// HasFlag tells whether the capture shows this interface flag, e.g. "PROMISC".
func (l *Link) HasFlag(flag string) bool {
	for _, f := range l.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

func (l *Link) setHairpin(value string, ev Evidence) {
	switch value {
	case "on", "1", "true":
		l.Hairpin, l.BridgeEvidence = Yes, ev
	case "off", "0", "false":
		l.Hairpin, l.BridgeEvidence = No, ev
	}
}

// linkJSON is an interface as `ip -j addr`, `ip -j -d link` and `bridge -j -d link` print it.
type linkJSON struct {
	Index    int      `json:"ifindex"`
	Name     string   `json:"ifname"`
	Peer     string   `json:"link"`
	PeerIdx  int      `json:"link_index"`
	Flags    []string `json:"flags"`
	MTU      int      `json:"mtu"`
	Master   string   `json:"master"`
	Hairpin  *bool    `json:"hairpin"`
	LinkInfo struct {
		Kind string `json:"info_kind"`
		Data struct {
			Carrier   string `json:"link"`
			IPTables  *int   `json:"nf_call_iptables"`
			IP6Tables *int   `json:"nf_call_ip6tables"`
		} `json:"info_data"`
		Port struct {
			Hairpin *bool `json:"hairpin"`
		} `json:"info_slave_data"`
	} `json:"linkinfo"`
	Addrs []addrJSON `json:"addr_info"`
}

// json adds the interface of an object; false when the object names none.
func (l *links) json(r *reading, o linkJSON, ev Evidence) bool {
	if o.Name == "" {
		r.skip(ev.Line, ev.Text, "an object without ifname")
		return false
	}
	k := l.get(o.Name)
	k.Index, k.MTU, k.Peer = o.Index, o.MTU, o.Peer
	if o.Peer == "" && o.PeerIdx != 0 {
		k.Peer = "if" + strconv.Itoa(o.PeerIdx)
	}
	k.setFlags(o.Flags)
	if o.Master != "" {
		k.Master = o.Master
	}
	if o.LinkInfo.Kind != "" {
		k.Kind = o.LinkInfo.Kind
	}
	k.Carrier = o.LinkInfo.Data.Carrier
	if n := o.LinkInfo.Data.IPTables; n != nil {
		k.CallsIPTables = is(*n == 1)
	}
	if n := o.LinkInfo.Data.IP6Tables; n != nil {
		k.CallsIP6Tables = is(*n == 1)
	}
	for _, on := range []*bool{o.Hairpin, o.LinkInfo.Port.Hairpin} {
		if on != nil {
			k.setHairpin(strconv.FormatBool(*on), ev)
			k.BridgeEvidence.Text = k.String()
		}
	}
	if k.Evidence == (Evidence{}) {
		ev.Text = k.String()
		k.Evidence = ev
	}
	return true
}

// String is the interface as `ip link` prints it, in short.
func (l *Link) String() string {
	s := strconv.Itoa(l.Index) + ": " + l.Name
	if l.Peer != "" {
		s += "@" + l.Peer
	}
	s += ": <" + strings.Join(l.Flags, ",") + "> mtu " + strconv.Itoa(l.MTU)
	if l.Master != "" {
		s += " master " + l.Master
	}
	if l.Hairpin == No {
		s += " hairpin off"
	}
	if l.Hairpin == Yes {
		s += " hairpin on"
	}
	return s
}

// Link is the interface of this name; nil when the capture shows none.
func (h *Host) Link(name string) *Link {
	for i := range h.Links {
		if h.Links[i].Name == name {
			return &h.Links[i]
		}
	}
	return nil
}
