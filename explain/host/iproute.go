package host

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// ParseRoutes reads `ip route` into Routes: one table or all, of one family or both, plain, with -d,
// one-line (-o) and JSON (-j), and several listings in one text under headings such as "# table 2". The
// family is 4 or 6 where the command that was run tells, else 0: each route then tells its own, and one that
// does not ("default dev ppp0") is taken to be of the family of its neighbours.
//
// A line that cannot be used is a Problem; the error is for a text without any route.
func ParseRoutes(h *Host, family int, text, file string) ([]Problem, error) {
	r := &reading{what: "routes (ip route)", file: file}
	l := routeListing{reading: r, family: family, table: tableInName(file)}
	if isJSON(text) {
		eachObject(r, text, l.json)
	} else {
		for n, line := range lines(text) {
			r.seen++
			l.line(n, line)
		}
	}
	l.settle()
	l.addTo(h)
	r.used = len(l.routes)
	return r.result()
}

// routeListing collects the routes of one text before they are added, because a route may not tell its
// family and a listing its table.
type routeListing struct {
	*reading
	family int
	// table is what a heading or the file's name says of the routes that name no table themselves.
	table  string
	routes []Route
	named  []bool // the route's own line names its table
}

var (
	tableWord  = regexp.MustCompile(`\btable[ =:]+([A-Za-z0-9_.-]+)`)
	tableFile  = regexp.MustCompile(`\btable[-_.]?([a-z]+|[0-9]+)\b`)
	familyWord = regexp.MustCompile(`(?:^|\s)-(?:([46])|f(?:amily)?\s+inet(6?))(?:\s|$)`)
)

// tableInName finds a table in a file name such as ip-route-table-200.txt. A name that says "local" needs no
// help: the routes of that table have types of their own.
func tableInName(file string) string {
	name := path.Base(strings.ReplaceAll(file, `\`, "/"))
	if m := tableFile.FindStringSubmatch(strings.ReplaceAll(name, "_", "-")); m != nil && m[1] != "all" {
		return tableName(m[1])
	}
	return ""
}

// tableName gives the three tables that every kernel has the names that iproute2 gives them.
func tableName(s string) string {
	switch s {
	case "255":
		return "local"
	case "254":
		return "main"
	case "253":
		return "default"
	}
	return s
}

func (l *routeListing) line(n int, line string) {
	if paste.Prompt(line) {
		l.heading(line)
		return
	}
	parts := strings.Split(line, `\`)
	words := strings.Fields(parts[0])
	if len(words) == 0 {
		return
	}
	if words[0] == "nexthop" {
		l.hop(n, line, words[1:])
	} else if words[0] == "cache" {
		return
	} else {
		route, named, err := routeOf(words)
		if err != nil {
			l.skip(n, line, "%v", err)
			return
		}
		route.Evidence = l.at(n, line)
		l.add(route, named)
	}
	for _, part := range parts[1:] {
		if words := strings.Fields(part); len(words) > 0 && words[0] == "nexthop" {
			l.hop(n, line, words[1:])
		}
	}
}

// heading reads what a comment or a pasted command says of the routes below it.
func (l *routeListing) heading(line string) {
	l.table = ""
	if m := tableWord.FindStringSubmatch(line); m != nil && m[1] != "all" {
		l.table = tableName(m[1])
	}
	if m := familyWord.FindStringSubmatch(line); m != nil {
		l.family = 4
		if m[1] == "6" || m[2] == "6" {
			l.family = 6
		}
	}
}

func (l *routeListing) hop(n int, line string, words []string) {
	if len(l.routes) == 0 {
		l.skip(n, line, "a next hop without a route above it")
		return
	}
	route := &l.routes[len(l.routes)-1]
	var hop NextHop
	var a routeAttrs
	if err := a.read(words); err != nil {
		l.skip(n, line, "%v", err)
		return
	}
	hop = NextHop{Via: a.via, Dev: a.dev, Weight: a.weight, Dead: a.dead || a.linkdown, LinkDown: a.linkdown && !a.dead}
	route.NextHops = append(route.NextHops, hop)
	if route.Family == 0 && hop.Via.IsValid() {
		route.Family = familyOf(hop.Via)
	}
}

func (l *routeListing) add(r Route, named bool) {
	if r.Table == "" {
		r.Table = l.table
	}
	if r.Family == 0 {
		r.Family = l.family
	} else if l.family != 0 && r.Family != l.family {
		l.skip(r.Line, r.Text, "an IPv%d route in a listing of IPv%d", r.Family, l.family)
	}
	l.routes = append(l.routes, r)
	l.named = append(l.named, named)
}

// settle decides what single routes left open. Families come in blocks, so a route that does not tell is of
// the family before it, or else after it; of IPv4 where nothing tells. Types that only the local table holds
// tell the table of a listing that was limited to it.
func (l *routeListing) settle() {
	last := 0
	for i := range l.routes {
		if l.routes[i].Family == 0 {
			l.routes[i].Family = last
		}
		last = l.routes[i].Family
	}
	next := 4
	if nameSaysIPv6(l.file) && last == 0 {
		next = 6
	}
	for i := len(l.routes) - 1; i >= 0; i-- {
		r := &l.routes[i]
		if r.Family == 0 {
			r.Family = next
		}
		next = r.Family
		if !r.Dst.IsValid() {
			r.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.Family == 6 {
				r.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
		}
		if r.Table == "" {
			r.Table = "main"
			switch r.Type {
			case "local", "broadcast", "multicast", "anycast":
				r.Table = "local"
			}
		}
	}
}

// addTo adds the routes, each once, and says what the listing answers. A route that names the local table
// on its line was printed by `ip route show table all`: a listing limited to one table names none.
func (l *routeListing) addTo(h *Host) {
	if len(l.routes) == 0 {
		return
	}
	set := func(m *map[int]bool, family int) {
		if *m == nil {
			*m = make(map[int]bool, 2)
		}
		(*m)[family] = true
	}
	have := make(map[string]bool, len(h.Routes)+len(l.routes))
	for i := range h.Routes {
		have[h.Routes[i].key()] = true
	}
	for i, r := range l.routes {
		switch {
		case r.Table == "local":
			set(&h.HasLocalTable, r.Family)
			if l.named[i] {
				set(&h.HasRoutes, r.Family)
				set(&h.HasAllTables, r.Family)
			}
		case r.Table == "main":
			set(&h.HasRoutes, r.Family)
		}
		if k := r.key(); !have[k] {
			have[k] = true
			h.Routes = append(h.Routes, r)
		}
	}
}

// key tells routes apart that the kernel holds as two.
func (r *Route) key() string {
	return fmt.Sprint(r.Family, r.Table, r.Type, r.Dst, r.From, r.Via, r.Dev, r.Metric, r.TOS, r.NextHops)
}

var routeTypes = map[string]bool{
	"unicast": true, "local": true, "broadcast": true, "multicast": true, "anycast": true,
	"blackhole": true, "unreachable": true, "prohibit": true, "throw": true,
}

// routeOf reads "local 10.96.0.1 dev kube-ipvs0 table local proto kernel scope host src 10.96.0.1".
func routeOf(words []string) (r Route, namedTable bool, err error) {
	r.Type = "unicast"
	if routeTypes[words[0]] {
		r.Type, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return r, false, fmt.Errorf("a route without a destination")
	}
	if words[0] != "default" {
		if r.Dst, err = prefixOf(words[0]); err != nil {
			return r, false, err
		}
		r.Dst = r.Dst.Masked()
		r.Family = familyOf(r.Dst.Addr())
	}
	var a routeAttrs
	if err := a.read(words[1:]); err != nil {
		return r, false, err
	}
	a.into(&r)
	if r.Family != 0 && r.Src.IsValid() && familyOf(r.Src) != r.Family {
		return r, false, fmt.Errorf("source %s does not fit an IPv%d route", r.Src, r.Family)
	}
	return r, a.table != "", nil
}

// routeAttrs are the attributes of a route or of one of its next hops.
type routeAttrs struct {
	via, src       netip.Addr
	viaInet6       bool // "via inet6": an IPv4 route with an IPv6 gateway
	from           netip.Prefix
	dev, table     string
	scope, tos     string
	proto          string
	metric, weight int
	dead, linkdown bool
	ipv6           bool // an attribute that only IPv6 routes have
}

// valued are the attributes that take one value and say nothing here.
var valued = map[string]bool{
	"realm": true, "realms": true, "mtu": true, "advmss": true, "hoplimit": true, "expires": true, "error": true,
	"pref": true, "nhid": true, "window": true, "rtt": true, "rttvar": true, "rto_min": true, "initcwnd": true, "initrwnd": true,
	"cwnd": true, "quickack": true, "features": true, "congctl": true, "ssthresh": true, "reordering": true,
	"fastopen_no_cookie": true, "ttl-propagate": true, "uid": true, "mark": true, "age": true, "users": true, "metrics": true,
}

// read takes the words after the destination. Words that it does not know are flags and pass.
func (a *routeAttrs) read(words []string) error {
	for i := 0; i < len(words); i++ {
		key := words[i]
		if key == "encap" {
			// An encapsulation has attributes of its own, "src" and "dst" among them.
			for i+1 < len(words) && words[i+1] != "via" && words[i+1] != "dev" {
				i++
			}
			continue
		}
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		var err error
		switch key {
		case "via":
			if value == "inet" || value == "inet6" {
				if i++; i+1 < len(words) {
					value = words[i+1]
				}
				a.viaInet6 = words[i] == "inet6"
			}
			a.via, err = netip.ParseAddr(value)
		case "src":
			a.src, err = netip.ParseAddr(value)
		case "from":
			if value == "default" || value == "all" {
				break
			}
			a.from, err = prefixOf(value)
			a.ipv6 = true
		case "dev":
			a.dev = value
		case "table":
			a.table = tableName(value)
		case "scope":
			a.scope = value
		case "proto":
			if value != "boot" {
				a.proto = value
			}
		case "tos", "dsfield":
			a.tos = value
		case "metric", "preference":
			a.metric, err = number(value)
		case "weight":
			a.weight, err = number(value)
		case "mtu", "advmss", "rto_min", "hoplimit":
			if value == "lock" {
				i++
			}
			a.ipv6 = a.ipv6 || key == "hoplimit"
		case "pref", "expires":
			a.ipv6 = true
		case "dead":
			a.dead = true
			continue
		case "linkdown":
			a.linkdown = true
			continue
		default:
			if !valued[key] {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s %q cannot be read", key, paste.Quote(value))
		}
		i++
	}
	return nil
}

func (a *routeAttrs) into(r *Route) {
	r.Table, r.Via, r.Dev, r.Src, r.Metric = a.table, a.via, a.dev, a.src, a.metric
	r.Dead, r.LinkDown = a.dead || a.linkdown, a.linkdown && !a.dead
	r.From, r.Scope, r.Proto, r.TOS = a.from, a.scope, a.proto, a.tos
	switch {
	case r.Family != 0:
	case a.viaInet6:
		r.Family = 4
	case a.via.IsValid():
		r.Family = familyOf(a.via)
	case a.src.IsValid():
		r.Family = familyOf(a.src)
	case a.ipv6:
		r.Family = 6
	}
}

// routeJSON is a route as `ip -j route` prints it.
type routeJSON struct {
	Type string `json:"type"`
	Dst  string `json:"dst"`
	From string `json:"from"`
	hopJSON
	Table    string    `json:"table"`
	Scope    string    `json:"scope"`
	Proto    string    `json:"protocol"`
	Src      string    `json:"prefsrc"`
	Metric   int       `json:"metric"`
	TOS      string    `json:"tos"`
	Pref     string    `json:"pref"`
	NextHops []hopJSON `json:"nexthops"`
}

type hopJSON struct {
	Gateway string `json:"gateway"`
	Via     struct {
		Family string `json:"family"`
		Host   string `json:"host"`
	} `json:"via"`
	Dev    string   `json:"dev"`
	Weight int      `json:"weight"`
	Flags  []string `json:"flags"`
}

// words spells a hop out as the text form does, so that both forms are read by one parser.
func (o hopJSON) words() []string {
	var w []string
	if o.Gateway != "" {
		w = append(w, "via", o.Gateway)
	}
	if o.Via.Host != "" {
		w = append(w, "via", o.Via.Family, o.Via.Host)
	}
	if o.Dev != "" {
		w = append(w, "dev", o.Dev)
	}
	if o.Weight != 0 {
		w = append(w, "weight", strconv.Itoa(o.Weight))
	}
	return append(w, o.Flags...)
}

func (l *routeListing) json(o routeJSON, ev Evidence) {
	var words []string
	if o.Type != "" {
		words = append(words, o.Type)
	}
	words = append(append(words, o.Dst), o.words()...)
	for _, kv := range [][2]string{{"from", o.From}, {"table", o.Table}, {"proto", o.Proto}, {"scope", o.Scope}, {"src", o.Src}, {"tos", o.TOS}, {"pref", o.Pref}} {
		if kv[1] != "" {
			words = append(words, kv[0], kv[1])
		}
	}
	if o.Metric != 0 {
		words = append(words, "metric", strconv.Itoa(o.Metric))
	}
	route, named, err := routeOf(words)
	if err != nil {
		l.skip(ev.Line, ev.Text, "%v", err)
		return
	}
	route.Evidence = ev
	l.add(route, named)
	for _, hop := range o.NextHops {
		l.hop(ev.Line, ev.Text, hop.words())
	}
}

// number reads a decimal or 0x number that fits 32 bits: metrics reach 4294967295.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", paste.Quote(s))
	}
	return int(n), nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
