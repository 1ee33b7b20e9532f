package live

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// state is what a reader could change in a network namespace, by name, as the native tools print it.
type state map[string]string

// look reads the state of a network namespace with the tools of the system. It names no table of iptables-legacy
// that is not there: that would register it.
func look(t *testing.T, netns string) state {
	t.Helper()
	sh := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+netns, "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	s := state{
		"registered legacy tables": sh("cat /proc/net/ip_tables_names; echo --; cat /proc/net/ip6_tables_names"),
		"nftables":                 sh("nft -a list ruleset"),
		"sets":                     sh("ipset save"),
		"links and addresses":      sh("ip -d addr | sed 's/[a-z_]*_timer *[0-9.]*//g'"),
		"routes":                   sh("ip route show table all; ip -6 route show table all; ip rule; ip -6 rule"),
		"sysctls":                  sh("sysctl -a 2>/dev/null | grep '^net\\.' | grep -v -e conntrack_count -e stable_secret"),
		"xt_recent":                sh("grep -r . /proc/thread-self/net/xt_recent/ || true"),
	}
	// What a flow has left to live runs down by itself.
	s["flows"] = regexp.MustCompile(`(?m)^(\S+ +\d+ +\S+ +\d+) +\d+`).ReplaceAllString(sh("cat /proc/thread-self/net/nf_conntrack | sort"), "$1")
	for _, family := range []string{"", "6"} {
		for _, table := range strings.Fields(sh("cat /proc/net/ip" + family + "_tables_names")) {
			s["legacy ip"+family+" "+table] = withoutDates(sh(fmt.Sprintf("ip%stables-legacy-save -c -t %s", family, table)))
		}
		s["nft ip"+family] = withoutDates(sh("ip" + family + "tables-nft-save -c"))
	}
	return s
}

func withoutDates(s string) string {
	return regexp.MustCompile(`(?m)^# (Generated|Completed).*\n`).ReplaceAllString(s, "")
}

// TestLookingChangesNothing runs the program in a silent namespace that has something of everything, and in one
// that has nothing.
func TestLookingChangesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, c := range []struct{ name, setup string }{
		{"nothing", "ip link set lo up"},
		{"both backends", `set -e
ip link set lo up
iptables-nft -t nat -N KUBE-SERVICES
iptables-nft -t nat -A OUTPUT -j KUBE-SERVICES
iptables-nft -t nat -A KUBE-SERVICES -d 10.96.0.10/32 -p tcp --dport 80 -j DNAT --to-destination 127.0.0.1:8080
ip6tables-nft -t filter -A INPUT -p tcp --dport 81 -j REJECT
iptables-legacy -t nat -N KUBE-SERVICES
iptables-legacy -t nat -A OUTPUT -j KUBE-SERVICES
iptables-legacy -t filter -A INPUT -m recent --name seen --set
ip6tables-legacy -t mangle -A PREROUTING -j MARK --set-mark 1
ipset create pool hash:ip,port
ipset add pool 10.0.0.1,tcp:80
nft add table inet other
nft add chain inet other input '{ type filter hook input priority 10; }'
nft add rule inet other input counter accept
conntrack -I -p tcp -s 10.0.0.1 -d 10.96.0.10 --sport 1000 --dport 80 --state ESTABLISHED -t 3600 -g 10.244.1.1 >/dev/null 2>&1
conntrack -I -p udp -s 10.0.0.1 -d 10.96.0.10 --sport 1000 --dport 53 -t 3600 >/dev/null 2>&1
ip route add blackhole 10.99.0.0/16 table 100
ip rule add from 10.0.0.0/8 lookup 100`},
	} {
		t.Run(c.name, func(t *testing.T) {
			netns := fmt.Sprintf("svcnet-still-%d", os.Getpid())
			if out, err := exec.Command("ip", "netns", "add", netns).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", netns).Run() })
			if out, err := exec.Command("nsenter", "--net=/run/netns/"+netns, "sh", "-c", c.setup).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			before := look(t, netns)
			if diff := cmp.Diff(before, look(t, netns)); diff != "" {
				t.Fatalf("the namespace is not silent:\n%s", diff)
			}
			for _, args := range [][]string{
				{"collect", "-o", "-", "--silent", "--no-api"},
				{"trace", "svc/web", "--silent", "--no-api", "--node", "n1"},
				{"trace", "--to", "10.96.0.10:80/TCP", "--from", "127.0.0.1", "--origin", "node", "--silent", "--no-api", "--node", "n1"},
			} {
				out, _ := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=/run/netns/" + netns, svcnet(t)}, args...)...).CombinedOutput()
				if diff := cmp.Diff(before, look(t, netns)); diff != "" {
					t.Errorf("svcnet %s changed something:\n%s\nit said: %.500q", strings.Join(args, " "), diff, out)
				}
			}
		})
	}
}

// TestLookingMovesCountersOnly asks kube-proxy's endpoints too: rules stay as they are, and counters only grow.
func TestLookingMovesCountersOnly(t *testing.T) {
	l := labtest.Bring(t, lab.Options{Name: fmt.Sprintf("c%d", os.Getpid()), Nodes: 1})
	s := &stage{Lab: l}
	n1 := l.Node("n1")
	netns := n1.Netns().Name
	before := look(t, netns)
	if _, said, code := s.run(t, n1, "collect", "-o", "-"); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	after := look(t, netns)
	for name := range before {
		if name == "flows" || name == "nftables" || name == "xt_recent" {
			continue // connections to the API and to kube-proxy are flows; nft prints counters inside rules
		}
		was, is := before[name], after[name]
		if plain(was) != plain(is) {
			t.Errorf("%s changed:\n%s", name, cmp.Diff(plain(was), plain(is)))
			continue
		}
		old, now := counters(t, was), counters(t, is)
		for i := range old {
			if now[i] < old[i] {
				t.Errorf("%s: counter %d went from %d to %d", name, i, old[i], now[i])
			}
		}
	}
}

var counter = regexp.MustCompile(`\[(\d+):(\d+)\]`)

func plain(s string) string { return counter.ReplaceAllString(s, "[]") }

func counters(t *testing.T, s string) []uint64 {
	t.Helper()
	var out []uint64
	for _, m := range counter.FindAllStringSubmatch(s, -1) {
		for _, d := range m[1:] {
			n, err := strconv.ParseUint(d, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, n)
		}
	}
	return out
}
