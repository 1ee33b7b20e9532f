package netfilter

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func listRule(t *testing.T, text string) (Rule, *Ruleset) {
	t.Helper()
	sets, err := ParseList(text, "f", Hint{})
	rs := one(t, sets, err)
	if len(rs.Tables) != 1 || len(rs.Tables[0].Chains) != 1 || len(rs.Tables[0].Chains[0].Rules) != 1 {
		t.Fatalf("%s: %s", text, summary(rs))
	}
	return rs.Tables[0].Chains[0].Rules[0], rs
}

func prefix(s string) AddrMatch {
	s, not := strings.CutPrefix(s, "!")
	return AddrMatch{Prefix: netip.MustParsePrefix(s), Not: not}
}

func TestListRows(t *testing.T) {
	tcp := ProtoMatch{Number: ProtoTCP, Set: true}
	hidden := &HiddenIfaces{File: "f"}
	http := &TCP{Dport: PortRange{Min: 80, Max: 80, Set: true}}
	for _, test := range []struct {
		name, text string
		want       Rule
		problems   []string
	}{
		{
			"-v", "Chain X (1 references)\n pkts bytes target     prot opt in     out     source               destination\n" +
				" 1234   12K KUBE-A     tcp  --  eth0   !cni0   10.0.0.0/8          !10.96.0.1            tcp dpt:80\n",
			Rule{
				Src: prefix("10.0.0.0/8"), Dst: prefix("!10.96.0.1/32"), Ifaces: &Ifaces{In: IfaceMatch{Name: "eth0"}, Out: IfaceMatch{Name: "cni0", Not: true}}, Proto: tcp,
				Matches: []Match{http}, Target: Jump{Chain: "KUBE-A"}, Packets: 1234, Bytes: 12000, HasCounters: true,
			}, nil,
		},
		{
			"-v without a target, protocol by number", "Chain X (1 references)\n    0     0            6    --  *      *       0.0.0.0/0            10.96.0.1            /* a */\n",
			Rule{Dst: prefix("10.96.0.1/32"), Proto: tcp, Comment: "a", HasCounters: true}, nil,
		},
		{
			"--line-numbers", "Chain X (1 references)\nnum  target     prot opt source               destination\n7    DROP       all  --  10.0.0.0/8           0.0.0.0/0\n",
			Rule{Src: prefix("10.0.0.0/8"), Matches: []Match{hidden}, Target: Drop{}}, nil,
		},
		{
			"both", "Chain X (1 references)\n7     3M    2G DROP       !tcp  -f any   any   10.0.0.0/8           anywhere\n",
			Rule{Src: prefix("10.0.0.0/8"), Proto: ProtoMatch{Number: 6, Not: true, Set: true}, Fragment: OnlyFragments, Target: Drop{}, Packets: 3e6, Bytes: 2e9, HasCounters: true}, nil,
		},
		{
			"without header, names", "DROP  tcp  --  anywhere  10.0.0.1  tcp dpt:http",
			Rule{Dst: prefix("10.0.0.1/32"), Proto: tcp, Matches: []Match{hidden, http}, Target: Drop{}},
			[]string{`1: the chain of this rule is not shown: no "Chain NAME" line stands before it`},
		},
		{
			"a host by name", "Chain FORWARD (policy ACCEPT)\nACCEPT  all  --  localhost  10.0.0.1\n",
			Rule{
				Dst: prefix("10.0.0.1/32"), Matches: []Match{
					hidden, &UnreadableMatch{Text: "source localhost", Why: "the listing was made without -n and shows a name, which only the node can resolve", Rule: "ACCEPT  all  --  localhost  10.0.0.1"},
				}, Target: Accept{},
			},
			[]string{"2: source localhost: the listing was made without -n and shows a name, which only the node can resolve"},
		},
		{
			"a port by a name of its own", "Chain FORWARD (policy ACCEPT)\nACCEPT  tcp  --  anywhere  10.0.0.1  tcp dpt:our-port state NEW\n",
			Rule{
				Dst: prefix("10.0.0.1/32"), Proto: tcp, Matches: []Match{
					hidden,
					&UnreadableMatch{Text: "dpt:our-port", Why: "these words belong to no known match or target", Rule: "ACCEPT  tcp  --  anywhere  10.0.0.1  tcp dpt:our-port state NEW"},
					&Conntrack{States: CTNew},
				}, Target: Accept{},
			},
			[]string{"2: dpt:our-port: these words belong to no known match or target"},
		},
		{
			"IPv6 of ip6tables 1.8.7, without option column", "Chain X (1 references)\n pkts bytes target     prot opt in     out     source               destination\n" +
				"    0     0 KUBE-A     tcp      *      *       ::/0                 fd00::1              tcp dpt:80\n",
			Rule{Dst: prefix("fd00::1/128"), Proto: tcp, Matches: []Match{http}, Target: Jump{Chain: "KUBE-A"}, HasCounters: true}, nil,
		},
		{
			"the same without -v", "Chain X (1 references)\ntarget     prot opt source               destination\nKUBE-A     tcp      anywhere             fd00::1              tcp dpt:http\n",
			Rule{Dst: prefix("fd00::1/128"), Proto: tcp, Matches: []Match{hidden, http}, Target: Jump{Chain: "KUBE-A"}}, nil,
		},
		{
			"goto", "Chain X (1 references)\nY  all  --  0.0.0.0/0  10.0.0.1  [goto] mark match 0x1\n",
			Rule{Dst: prefix("10.0.0.1/32"), Matches: []Match{hidden, &Mark{Value: 1, Mask: 0xffffffff}}, Target: Jump{Chain: "Y", Goto: true}}, nil,
		},
		{
			"a comment with the end of a comment", "Chain X (1 references)\nY  tcp  --  0.0.0.0/0  10.0.0.1  /* a */ b */ tcp dpt:80\n",
			Rule{Dst: prefix("10.0.0.1/32"), Proto: tcp, Comment: "a */ b", Matches: []Match{hidden, http}, Target: Jump{Chain: "Y"}}, nil,
		},
		{
			"a revision too new", "Chain X (1 references)\nDNAT  tcp  --  0.0.0.0/0  10.0.0.1  tcp [unsupported revision]\n",
			Rule{
				Dst: prefix("10.0.0.1/32"), Proto: tcp, Target: Unreadable{Name: "DNAT", Why: "printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it"},
				Matches: []Match{hidden, &UnreadableMatch{
					Text: "DNAT", Why: "printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it", Rule: "DNAT  tcp  --  0.0.0.0/0  10.0.0.1  tcp [unsupported revision]",
				}},
			},
			[]string{"2: DNAT: printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it"},
		},
		{
			"a match that nobody knows", "Chain X (1 references)\nDNAT  tcp  --  0.0.0.0/0  10.0.0.1  weather sunny tcp dpt:80 to:10.0.0.2:80\n",
			Rule{
				Dst: prefix("10.0.0.1/32"), Proto: tcp, Target: &Translate{Min: addr("10.0.0.2"), Max: addr("10.0.0.2"), MinPort: 80, MaxPort: 80},
				Matches: []Match{hidden, &UnreadableMatch{
					Text: "weather sunny", Why: "these words belong to no known match or target", Rule: "DNAT  tcp  --  0.0.0.0/0  10.0.0.1  weather sunny tcp dpt:80 to:10.0.0.2:80",
				}, http},
			},
			[]string{"2: weather sunny: these words belong to no known match or target"},
		},
		{
			"wrapped twice", "Chain X (1 references)\nDNAT  tcp  --  0.0.0.0/0  10.0.0.1  /* a\nb */ tcp dpt:80\nto:10.0.0.2\n",
			Rule{
				Dst: prefix("10.0.0.1/32"), Proto: tcp, Comment: "a b", Target: &Translate{Min: addr("10.0.0.2"), Max: addr("10.0.0.2")},
				Matches: []Match{hidden, http},
			}, nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, rs := listRule(t, test.text)
			diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(Rule{}, "Text", "Line"), cmpopts.EquateEmpty())
			if diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.problems, dropGuesses(problems(rs)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// dropGuesses leaves out that the table was not named, which is beside the point of a row.
func dropGuesses(problems []string) []string {
	var out []string
	for _, p := range problems {
		if !strings.Contains(p, "nothing says which table") {
			out = append(out, p)
		}
	}
	return out
}

func TestListTables(t *testing.T) {
	row := "    0     0 ACCEPT     all  --  *      *       0.0.0.0/0            10.0.0.1\n"
	filter := "Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n" + row + "\nChain FORWARD (policy DROP 0 packets, 0 bytes)\n\nChain OUTPUT (policy ACCEPT 0 packets, 0 bytes)\n\nChain X (0 references)\n" + row
	nat := "Chain PREROUTING (policy ACCEPT)\n\nChain INPUT (policy ACCEPT)\n\nChain OUTPUT (policy ACCEPT)\n\nChain POSTROUTING (policy ACCEPT)\n"
	for _, test := range []struct{ name, text, want string }{
		{"built-in chains", filter, "filter: INPUT(1) FORWARD(0) OUTPUT(0) X(1)\n"},
		{"two in a row", filter + nat, "filter: INPUT(1) FORWARD(0) OUTPUT(0) X(1)\nnat: PREROUTING(0) INPUT(0) OUTPUT(0) POSTROUTING(0)\n"},
		{"the command", "root@n:~# iptables -t mangle -nvL X\nChain X (1 references)\n" + row, "mangle: X(1)\n"},
		{"one chain twice", "Chain KUBE-SVC-A (1 references)\n" + row + "\nChain KUBE-SVC-A (1 references)\n" + row, "nat: KUBE-SVC-A(1)\n"},
	} {
		sets, err := ParseList(test.text, "f", Hint{})
		rs := one(t, sets, err)
		if got := summary(rs); got != test.want {
			t.Errorf("%s: got  %swant %s", test.name, got, test.want)
		}
		if len(rs.Problems) > 0 {
			t.Errorf("%s: %v", test.name, rs.Problems)
		}
	}
	sets, err := ParseList(filter, "f", Hint{})
	if c := one(t, sets, err).Table("filter").Chain("FORWARD"); c.Policy != "DROP" || c.Line != 4 {
		t.Errorf("%+v", c)
	}
}
