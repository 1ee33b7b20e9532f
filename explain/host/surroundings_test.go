package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlowStats(t *testing.T) {
	// The tool and the kernel's file say the same of the counters that both have.
	for _, file := range []string{"case-15-conntrack-S.txt", "stat-nf_conntrack.txt"} {
		h := load(t, file)
		if len(h.FlowStats) != 2 || h.FlowStats[1].CPU != 1 {
			t.Fatalf("%s: %+v", file, h.FlowStats)
		}
		for name, want := range map[string]uint64{"invalid": 8179, "insert_failed": 4, "drop": 4, "search_restart": 168} {
			if sum, cpus, ok := h.FlowCounter(name); sum != want || len(cpus) != 2 || !ok || cpus[0].CPU != 0 {
				t.Errorf("%s: %s is %d on %d CPUs, want %d", file, name, sum, len(cpus), want)
			}
		}
		if sum, cpus, ok := h.FlowCounter("early_drop"); sum != 0 || len(cpus) != 0 || !ok {
			t.Errorf("%s: early_drop: %d, %v", file, sum, ok)
		}
	}
	h := load(t, "stat-nf_conntrack.txt")
	if got, want := h.FlowStats[0].Text, "cpu=0 found=12 invalid=4182 insert=0 insert_failed=3 drop=3 early_drop=0 error=0 search_restart=91 clash_resolve=2 chaintoolong=0"; got != want {
		t.Errorf("evidence: %s", got)
	}
	if _, _, ok := h.FlowCounter("entries"); ok {
		t.Error("the size of the table is no counter")
	}
	h = load(t, "stat-nf_conntrack-old.txt")
	if sum, _, ok := h.FlowCounter("early_drop"); sum != 17 || !ok {
		t.Errorf("old columns: %+v", h.FlowStats)
	}
	if _, _, ok := h.FlowCounter("clash_resolve"); ok {
		t.Error("a counter that the kernel does not have")
	}
	// The last of two captures counts: they are of one table.
	h = load(t, "stat-nf_conntrack.txt", "case-15-conntrack-S.txt")
	if sum, _, _ := h.FlowCounter("invalid"); sum != 8179 {
		t.Errorf("two captures are added up: %d", sum)
	}
	for _, text := range []string{"cpu=0 found=x\ncpu=1 found=1\n", "entries found\n1 2 3\n1 2\n", "00000001 00000002\ncpu=1 found=1"} {
		h := &Host{}
		problems, err := ParseFlowStats(h, text, "f")
		if err != nil || len(problems) != 1 || len(h.FlowStats) != 1 {
			t.Errorf("%q: %v %v %+v", text, problems, err, h.FlowStats)
		}
	}
}

func TestKernelLog(t *testing.T) {
	h := load(t, "case-14-dmesg.txt", "case-67-dmesg.txt")
	if full := h.KernelSaid(TableFull); len(full) != 3 || full[2].Line != 3 {
		t.Errorf("table full: %+v", full)
	}
	want := []KernelMessage{{Kind: MartianSource, Src: addr("198.51.100.7"), Dst: addr("10.244.1.140"), Dev: "eth0"}}
	if diff := cmp.Diff(want, h.KernelSaid(MartianSource), ignoreEvidence, compareAddrs); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]int{
		"Jan  5 10:00:01 node-a kernel: nf_conntrack: nf_conntrack: table full, dropping packet":                          1,
		"2026-01-05T10:00:01+00:00 node-a systemd x kernel: ip_conntrack: table full, dropping packet.":                   0,
		"<4>[ 1234.567890] nf_conntrack: table full, dropping packet":                                                     1,
		"[    0.000000] Linux version 6.1.0":                                                                              0,
		"[   12.000000] IPv4: martian source 10.0.0.300 from 10.0.0.1, on dev eth0":                                       0,
		"[   12.000000] IPv4: martian destination 127.0.0.1 from 10.0.0.1, dev eth0":                                      0,
		"[   12.000000] ll header: 00000000: ff ff\n[   13.000000] IPv4: martian source 10.0.0.2 from 10.0.0.1, on dev x": 1,
	} {
		h := &Host{}
		if problems, err := ParseKernelLog(h, text, "f"); err != nil || len(problems) > 0 || len(h.KernelLog) != want {
			t.Errorf("%s: %+v %v %v", text, h.KernelLog, problems, err)
		}
	}
}

func TestOffloads(t *testing.T) {
	h := load(t, "case-66-ethtool.txt")
	got := h.Offloads["flannel.1"]
	if o := got["tx-checksum-ip-generic"]; !o.On || o.Fixed || o.Line != 5 {
		t.Errorf("tx-checksum-ip-generic: %+v", o)
	}
	if o := got["tx-checksum-ipv4"]; o.On || !o.Fixed {
		t.Errorf("tx-checksum-ipv4: %+v", o)
	}
	h = host(t, map[string]string{"ethtool.txt": "# ethtool -k eth0\nFeatures for eth0:\nrx-vlan-filter: off [requested on]\nFeatures for eth1:\nhw-tc-offload: off [fixed]\n"})
	if len(h.Offloads) != 2 || h.Offloads["eth0"]["rx-vlan-filter"].On || !h.Offloads["eth1"]["hw-tc-offload"].Fixed {
		t.Errorf("two interfaces: %+v", h.Offloads)
	}
	h = &Host{}
	problems, err := ParseOffloads(h, "rx-checksumming: on\nFeatures for lo:\nrx-checksumming: on\n", "f")
	if err != nil || len(problems) != 1 || problems[0].Line != 1 || len(h.Offloads) != 1 {
		t.Errorf("a feature of no interface: %v %v %+v", problems, err, h.Offloads)
	}
}

// TestSysctlAbsent: a sysctl that is not there does not exist where the capture has all of its kind, and only there.
func TestSysctlAbsent(t *testing.T) {
	const name = "net.bridge.bridge-nf-call-iptables"
	var all strings.Builder
	for _, tree := range []string{"debug", "fs", "kernel", "net.core", "net.ipv4", "user", "vm"} {
		for i := range 50 {
			fmt.Fprintf(&all, "%s.some%d = %d\n", tree, i, i)
		}
	}
	whole := all.String()
	for _, c := range []struct {
		what, text string
		want       bool
		line       int
	}{
		{"a collector's capture", "# all of net.bridge net.netfilter\nnet.ipv4.ip_forward = 1\n", true, 1},
		{"one that vouches for what is above", "# all of net\nnet.ipv4.ip_forward = 1\n", false, 0},
		{"one that holds it", "# all of net.bridge\n" + name + " = 0\n", false, 0},
		{"one that vouches for others", "# all of net.netfilter net.bri\nnet.ipv4.ip_forward = 1\n", false, 0},
		{"an excerpt", "net.ipv4.ip_forward = 1\n", false, 0},
		{"an excerpt with remarks", "# sysctl -a | grep net.bridge\nnet.ipv4.ip_forward = 1\n", false, 0},
		{"sysctl -a", whole, true, 151},
		{"sysctl -a, cut off", whole[:strings.Index(whole, "user.")], false, 0},
		{"sysctl -a, begun late", whole[strings.Index(whole, "net."):], false, 0},
		{"sysctl -a, sieved", strings.Join(strings.Split(whole, "\n")[:60], "\n") + "\nnet.core.x = 1\nvm.x = 1\n", false, 0},
	} {
		h := host(t, map[string]string{"sysctl.txt": c.text})
		ev, absent := h.SysctlAbsent(name)
		if absent != c.want || ev.Line != c.line {
			t.Errorf("%s: absent is %t, %+v", c.what, absent, ev)
		}
	}
	// What sysctl was not allowed to read is there.
	h := &Host{}
	if _, err := ParseSysctls(h, "sysctl: permission denied on key 'net.bridge.bridge-nf-call-iptables'\n"+whole, "f"); err != nil {
		t.Fatal(err)
	}
	if _, absent := h.SysctlAbsent(name); absent {
		t.Error("refused, and yet absent")
	}
}

func TestLinkProperties(t *testing.T) {
	h := host(t, map[string]string{"ip-link.txt": `3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450
    link/ether 52:54:00:00:00:11 brd ff:ff:ff:ff:ff:ff promiscuity 0
    bridge vlan_filtering 0 nf_call_iptables 1 nf_call_ip6tables 0 nf_call_arptables 0
4: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450
    vxlan id 1 local 192.168.10.11 dev eth0 srcport 0 0 dstport 8472 nolearning
5: br1: <UP> mtu 1500
`})
	if b := h.Link("cni0"); b.CallsIPTables != Yes || b.CallsIP6Tables != No || h.Link("br1").CallsIPTables != Unknown {
		t.Errorf("bridges: %+v %+v", b, h.Link("br1"))
	}
	if v := h.Link("flannel.1"); v.Carrier != "eth0" || v.Kind != "vxlan" {
		t.Errorf("tunnel: %+v", v)
	}
	h = host(t, map[string]string{"ip-link.json": `[{"ifindex":4,"ifname":"vx","flags":["UP"],"mtu":1450,"linkinfo":{"info_kind":"vxlan","info_data":{"id":1,"link":"eth0"}}},
{"ifindex":5,"ifname":"cni0","linkinfo":{"info_kind":"bridge","info_data":{"nf_call_iptables":1,"nf_call_ip6tables":0}}}]`})
	if h.Link("vx").Carrier != "eth0" || h.Link("cni0").CallsIPTables != Yes || h.Link("cni0").CallsIP6Tables != No {
		t.Errorf("JSON: %+v", h.Links)
	}
}

func TestFlowsTo(t *testing.T) {
	h := load(t, "case-12-conntrack.txt")
	if got := h.FlowsTo(17, addr("10.96.40.9"), 8125); len(got) != 2 || got[0].SrcPort != 43145 || got[1].Line != 2 {
		t.Errorf("%+v", got)
	}
	if got := h.FlowsTo(6, addr("10.96.40.9"), 8125); len(got) != 0 {
		t.Errorf("of another protocol: %+v", got)
	}
}

func TestStrictSourceCheck(t *testing.T) {
	for text, want := range map[string]Known{
		"net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth0.rp_filter = 0\n": Yes,
		"net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth0.rp_filter = 2\n": No,
		"net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth0.rp_filter = 0\n": No,
		"net.ipv4.conf.all.rp_filter = 1\n":                                   Unknown,
		"net.ipv4.conf.all.rp_filter = 2\n":                                   No,
	} {
		h := host(t, map[string]string{"sysctl.txt": text})
		if got, ev := h.StrictSourceCheck("eth0"); got != want || got != Unknown && ev.Text == "" {
			t.Errorf("%s: %v, %+v", text, got, ev)
		}
	}
}
