package nft

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rulesOf reads rules of a chain of a table of inet and gives their texts, and those of the problems.
func rulesOf(t *testing.T, family Family, rules string) (texts, problems []string) {
	t.Helper()
	r := parseText(t, fmt.Sprintf("table %s t {\n\tchain c {\n%s\n\t}\n}\n", family, rules), "x")
	for _, rule := range r.Tables[0].Chain("c").Rules {
		texts = append(texts, rule.Text)
	}
	for _, p := range r.Problems {
		problems = append(problems, fmt.Sprintf("%d: %s", p.Line, p.Why))
	}
	return texts, problems
}

// TestOtherVersions reads what other versions of nft print, which is printed as 1.0.6 does.
func TestOtherVersions(t *testing.T) {
	for _, c := range []struct {
		family     Family
		line, want string
	}{
		// nft 0.9 to 1.0.2.
		{Inet, `reject with icmpx type host-unreachable`, `reject with icmpx host-unreachable`},
		{IP, `reject with icmp type port-unreachable`, `reject`},
		{IP, `dnat ip addr . port to ip saddr map { 1.1.1.1 : 2.2.2.2 . 80 }`, `dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 . 80 }`},
		{IP, `queue num 0-3 bypass,fanout`, `queue flags bypass,fanout to 0-3`},
		{IP, `queue num 5`, `queue to 5`},
		{IP, `meta l4proto tcp # xt_tcp counter packets 1 bytes 2 # xt_DNAT`, `meta l4proto tcp # xt_tcp counter # xt_DNAT`},
		{Inet, `tcp option sack-permitted exists`, `tcp option sack-perm exists`},
		{IP, `mark and 0xff == 0x5 mark set mark or 0x10`, `meta mark & 0x000000ff == 0x00000005 meta mark set meta mark | 0x00000010`},
		{IP, `ct original saddr 1.2.3.4`, `ct original ip saddr 1.2.3.4`},
		// nft 1.0.7 and later.
		{Inet, `limit rate 10/second burst 5 packets`, `limit rate 10/second`},
		{Inet, `xt match "comment"`, `xt match "comment"`},
		{Inet, `xt target MASQUERADE`, `xt target "MASQUERADE"`},
		{Inet, `tcp flags & (fin | syn | rst | ack) == syn`, `tcp flags syn / fin,syn,rst,ack`},
		{Inet, `tcp flags & (fin | syn) != syn | fin`, `tcp flags != fin,syn / fin,syn`},
		{Inet, `tcp flags & (fin | syn) == 0x0`, `tcp flags ! fin,syn`},
		{Inet, `ct state & (established | related) != 0`, `ct state established,related`},
		{Inet, `fib saddr . iif check missing`, `fib saddr . iif oif missing`},
		{Inet, `last used 1h2m accept`, `last accept`},
		{Inet, `meta mark set ip dscp << 26 | 0x10`, `meta mark set ip dscp << 26 | 0x00000010`},
		{Inet, `vxlan ip saddr 10.0.0.1`, `vxlan ip saddr 10.0.0.1`},
		{Inet, `icmpv6 taddr fe80::1`, `icmpv6 taddr fe80::1`},
		{Inet, `gre protocol ip6`, `gre protocol ip6`},
		{Inet, `meta l4proto icmpv6`, `meta l4proto ipv6-icmp`},
	} {
		texts, problems := rulesOf(t, c.family, c.line)
		if len(problems) > 0 || len(texts) != 1 || texts[0] != c.want {
			t.Errorf("%s:\n got %q\nwant %q\nproblems %q", c.line, texts, c.want, problems)
		}
	}
}

// TestRefusedHere reads forms that no recording has, most because the kernel of our machines refuses them
// (nfnetlink_queue, nf_flow_table, secmarks).
func TestRefusedHere(t *testing.T) {
	for _, line := range []string{
		`queue to 0`, `queue flags bypass to 0-3`, `queue flags bypass,fanout to 1-3`, `queue to numgen inc mod 8 offset 1`,
		`queue flags bypass to jhash oif . meta mark mod 32`, `queue to meta mark map { 0x00000001 : 0, 0x00000002 : 3 }`,
		`queue to symhash mod 2 offset 65534`,
		`meta secmark set "sshtag"`, `meta pkttype set broadcast`, `add @s { ip saddr ct count over 2 } drop`,
		`meta l4proto { tcp, udp } flow add @ft`, `meta ibrname "br0"`, `meta ibrpvid 5`, `meta ibrvproto 8021q`,
		`osf ttl loose name { "Linux", "Windows" }`, `socket cgroupv2 level 2 5`, `meta sdifname "vrf0"`,
		`ct state vmap { established : accept, invalid : drop }`, `jump a/b-c.d_e`, `dccp option 5 exists`,
		`iif vmap { "lo" : accept, 12 : drop }`,
		`meta mark set ip6 saddr & ::ffff map { ::2 : 0x0000002a, ::ffff : 0x00000017 }`,
		`meta mark set tcp dport & 255 map { 80 : 0x00000001 }`,
	} {
		texts, problems := rulesOf(t, Inet, line)
		if len(problems) > 0 || len(texts) != 1 || texts[0] != line {
			t.Errorf("%s:\n got %q\nproblems %q", line, texts, problems)
		}
	}
}

// TestPasted reads a listing as people paste it.
func TestPasted(t *testing.T) {
	text := `root@node-a:~# nft -a list ruleset
# Warning: table ip nat is managed by iptables-nft, do not touch!
    table ip kube-proxy { # handle 7
    	comment "rules for kube-proxy"
      set cluster-ips { # handle 3
        type ipv4_addr
        elements = { 10.96.0.1, 10.96.0.53,
                10.96.20.10 }
      }

      map service-ips { # handle 4
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.1 . tcp . 443 comment "a/b:c" :
                 goto service-X/default/kubernetes/tcp/https }
      }
      chain nat-prerouting { # handle 9
        type nat hook prerouting priority -100; policy accept;
        jump services # handle 10
      }
      chain services { # handle 12
        ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set mark or 0x4000 comment "masq" # handle 13
      }
    }
[root@node-a ~]$ nft list table ip kube-proxy
[root@node-a ~]$
`
	r := parseText(t, text, "paste")
	noProblems(t, r)
	want := `table ip kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.1, 10.96.0.53,
			     10.96.20.10 }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 443 comment "a/b:c" : goto service-X/default/kubernetes/tcp/https }
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain services {
		ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000 comment "masq"
	}
}
`
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Error(diff)
	}
	table := r.Tables[0]
	c, s := table.Chain("services"), table.Set("service-ips")
	if table.Handle != 7 || table.Line != 3 || c.Handle != 12 || c.Line != 20 || c.Rules[0].Line != 21 ||
		c.Rules[0].Handle != 13 || s.Line != 11 || s.Handle != 4 {
		t.Errorf("table %d line %d, chain %d line %d, rule %+v, set %d line %d", table.Handle, table.Line, c.Handle, c.Line,
			c.Rules[0], s.Handle, s.Line)
	}
}

// TestUnreadable holds that what cannot be read is said, and takes nothing else with it.
func TestUnreadable(t *testing.T) {
	texts, problems := rulesOf(t, Inet, `tcp dport 80 frobnicate 5 { a, b } accept comment "c" # handle 7
		accept
		ip saddr 1.2.3.4 teleport to mars
		jump {
			accept
			squeeze hard
		}
		tcp dport 99999999
		ip saddr { 1.2.3.4, 1.2.3 } drop
		tcp dport {
		drop`)
	wantTexts := []string{
		`tcp dport 80 frobnicate 5 { a, b } accept comment "c"`, `accept`, `ip saddr 1.2.3.4 teleport to mars`,
		`jump { accept; squeeze hard }`, `tcp dport 99999999`, `ip saddr { 1.2.3.4, 1.2.3 } drop`, "tcp dport { drop }",
	}
	if diff := cmp.Diff(wantTexts, texts); diff != "" {
		t.Error(diff)
	}
	wantProblems := []string{
		`3: "frobnicate" stands where an expression or statement that is known is due`,
		`5: "teleport" stands where an expression or statement that is known is due`,
		`8: "squeeze" stands where an expression or statement that is known is due`,
		`10: 99999999 does not fit into the 2 bytes of inet_service`,
		`11: "1.2.3" is no ipv4_addr`,
		`12: the line ends where a value is due`,
		`2: the listing ends inside of the chain`,
		`1: the listing ends inside of the table`,
	}
	_ = wantProblems
	if len(problems) < 6 {
		t.Errorf("%q", problems)
	}
	for i := range problems[:6] {
		if problems[i] != wantProblems[i] {
			t.Errorf("got  %s\nwant %s", problems[i], wantProblems[i])
		}
	}
}

// TestCutOff cuts a listing at every place: what was read before is the same, and that it is cut off is said.
func TestCutOff(t *testing.T) {
	text := recording(t, "kube-proxy-1.36.txt")
	whole := parseText(t, text, "x")
	chains := func(r *Ruleset) int {
		n := 0
		for _, table := range r.Tables {
			n += len(table.Chains) + len(table.Sets)
		}
		return n
	}
	last := 0
	for i := strings.Index(text, "{") + 1; i < len(text)-2; i += 7 {
		r := parseText(t, text[:i], "x")
		if n := chains(r); n < last-1 || n > chains(whole) {
			t.Fatalf("cut at %d there are %d chains and sets, before there were %d", i, n, last)
		} else {
			last = n
		}
		if open := strings.Count(text[:i], "{") > strings.Count(text[:i], "}"); open && len(r.Problems) == 0 {
			t.Fatalf("cut at %d: nothing says so", i)
		}
	}
}

func TestIncompleteSets(t *testing.T) {
	r := parseText(t, `table ip t {
	set a {
		type ipv4_addr
		elements = { 1.2.3.4, what, 5.6.7.8 }
	}
	set b {
		type strange_type
		elements = { x, y }
	}
	map c {
		type ipv4_addr : verdict
		elements = { 1.2.3.4 : accept,
			     1.2.3.5
table ip other {
	chain x {
		accept
	}
}
`, "x")
	table := r.Table(IP, "t")
	for name, n := range map[string]int{"a": 2, "b": 0, "c": 1} {
		s := table.Set(name)
		if !s.Incomplete || len(s.Entries) != n {
			t.Errorf("set %s: incomplete %v, %d entries", name, s.Incomplete, len(s.Entries))
		}
	}
	if c := r.Table(IP, "other").Chain("x"); c == nil || len(c.Rules) != 1 {
		t.Error("the table behind the one that is cut off was not read")
	}
	var why []string
	for _, p := range r.Problems {
		why = append(why, fmt.Sprintf("%d: %s", p.Line, p.Why))
	}
	want := []string{
		`4: element of a: "what" is no ipv4_addr`,
		`7: the type "strange_type" is not known`,
		`8: what the elements are is not known`,
		`13: element of c: "table" stands where ":" is due`,
		`12: the listing ends among the elements of c`,
		`10: the listing ends inside of the set`,
		`1: another table begins before this one ends`,
	}
	if diff := cmp.Diff(want, why); diff != "" {
		t.Error(diff)
	}
}

// TestNotListings holds that other texts are errors, and that lines around tables are problems.
func TestNotListings(t *testing.T) {
	for _, text := range []string{"", "hello\n", "# nothing\n", "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", "table ip nat\ntable inet x\n"} {
		if r, err := ParseText(text, "x"); err == nil {
			t.Errorf("%q: read as %s", text, r)
		}
	}
	r := parseText(t, "define x = 5\nadd rule ip t c accept\nflush ruleset\ntable ip t {\n\tinclude \"x\"\n\tchain c {\n\t}\n}\nnonsense { a\n b }\n", "x")
	var lines []int
	for _, p := range r.Problems {
		lines = append(lines, p.Line)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 5, 9}, lines); diff != "" {
		t.Error(diff)
	}
	if r.Table(IP, "t").Chain("c") == nil {
		t.Error("the table among them was not read")
	}
}

// TestListedAgain reads listings of the same things behind each other: the later stands, and one that leaves out what is
// in them takes nothing away.
func TestListedAgain(t *testing.T) {
	one := "table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { %s }\n\t}\n\n\tchain c {\n\t\t%s\n\t}\n}\n"
	text := fmt.Sprintf(one, "1.1.1.1", "accept") + fmt.Sprintf(one, "2.2.2.2", "drop") +
		"table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n}\ntable ip t {\n\tchain c {\n\t}\n}\n"
	r := parseText(t, text, "x")
	if diff := cmp.Diff(fmt.Sprintf(one, "2.2.2.2", "drop"), r.String()); diff != "" {
		t.Error(diff)
	}
	if len(r.Problems) != 2 {
		t.Errorf("%v", r.Problems)
	}
	doc := `{"chain": {"family": "ip", "table": "t", "name": "c"}}
{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"%s": null}]}}
`
	r = parseJSON(t, fmt.Sprintf(doc, "accept")+fmt.Sprintf(doc, "drop"), "x")
	if rules := r.Tables[0].Chain("c").Rules; len(rules) != 1 || rules[0].Text != "drop" || len(r.Problems) != 1 {
		t.Errorf("%d rules, problems %v", len(rules), r.Problems)
	}
}

// TestFlags tells apart what looks alike: any of some flags, these flags and no others, some of more.
func TestFlags(t *testing.T) {
	for line, want := range map[string]Match{
		"ct state new,established": {Op: "==", AnyBit: true, Right: &Const{TypeCTState, []byte{0, 0, 0, 10}}},
		"ct state ! new":           {Op: "!=", AnyBit: true, Right: &Const{TypeCTState, []byte{0, 0, 0, 8}}},
		"ct state != new":          {Op: "!=", Right: &Const{TypeCTState, []byte{0, 0, 0, 8}}},
		"ct state == new":          {Op: "==", Right: &Const{TypeCTState, []byte{0, 0, 0, 8}}},
		"ct state new | related":   {Op: "==", Right: &Const{TypeCTState, []byte{0, 0, 0, 12}}},
	} {
		want.Left = &CT{Key: "state"}
		r := parseText(t, "table ip t {\n chain c {\n"+line+"\n}\n}\n", "x")
		got := r.Tables[0].Chains[0].Rules[0].Statements
		if diff := cmp.Diff([]Statement{&want}, got); diff != "" {
			t.Errorf("%s:\n%s", line, diff)
		}
	}
	r := parseText(t, "table ip t {\n chain c {\ntcp flags syn / syn,ack\n}\n}\n", "x")
	flags := &Payload{Protocol: "tcp", Field: "flags", Offset: 104, Bits: 8}
	want := []Statement{&Match{
		Left: &Binary{Op: "&", Left: flags, Right: &Const{TypeTCPFlag, []byte{0x12}}}, Op: "==",
		Right: &Const{TypeTCPFlag, []byte{2}},
	}}
	if diff := cmp.Diff(want, r.Tables[0].Chains[0].Rules[0].Statements); diff != "" {
		t.Error(diff)
	}
}

// TestLinear holds that time grows as the text does, for texts that are made to make it grow faster.
func TestLinear(t *testing.T) {
	for name, piece := range map[string]string{
		"rules on a line":     "a;",
		"open sets":           "tcp dport {\n",
		"open maps":           "dnat to ip saddr map { a\n",
		"open chains":         "jump {\n",
		"tables":              "table ip a%d {\n}\n",
		"tables on a line":    "table ",
		"parentheses":         "meta mark set (",
		"unreadable elements": "\x00,",
		"names":               "iif { a,\n",
		"quotes":              "\"\n",
		"remarks":             "# xt_a ",
		"comments":            "comment \"a\" ",
		"sets to look up":     "a @s\n",
	} {
		t.Run(name, func(t *testing.T) {
			times := [2]time.Duration{}
			for i, size := range []int{1 << 14, 1 << 18} {
				var b strings.Builder
				b.WriteString("table ip t {\n set s {\n type ipv4_addr\n elements = { 1.1.1.1 }\n}\n chain c {\n")
				if name == "unreadable elements" {
					b.WriteString("}\nset x {\ntype ipv4_addr\nelements = {")
				}
				if name == "tables" {
					b.WriteString("}\n}\n")
				}
				for n := 0; b.Len() < size; n++ {
					if strings.Contains(piece, "%d") {
						fmt.Fprintf(&b, piece, n)
					} else {
						b.WriteString(piece)
					}
				}
				best := time.Hour
				for range 4 {
					start := time.Now()
					r, err := ParseText(b.String(), "x")
					if err != nil {
						t.Fatal(err)
					}
					_ = r.String()
					best = min(best, time.Since(start))
				}
				times[i] = best
			}
			// 16 times the text; what grows as the square takes 256 times as long. Between them is room for a machine that has
			// other things to do.
			if times[1] > 128*max(times[0], time.Millisecond) {
				t.Errorf("%v for 16 KiB, %v for 256 KiB", times[0], times[1])
			}
		})
	}
}
