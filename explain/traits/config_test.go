package traits

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func samePrefixes(a, b []netip.Prefix) bool { return slices.Equal(a, b) }

func derived(t *testing.T, in Evidence, want Proxy) Proxy {
	t.Helper()
	p := Derive(in)
	got := p
	got.Facts, got.Events, got.SyncPeriod, got.Presence, got.PresenceEvidence = nil, nil, 0, "", nil
	if diff := cmp.Diff(want, got, cmp.Comparer(samePrefixes)); diff != "" {
		t.Error(diff)
	}
	return p
}

func TestConfigz(t *testing.T) {
	podCIDR := prefixes([]string{"10.244.0.0/16"})
	p := derived(t, Evidence{Configz: []Source{capture(t, "nodes/kube-proxy-1.36-iptables/configz.json")}}, Proxy{
		Mode: "iptables", Version: Version{1, 36, -1}, VersionFromRules: true, NodeName: "node-1", LocalMode: "ClusterCIDR",
		ClusterCIDRs: podCIDR, PodCIDRs: podCIDR, MasqueradeMark: 0x4000, LocalhostNodePorts: true,
	})
	if f := factOf(p, "mode"); f.Text != `"mode":"iptables"` || f.Line != 1 || f.Note != "" {
		t.Errorf("mode: %+v", f)
	}
	if f := factOf(p, "clusterCIDR"); f.Text != `"clusterCIDR":"10.244.0.0/16"` {
		t.Errorf("clusterCIDR: %+v", f)
	}
	derived(t, Evidence{Configz: []Source{capture(t, "nodes/kube-proxy-1.36-nftables/configz.json")}}, Proxy{
		Mode: "nftables", Version: Version{1, 36, -1}, VersionFromRules: true, NodeName: "node-1", LocalMode: "ClusterCIDR",
		ClusterCIDRs: podCIDR, PodCIDRs: podCIDR, MasqueradeMark: 0x4000, LocalhostNodePorts: true, NodePortPrimary: true,
	})
}

// /configz prints every field, so that the fields that it has not got tell the version too.
func TestConfigzOfOldVersions(t *testing.T) {
	for _, tt := range []struct{ body, text string }{
		{`{"kubeproxy.config.k8s.io":{"mode":"ipvs","iptables":{},"bindAddressHardFail":false,"udpIdleTimeout":"250ms"}}`, "1.19 to 1.23"},
		{`{"kubeproxy.config.k8s.io":{"mode":"ipvs","iptables":{"localhostNodePorts":null},"bindAddressHardFail":false,"detectLocal":{}}}`, "1.26 to 1.27"},
		{`{"kubeproxy.config.k8s.io":{"mode":"ipvs","iptables":{"localhostNodePorts":null},"bindAddressHardFail":false,"detectLocal":{},"logging":{},"nftables":{}}}`, "1.29 to 1.35"},
	} {
		p := Derive(Evidence{Configz: []Source{{File: "configz", Text: tt.body}}})
		if p.VersionText() != tt.text || p.Mode != "ipvs" {
			t.Errorf("%s: %q %+v", tt.body, p.VersionText(), p)
		}
	}
}

// Up to 1.35 /configz shows kube-proxy's own form of the configuration, from 1.31 on with some fields elsewhere.
func TestConfigzInInternalForm(t *testing.T) {
	for _, tt := range []struct{ body, text string }{
		{`{"kubeproxy.config.k8s.io":{"HostnameOverride":"N1","Logging":{},"BindAddressHardFail":false,"Mode":"iptables",` +
			`"IPTables":{"MasqueradeBit":15,"MasqueradeAll":true,"LocalhostNodePorts":true,"SyncPeriod":"40s"},"IPVS":{"SyncPeriod":"30s"},"NFTables":{"MasqueradeBit":14},` +
			`"DetectLocalMode":"ClusterCIDR","DetectLocal":{"BridgeInterface":""},"ClusterCIDR":"10.244.0.0/16,fd00:244::/32","NodePortAddresses":["192.0.2.0/24"],"OOMScoreAdj":-999}}`, "1.29 to 1.35"},
		{`{"kubeproxy.config.k8s.io":{"Linux":{"Conntrack":{"Min":131072},"MasqueradeAll":true},"Logging":{},"HostnameOverride":"n1","BindAddressHardFail":false,"Mode":"iptables",` +
			`"IPTables":{"MasqueradeBit":15,"LocalhostNodePorts":true},"IPVS":{"TCPTimeout":"0s"},"NFTables":{"MasqueradeBit":14},"DetectLocalMode":"ClusterCIDR",` +
			`"DetectLocal":{"ClusterCIDRs":["10.244.0.0/16","fd00:244::/32"]},"NodePortAddresses":["192.0.2.0/24"],"SyncPeriod":"40s"}}`, "1.29 to 1.35"},
	} {
		p := Derive(Evidence{Configz: []Source{{File: "configz", Text: tt.body}}})
		if p.VersionText() != tt.text || p.Mode != "iptables" || p.NodeName != "n1" || p.LocalMode != "ClusterCIDR" || !p.MasqueradeAll || p.MasqueradeMark != 0x8000 ||
			!p.LocalhostNodePorts || len(p.NodePortAddresses) != 1 || len(p.ClusterCIDRs) != 2 {
			t.Errorf("%s: %q %+v", tt.body, p.VersionText(), p)
		}
		if p.SyncPeriod != 40*time.Second {
			t.Errorf("%s: sync period %s", tt.body, p.SyncPeriod)
		}
	}
	for name, want := range map[string]string{
		"IPTables": "iptables", "NFTables": "nftables", "IPVS": "ipvs", "ClusterCIDR": "clusterCIDR", "ClusterCIDRs": "clusterCIDRs", "TCPFinTimeout": "tcpFinTimeout",
		"OOMScoreAdj": "oomScoreAdj", "HostnameOverride": "hostnameOverride", "MasqueradeBit": "masqueradeBit", "syncPeriod": "syncPeriod", "UDPIdleTimeout": "udpIdleTimeout", "": "",
	} {
		if got := publishedName(name); got != want {
			t.Errorf("%s in files: %s, want %s", name, got, want)
		}
	}
}

func TestConfigFiles(t *testing.T) {
	podCIDR := prefixes([]string{"10.244.0.0/16"})
	p := derived(t, Evidence{Configs: []Source{capture(t, "cases/28/kube-proxy-config.yaml")}},
		Proxy{Mode: "iptables", LocalMode: "-", MasqueradeMark: 0x4000, LocalhostNodePorts: true})
	if f := factOf(p, "localMode"); f.Line != 4 || f.Text != `clusterCIDR: ""` || f.Note == "" {
		t.Errorf("localMode: %+v", f)
	}
	derived(t, Evidence{Configs: []Source{capture(t, "cases/55/kube-proxy-config.yaml")}},
		Proxy{Mode: "ipvs", LocalMode: "ClusterCIDR", ClusterCIDRs: podCIDR, PodCIDRs: podCIDR, MasqueradeMark: 0x4000, LocalhostNodePorts: true, Scheduler: "rr"})
	derived(t, Evidence{Configs: []Source{capture(t, "nodes/kube-proxy-1.36-nftables/kube-proxy-config.yaml")}},
		Proxy{Mode: "nftables", NodeName: "node-1", LocalMode: "ClusterCIDR", ClusterCIDRs: podCIDR, PodCIDRs: podCIDR, MasqueradeMark: 0x4000, LocalhostNodePorts: true, NodePortPrimary: true})
}

const bridgeConfig = `# a comment
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
mode: nonsense
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
detectLocalMode: BridgeInterface
detectLocal:
  bridgeInterface: cni0
  interfaceNamePrefix: ""
hostnameOverride: Node-B
iptables:
  masqueradeBit: 14
  localhostNodePorts: false
nftables:
  masqueradeBit: 17
  masqueradeAll: true
nodePortAddresses:
- primary
- 192.168.0.7/16
`

func TestConfigOfInterfaceMode(t *testing.T) {
	want := Proxy{
		Mode: "nftables", NodeName: "node-b", LocalMode: "BridgeInterface", LocalInterface: "cni0", MasqueradeAll: true,
		MasqueradeMark: 1 << 17, NodePortAddresses: prefixes([]string{"192.168.0.0/16"}), NodePortPrimary: true,
	}
	p := derived(t, Evidence{Configs: []Source{{File: "c", Text: bridgeConfig}}}, want)
	for name, line := range map[string]int{"mode": 8, "localMode": 10, "localInterface": 12, "nodeName": 14, "masqueradeMark": 19, "nodePortAddresses": 21} {
		if f := factOf(p, name); f.Line != line {
			t.Errorf("%s: line %d, want %d", name, f.Line, line)
		}
	}

	// The same as a ConfigMap, with Windows line ends and a byte order mark.
	indented := "    " + strings.ReplaceAll(strings.TrimSpace(bridgeConfig[strings.Index(bridgeConfig, "---\n")+4:]), "\n", "\n    ")
	text := "\ufeff" + strings.ReplaceAll("apiVersion: v1\nkind: ConfigMap\ndata:\n  config.conf: |-\n"+indented+"\n", "\n", "\r\n")
	derived(t, Evidence{ConfigMaps: []Source{{File: "cm", Text: text}}}, want)
}

func TestNodeCIDR(t *testing.T) {
	nodes := []Node{
		{Name: "node-a", PodCIDRs: prefixes([]string{"10.244.1.0/24", "fd00:1::/64"}), File: "objects.yaml", Line: 3},
		{Name: "node-b", PodCIDRs: prefixes([]string{"10.244.2.0/24"})},
	}
	config := "kind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.244.0.0/16\ndetectLocalMode: NodeCIDR\n"
	p := Derive(Evidence{Configs: []Source{{File: "c", Text: config}}, Nodes: nodes, NodeName: "node-a"})
	if p.LocalMode != "NodeCIDR" || !samePrefixes(p.ClusterCIDRs, nodes[0].PodCIDRs) || p.NodeName != "" {
		t.Errorf("%+v", p)
	}
	if f := factOf(p, "clusterCIDR"); f.File != "objects.yaml" || f.Line != 3 {
		t.Errorf("%+v", f)
	}
	// Not knowing which node this is must not become another node's range.
	p = Derive(Evidence{Configs: []Source{{File: "c", Text: config}}, Nodes: nodes})
	if p.LocalMode != "NodeCIDR" || p.ClusterCIDRs != nil {
		t.Errorf("%+v", p)
	}
}

func TestArgs(t *testing.T) {
	podCIDR := prefixes([]string{"10.244.0.0/16"})
	want := Proxy{
		Mode: "iptables", NodeName: "192.168.10.11", LocalMode: "ClusterCIDR", ClusterCIDRs: podCIDR, PodCIDRs: podCIDR,
		MasqueradeMark: 0x4000, LocalhostNodePorts: true,
	}
	text := capture(t, "cases/33/kube-proxy-args.txt").Text
	p := derived(t, Evidence{Args: []Source{{File: "a", Text: text}}}, want)
	if f := factOf(p, "nodeName"); f.Line != 1 || f.Text != "--hostname-override=192.168.10.11" {
		t.Errorf("%+v", f)
	}
	for name, s := range map[string]string{
		"one line":          "/usr/local/bin/kube-proxy " + strings.ReplaceAll(text, "\n", " "),
		"values apart":      "kube-proxy " + strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "=", " "),
		"NUL":               "kube-proxy\x00" + strings.ReplaceAll(text, "\n", "\x00"),
		"manifest":          "    - kube-proxy\n    - " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    - "),
		"JSON":              `["kube-proxy","` + strings.ReplaceAll(strings.TrimSpace(text), "\n", `","`) + `"]`,
		"k3s":               "/usr/local/bin/k3s server --config=/etc/k3s.yaml --cluster-cidr=10.244.0.0/16 --kube-proxy-arg=proxy-mode=iptables --node-name 192.168.10.11",
		"k3s, values apart": "k3s agent --cluster-cidr 10.244.0.0/16 --kube-proxy-arg proxy-mode=iptables --kube-proxy-arg --hostname-override=192.168.10.11",
	} {
		t.Run(name, func(t *testing.T) { derived(t, Evidence{Args: []Source{{File: "a", Text: s}}}, want) })
	}
	// Not all flags may have been captured: nothing follows from those that are missing.
	derived(t, Evidence{Args: []Source{{File: "a", Text: "--v=2 --masquerade-all"}}},
		Proxy{MasqueradeAll: true, MasqueradeMark: 0x4000, LocalhostNodePorts: true})
	// With --config only the name still counts.
	derived(t, Evidence{Args: []Source{{File: "a", Text: "--config=/c --proxy-mode=ipvs --hostname-override=n"}}},
		Proxy{NodeName: "n", MasqueradeMark: 0x4000, LocalhostNodePorts: true})
}

func TestPrecedence(t *testing.T) {
	config := func(mode string) Source {
		return Source{File: "config", Text: "kind: KubeProxyConfiguration\nmode: " + mode + "\nhostnameOverride: from-config\nclusterCIDR: 10.1.0.0/16\n"}
	}
	in := Evidence{
		Configz: []Source{{File: "configz", Text: `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","mode":"nftables","iptables":{},"clusterCIDR":"10.0.0.0/16"}}`}},
		Configs: []Source{config("ipvs")},
		Args:    []Source{{File: "args", Text: "--proxy-mode=userspace --hostname-override=from-args --config=/c"}},
		Logs:    []Source{{File: "log", Text: "I0105 08:00:11.0 1 a.go:1] Using iptables Proxier.\n"}},
	}
	p := Derive(in)
	if p.Mode != "nftables" || p.NodeName != "from-args" || p.ClusterCIDRs[0].String() != "10.0.0.0/16" {
		t.Errorf("%+v", p)
	}
	var modes []string
	for _, f := range p.Facts {
		if f.Name == "mode" {
			modes = append(modes, f.File+": "+f.Value+": "+f.Note)
		}
	}
	want := []string{
		"configz: nftables: ",
		"config: ipvs: not used: the proxy's own answer counts more than the configuration file",
		"log: iptables: not used: the proxy's own answer counts more than the log",
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Error(diff)
	}

	in.Configz, in.ProxyModes = nil, []Source{{File: "proxyMode", Text: "iptables\n"}}
	if p = Derive(in); p.Mode != "iptables" {
		t.Errorf("mode %q, want the answer of /proxyMode", p.Mode)
	}
	in.ProxyModes = nil
	if p = Derive(in); p.Mode != "ipvs" {
		t.Errorf("mode %q, want the configuration's", p.Mode)
	}
	// Up to 1.25 a proxy that cannot do IPVS falls back, whatever its configuration says.
	in.Logs[0].Text = "E0105 08:00:11.0 1 a.go:1] Can't use ipvs proxier, trying iptables proxier\n"
	if p = Derive(in); p.Mode != "iptables" {
		t.Errorf("mode %q, want iptables after the fall-back", p.Mode)
	}
}

func TestRanges(t *testing.T) {
	p := Derive(Evidence{
		APIServerFlags: []Source{capture(t, "seeds/kube-apiserver-manifest-fragment.txt")},
		CNILogs:        []Source{capture(t, "seeds/weave.log")},
		Nodes:          []Node{{Name: "node01", PodCIDRs: prefixes([]string{"10.44.0.0/24"}), File: "nodes.yaml", Line: 1}},
	})
	if !samePrefixes(p.ServiceCIDRs, prefixes([]string{"10.96.0.0/12"})) || !samePrefixes(p.PodCIDRs, prefixes([]string{"10.32.0.0/12"})) {
		t.Errorf("services %v, pods %v", p.ServiceCIDRs, p.PodCIDRs)
	}
	if f := factOf(p, "podCIDR"); f.Line != 2 || f.File != "seeds/weave.log" {
		t.Errorf("%+v", f)
	}
	if f := factOf(p, "nodePodCIDR"); f.Value != "10.44.0.0/24" {
		t.Errorf("%+v", f)
	}
	if p.Mode != "" || p.ClusterCIDRs != nil || p.LocalMode != "" {
		t.Errorf("the proxy's settings guessed: %+v", p)
	}

	kubeadm := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kubeadm-config\ndata:\n  ClusterConfiguration: |\n    kind: ClusterConfiguration\n    networking:\n      podSubnet: 10.244.0.0/16,fd00:10:244::/56\n      serviceSubnet: 10.96.0.0/16,fd00:10:96::/112\n"
	p = Derive(Evidence{KubeadmConfigs: []Source{{File: "kubeadm", Text: kubeadm}}})
	if !samePrefixes(p.ServiceCIDRs, prefixes([]string{"10.96.0.0/16", "fd00:10:96::/112"})) || !samePrefixes(p.PodCIDRs, prefixes([]string{"10.244.0.0/16", "fd00:10:244::/56"})) {
		t.Errorf("services %v, pods %v", p.ServiceCIDRs, p.PodCIDRs)
	}
	if f := factOf(p, "serviceCIDR"); f.Line != 10 {
		t.Errorf("%+v", f)
	}
}

// What cannot be read is said, and nothing is concluded from it.
func TestUnreadable(t *testing.T) {
	broken := []Source{{File: "broken", Text: "mode: [ipvs\n\tx: {{"}}
	p := Derive(Evidence{Configz: broken, Configs: broken, Healthz: broken, KubeadmConfigs: broken,
		ConfigMaps: []Source{{File: "huge", Text: "mode: ipvs\nclusterCIDR: x\n#" + strings.Repeat("x", maxConfig)}}})
	var notes int
	for _, f := range p.Facts {
		if f.Name != "unreadable" || f.Note == "" {
			t.Errorf("%+v", f)
		}
		notes++
	}
	if notes != 5 || p.Mode != "" {
		t.Errorf("%d unreadable sources, want 5; mode %q", notes, p.Mode)
	}
}

func FuzzConfig(f *testing.F) {
	for _, name := range []string{
		"nodes/kube-proxy-1.36-iptables/configz.json", "nodes/kube-proxy-1.36-iptables/kube-proxy-config.yaml",
		"cases/28/kube-proxy-config.yaml", "cases/33/kube-proxy-args.txt", "seeds/kube-apiserver-manifest-fragment.txt",
	} {
		f.Add(capture(f, name).Text)
	}
	f.Add(bridgeConfig)
	f.Add("kind: ConfigMap\ndata:\n  config.conf: |\n    kind: KubeProxyConfiguration\n    mode: ipvs\n")
	f.Fuzz(func(t *testing.T, text string) {
		src := []Source{{File: "c", Text: text}}
		p := Derive(Evidence{Configz: src, Configs: src, Args: src, ConfigMaps: src, APIServerFlags: src, KubeadmConfigs: src, ProxyModes: src})
		lines := strings.Count(text, "\n") + 1
		for _, fact := range p.Facts {
			if fact.Line < 1 || fact.Line > lines {
				t.Errorf("fact of line %d of %d: %+v", fact.Line, lines, fact)
			}
		}
	})
}
