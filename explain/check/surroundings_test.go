package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/traits"
)

// around is a node in iptables mode with one Service and these surroundings, by the name of the command that shows them.
func around(t *testing.T, captures map[string]string) *Node {
	t.Helper()
	h := &host.Host{}
	parsers := map[string]func(h *host.Host, text, file string) ([]host.Problem, error){
		"sysctl": host.ParseSysctls, "ip link": host.ParseLinks, "ip addr": host.ParseAddrs, "bridge": host.ParseBridges,
		"dmesg": host.ParseKernelLog, "conntrack": host.ParseConntrack, "hairpin": host.ParseHairpin,
	}
	n := &Node{
		Name: "node-1", Host: h, Objects: &objects.Set{}, Answers: map[Source]string{}, Proxy: traits.Proxy{Mode: "iptables"},
		Plan: &intent.Plan{Ports: []*intent.ServicePort{{
			Namespace: "shop", Name: "dns", PortName: "dns", Family: 4, Protocol: "UDP", Port: 53, Usable: []int{0},
			Frontends: []intent.Frontend{{Kind: intent.ClusterIP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 53}},
			Endpoints: []intent.Endpoint{{Addr: netip.MustParseAddr("10.244.1.5"), Port: 53, Ready: true, Serving: true, Local: true}},
		}}},
	}
	n.Ports = []Port{{ServicePort: n.Plan.Ports[0], On: n}}
	for name, text := range captures {
		if name == "iptables-save" {
			sets, err := netfilter.ParseSave(text, name, netfilter.Hint{})
			if err != nil {
				t.Fatal(err)
			}
			n.Rulesets = sets
			continue
		}
		if _, err := parsers[name](h, text, name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return n
}

// TestSurroundings holds what a scenario has no room for: the edges of checks, and what each rests on.
func TestSurroundings(t *testing.T) {
	const (
		bridged = "4: cni0: <BROADCAST,UP,LOWER_UP> mtu 1450\n5: veth1@if3: <BROADCAST,UP,LOWER_UP> mtu 1450 master cni0\n"
		bond    = "2: eth0: <BROADCAST,SLAVE,UP> mtu 1500 master bond0\n3: bond0: <BROADCAST,MASTER,UP> mtu 1500\n"
		calls   = "4: cni0: <BROADCAST,UP,LOWER_UP> mtu 1450\n    bridge nf_call_iptables 1 nf_call_ip6tables 0\n5: veth1@if3: <BROADCAST,UP,LOWER_UP> mtu 1450 master cni0\n    veth\n"
		cards   = "2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500\n3: eth1: <BROADCAST,UP,LOWER_UP> mtu 9000\n"
		vxlan   = "4: flannel.1: <BROADCAST,UP,LOWER_UP> mtu 1480\n    vxlan id 1 %sdstport 8472\n"
		counted = "*filter\n:KUBE-FORWARD - [0:0]\n%s -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n%s -A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
		flow    = "udp 17 29 src=10.244.1.7 dst=10.96.0.10 sport=4000 dport=53 [UNREPLIED] src=%s dst=10.244.1.7 sport=53 dport=4000\n"
	)
	table := func(count, limit int) string {
		return fmt.Sprintf("net.netfilter.nf_conntrack_count = %d\nnet.netfilter.nf_conntrack_max = %d\n", count, limit)
	}
	const said = "[1.000000] nf_conntrack: nf_conntrack: table full, dropping packet\n"
	for _, c := range []struct {
		name     string
		check    *Check
		captures map[string]string
		// unanswered are sources that were not answered.
		unanswered []Source
		// want are words of the only finding, empty for none; severity is that of the finding where it is not the default.
		want, severity string
		missing        []Source
	}{
		{name: "a table with room", check: &conntrackTableFull, captures: map[string]string{"sysctl": table(89999, 100000)}},
		{name: "a table that fills", check: &conntrackTableFull, captures: map[string]string{"sysctl": table(90000, 100000)}, want: "nearly full: 90000 of 100000", severity: Warning},
		{name: "a full table", check: &conntrackTableFull, captures: map[string]string{"sysctl": table(98000, 100000)}, want: "is full: 98000 of 100000 entries (98.00%)"},
		{name: "a table that was full", check: &conntrackTableFull, captures: map[string]string{"sysctl": table(10, 100000), "dmesg": said}, want: "was full and new connections were dropped: the kernel's log has 1 message of it; now 10 of 100000", severity: Warning},
		{name: "only the log", check: &conntrackTableFull, captures: map[string]string{"dmesg": said}, want: "was full", severity: Warning, missing: []Source{Sysctls}},
		{name: "no sysctls", check: &conntrackTableFull, missing: []Source{Sysctls}},
		{name: "the limit by its older name", check: &conntrackTableFull, captures: map[string]string{"sysctl": "net.netfilter.nf_conntrack_count = 99\nnet.nf_conntrack_max = 100\n"}, want: "is full"},
		{name: "nothing is tracked", check: &conntrackTableFull, captures: map[string]string{"sysctl": "# all of net.netfilter\nnet.ipv4.ip_forward = 1\n"}},

		{name: "no br_netfilter", check: &bridgeNFCallIPTablesOff, captures: map[string]string{"ip link": bridged, "sysctl": "# all of net.bridge\nnet.ipv4.ip_forward = 1\n"}, want: "br_netfilter is not loaded"},
		{name: "an excerpt of sysctls", check: &bridgeNFCallIPTablesOff, captures: map[string]string{"ip link": bridged, "sysctl": "net.ipv4.ip_forward = 1\n"}, missing: []Source{Sysctls}},
		{name: "the bridge itself calls", check: &bridgeNFCallIPTablesOff, captures: map[string]string{"ip link": calls, "sysctl": "net.bridge.bridge-nf-call-iptables = 0\n"}},
		{name: "a bond is no bridge", check: &bridgeNFCallIPTablesOff, captures: map[string]string{"ip link": bond, "sysctl": "net.bridge.bridge-nf-call-iptables = 0\n"}},
		{name: "bridges not seen", check: &bridgeNFCallIPTablesOff, unanswered: []Source{Links, Bridges}, missing: []Source{Links, Bridges}},
		{name: "no bridges", check: &bridgeNFCallIPTablesOff, captures: map[string]string{"ip link": cards}},

		{name: "hairpin not shown", check: &hairpinModeOff, captures: map[string]string{"ip link": bridged}, missing: []Source{Bridges}},
		{name: "hairpin off, the bridge's flags not shown", check: &hairpinModeOff, captures: map[string]string{"hairpin": "/sys/devices/virtual/net/cni0/brif/veth1/hairpin_mode:0\n"}, missing: []Source{Links}},
		{name: "hairpin off", check: &hairpinModeOff, captures: map[string]string{"ip link": bridged, "hairpin": "/sys/devices/virtual/net/cni0/brif/veth1/hairpin_mode:0\n"}, want: "hairpin mode is off on 1 port of bridge cni0 (veth1)"},
		{name: "hairpin on", check: &hairpinModeOff, captures: map[string]string{"ip link": bridged, "hairpin": "/sys/devices/virtual/net/cni0/brif/veth1/hairpin_mode:1\n"}},

		{name: "either card may carry the tunnel", check: &mtuExceedsUnderlay, captures: map[string]string{"ip link": cards + fmt.Sprintf(vxlan, "")}, unanswered: []Source{Routes4}, missing: []Source{Routes4}},
		{name: "the tunnel's own card", check: &mtuExceedsUnderlay, captures: map[string]string{"ip link": cards + fmt.Sprintf(vxlan, "dev eth0 ")}, want: "flannel.1 (vxlan, 50 bytes of overhead) has MTU 1480 and eth0 below it 1500: at most 1450 fits"},
		{name: "a card with large packets", check: &mtuExceedsUnderlay, captures: map[string]string{"ip link": cards + fmt.Sprintf(vxlan, "dev eth1 ")}},
		{name: "the only card", check: &mtuExceedsUnderlay, captures: map[string]string{"ip link": "2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500\n" + fmt.Sprintf(vxlan, "")}, want: "at most 1450"},

		{name: "no counters", check: &invalidDropHitsTraffic, captures: map[string]string{"iptables-save": fmt.Sprintf(counted, "", "")}, missing: []Source{RuleCounters}},
		{name: "few packets", check: &invalidDropHitsTraffic, captures: map[string]string{"iptables-save": fmt.Sprintf(counted, "[99:99]", "[0:0]")}},
		{name: "a small share", check: &invalidDropHitsTraffic, captures: map[string]string{"iptables-save": fmt.Sprintf(counted, "[199:99]", "[9801:0]")}},
		{name: "a large share", check: &invalidDropHitsTraffic, captures: map[string]string{"iptables-save": fmt.Sprintf(counted, "[200:99]", "[9800:0]")}, want: "dropped 200 packets"},

		{name: "a stale flow in a cut capture", check: &conntrackStaleUDP, captures: map[string]string{"conntrack": fmt.Sprintf(flow, "10.244.1.9")}, unanswered: []Source{Flows}, want: "1 flow to 10.96.0.10:53/UDP still goes to 10.244.1.9:53"},
		{name: "none in a cut capture", check: &conntrackStaleUDP, captures: map[string]string{"conntrack": fmt.Sprintf(flow, "10.244.1.5")}, unanswered: []Source{Flows}, missing: []Source{Flows}},
		{name: "none in a whole capture", check: &conntrackStaleUDP, captures: map[string]string{"conntrack": fmt.Sprintf(flow, "10.244.1.5")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := around(t, c.captures)
			for _, s := range c.unanswered {
				n.Answers[s] = "not read"
			}
			found := slices.Clone(runAlone(c.check, n))
			if (c.want == "") != (len(found) == 0) || len(found) > 1 {
				t.Fatalf("%d findings: %+v", len(found), found)
			}
			if c.want != "" && (!strings.Contains(found[0], c.want) || c.severity != "" && !strings.HasPrefix(found[0], c.severity+" ")) {
				t.Errorf("%s", found[0])
			}
			if !slices.Equal(n.missing, c.missing) {
				t.Errorf("rests on %v, want %v", n.missing, c.missing)
			}
		})
	}
}

// runAlone runs one check and returns severity and message of each finding.
func runAlone(c *Check, n *Node) []string {
	var out []string
	if c.Node != nil {
		for _, f := range c.Node(n) {
			f = c.complete(f, n.Name)
			out = append(out, f.Severity+" "+f.Message)
		}
	}
	if c.Port != nil {
		for i := range n.Ports {
			for _, f := range c.port(&n.Ports[i]) {
				out = append(out, f.Severity+" "+f.Message)
			}
		}
	}
	return out
}
