package traits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// capture reads a captured file of testdata.
func capture(t testing.TB, name string) Source {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return Source{File: name, Text: string(data)}
}

// factOf returns the first fact of that name, the one in use.
func factOf(p Proxy, name string) Fact {
	for _, f := range p.Facts {
		if f.Name == name {
			return f
		}
	}
	return Fact{}
}

func TestModeAndVersionOfLogs(t *testing.T) {
	for _, tt := range []struct {
		name, log, mode, version string
	}{
		{"1.11", capture(t, "seeds/kube-proxy-1.11.log").Text, "iptables", "1.11.8"},
		{"1.19", capture(t, "seeds/kube-proxy-1.19.log").Text, "iptables", "1.19.0"},
		{"1.36 without a version of its own", capture(t, "nodes/kube-proxy-1.36-iptables/kube-proxy.log").Text, "iptables", "1.36.3"},
		{"1.36 nftables", capture(t, "nodes/kube-proxy-1.36-nftables/kube-proxy.log").Text, "nftables", "1.36.3"},
		{"mode not set", "W0105 08:00:11.067870       1 server_others.go:323] Flag proxy-mode=\"\" unknown, assuming iptables proxy\n", "iptables", ""},
		{"ipvs", `I0105 08:00:11.0 1 server_others.go:269] "Using ipvs Proxier"` + "\n", "ipvs", ""},
		{"userspace", "I0105 08:00:11.0 1 server_others.go:103] Using userspace Proxier.\n", "userspace", ""},
		{"windows", "I0105 08:00:11.0 1 server_windows.go:132] Using Kernelspace Proxier.\n", "kernelspace", ""},
		{"defaulted", "I0105 08:00:11.0 1 server_linux.go:1] \"Using iptables proxy\"\n", "iptables", ""},
		{"after a mode change the last start counts", "I0105 08:00:11.0 1 a.go:1] Using iptables Proxier.\nI0105 08:00:12.0 1 a.go:1] Using ipvs Proxier.\n", "ipvs", ""},
		{"container runtime's prefix", "2026-01-05T08:00:11.067870123Z stderr F I0105 08:00:11.067870       1 server.go:650] Version: v1.19.0\n", "", "1.19.0"},
		{"docker's JSON", `{"log":"I0105 08:00:11.067870       1 server.go:650] \"Version info\" version=\"v1.29.3\"\n","stream":"stderr"}` + "\r\n", "", "1.29.3"},
		{"klog's JSON", `{"ts":1736067611067.8,"caller":"app/server.go:487","msg":"Version info","v":0,"version":"v1.30.1"}` + "\n", "", "1.30.1"},
		{"journal", "Jan 05 08:00:11 node-a k3s[812]: I0105 08:00:11.067870     812 server_linux.go:66] \"Using iptables proxy\"\n", "iptables", ""},
		{"k3s", `time="2026-01-05T08:00:10Z" level=info msg="Starting k3s v1.31.4+k3s1 (a562d090)"` + "\n" +
			`time="2026-01-05T08:00:11Z" level=info msg="Running kube-proxy --cluster-cidr=10.42.0.0/16 --conntrack-max-per-core=0 --hostname-override=node-a --kubeconfig=/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig --proxy-mode=ipvs"` + "\n", "ipvs", "1.31.4"},
		{"a wish that the kernel did not grant", "E0105 08:00:11.0 1 server_others.go:1] Can't use ipvs proxier, trying iptables proxier\nI0105 08:00:11.0 1 a.go:1] Using iptables Proxier.\n", "iptables", ""},
		{"not kube-proxy", "INFO: weave 2.8.1\nUsing the kitchen Proxier\nVersion: none\n", "", ""},
		{"binary", "\x00\xff\xfe{\"\x80I0105 .go:9] \n{\n}\n", "", ""},
		{"empty", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Derive(Evidence{Logs: []Source{{File: "kube-proxy.log", Text: tt.log}}})
			if p.Mode != tt.mode || p.Version.String() != tt.version {
				t.Errorf("mode %q version %q, want %q %q", p.Mode, p.Version, tt.mode, tt.version)
			}
		})
	}
}

func TestFlagsOfLog(t *testing.T) {
	p := Derive(Evidence{Logs: []Source{capture(t, "nodes/kube-proxy-1.36-iptables/kube-proxy.log")}})
	// It was started with --config: the flags that it logs are not its settings.
	if p.LocalMode != "" || p.ClusterCIDRs != nil || p.NodeName != "" {
		t.Errorf("settings taken from flags that do not count: %+v", p)
	}
	if f := factOf(p, "masqueradeMark"); f.Value != "0x4000" || f.Line != 75 {
		t.Errorf("masqueradeMark: %+v", f)
	}

	log := `I0105 08:00:10.0 1 flags.go:64] FLAG: --cluster-cidr="10.244.0.0/16,fd00:10:244::/56,10.99.0.0/16"
I0105 08:00:10.0 1 flags.go:64] FLAG: --config=""
I0105 08:00:10.0 1 flags.go:64] FLAG: --detect-local-mode=""
I0105 08:00:10.0 1 flags.go:64] FLAG: --hostname-override="Node-A"
I0105 08:00:10.0 1 flags.go:64] FLAG: --iptables-localhost-nodeports="false"
I0105 08:00:10.0 1 flags.go:64] FLAG: --iptables-masquerade-bit="12"
I0105 08:00:10.0 1 flags.go:64] FLAG: --masquerade-all="true"
I0105 08:00:10.0 1 flags.go:64] FLAG: --nodeport-addresses="[192.168.10.0/24,2001:db8::/64]"
I0105 08:00:10.0 1 flags.go:64] FLAG: --proxy-mode=""
`
	p = Derive(Evidence{Logs: []Source{{File: "l", Text: log}}})
	want := Proxy{
		Mode: "iptables", NodeName: "node-a", LocalMode: "ClusterCIDR",
		ClusterCIDRs:  prefixes([]string{"10.244.0.0/16", "fd00:10:244::/56"}),
		MasqueradeAll: true, MasqueradeMark: 0x1000,
		NodePortAddresses: prefixes([]string{"192.168.10.0/24", "2001:db8::/64"}),
		PodCIDRs:          prefixes([]string{"10.244.0.0/16", "fd00:10:244::/56"}),
	}
	p.Facts, p.SyncPeriod, p.LogEnds = nil, 0, ""
	if diff := cmp.Diff(want, p, cmp.Comparer(samePrefixes)); diff != "" {
		t.Error(diff)
	}

	p = Derive(Evidence{Logs: []Source{{File: "l", Text: strings.Replace(log, "10.244.0.0/16,fd00:10:244::/56,10.99.0.0/16", "", 1)}}})
	if p.LocalMode != "-" {
		t.Errorf("local mode %q without cluster CIDR, want none", p.LocalMode)
	}
}

func TestEvents(t *testing.T) {
	type short struct {
		Kind    EventKind
		Line    int
		Time    string
		Subject string
		Elapsed time.Duration
		Lines   int
	}
	for _, tt := range []struct {
		file string
		want []short
	}{
		{"cases/01/kube-proxy.log", []short{
			{SyncStarted, 1, "0105 09:40:12.114203", "", 0, 1},
			{SyncFailed, 2, "0105 09:40:12.597686", "IPv4", 0, 5},
			{SyncRetried, 7, "0105 09:40:12.597731", "", 0, 1},
			{SyncDone, 9, "0105 09:40:42.640120", "", 41100 * time.Microsecond, 1},
		}},
		{"cases/02/kube-proxy.log", []short{
			{WatchFailed, 1, "0101 03:11:02.114000", "*v1.EndpointSlice", 0, 1},
			{WatchFailed, 2, "0101 03:11:33.902000", "*v1.Service", 0, 1},
		}},
		{"cases/11/kube-proxy.log", []short{
			{WatchFailed, 1, "0104 08:33:04.015653", "*v1.Service", 0, 1},
			{WatchFailed, 2, "0105 09:59:47.015653", "*v1.EndpointSlice", 0, 1},
		}},
		{"cases/14/kube-proxy.log", nil},
		{"cases/18/kube-proxy.log", []short{
			{SyncFailed, 1, "0105 09:58:04.295733", "IPv4", 0, 5},
			{SyncRetried, 6, "0105 09:58:04.295801", "", 0, 1},
		}},
		{"cases/28/kube-proxy.log", []short{{NoDetector, 1, "0105 08:00:11.067870", "", 0, 1}}},
		{"cases/33/kube-proxy.log", []short{{NodeNotFound, 1, "0105 08:00:02.120031", "192.168.10.11", 0, 1}}},
		{"cases/37/kube-proxy.log", []short{{PortTaken, 2, "0105 08:52:17.779783", "nodePort for team-b/nginx:http", 0, 1}}},
		{"cases/59/kube-proxy.log", []short{
			{SyncDone, 2, "0105 09:46:26.462441", "IPv4", 13*time.Minute + 15342106620*time.Nanosecond, 1},
			{SyncStarted, 3, "0105 09:46:26.900112", "IPv4", 0, 1},
		}},
		{"cases/65/kube-proxy.log", []short{{SyncFailed, 1, "0105 09:42:12.851974", "IPv6", 0, 4}}},
	} {
		var got []short
		for _, e := range Derive(Evidence{Logs: []Source{capture(t, tt.file)}}).Events {
			if e.File != tt.file {
				t.Errorf("event of file %q", e.File)
			}
			got = append(got, short{e.Kind, e.Line, e.Time, e.Subject, e.Elapsed, strings.Count(e.Text, "\n") + 1})
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.file, diff)
		}
	}

	var held int
	for _, e := range Derive(Evidence{Logs: []Source{capture(t, "cases/22/kube-proxy.log")}}).Events {
		if e.Kind == LockHeld {
			held++
		}
	}
	if held != 8 {
		t.Errorf("case 22: %d lock events, want 8", held)
	}
}

func TestEventForms(t *testing.T) {
	for _, tt := range []struct {
		line    string
		kind    EventKind
		subject string
	}{
		{`E0105 08:00:02.1 1 reflector.go:166] "Unhandled Error" err="k8s.io/client-go/informers/factory.go:160: Failed to watch *v1.EndpointSlice: failed to list *v1.EndpointSlice: endpointslices.discovery.k8s.io is forbidden: User \"system:kube-proxy\" cannot list resource \"endpointslices\""`, WatchDenied, "*v1.EndpointSlice"},
		{`E0105 08:00:02.1 1 reflector.go:200] "Failed to watch" err="failed to list *v1.Service: connection refused" type="*v1.Service"`, WatchFailed, "*v1.Service"},
		{`E0105 08:00:02.1 1 node.go:161] "Failed to retrieve node info" err="nodes \"node-x\" not found"`, NodeNotFound, "node-x"},
		{`W0105 08:00:02.1 1 server_others.go:1] "Detect-local-mode set to ClusterCIDR, but no IPv6 cluster CIDR defined, , defaulting to no-op detect-local for IPv6"`, NoDetector, "IPv6"},
		{`I0105 08:00:02.1 1 proxier.go:700] syncProxyRules took 41.1ms`, SyncDone, ""},
	} {
		p := Derive(Evidence{Logs: []Source{{File: "l", Text: tt.line + "\n"}}})
		if len(p.Events) != 1 || p.Events[0].Kind != tt.kind || p.Events[0].Subject != tt.subject {
			t.Errorf("%s\n%+v", tt.line, p.Events)
		}
		if tt.subject == "IPv6" && p.LocalMode != "" {
			t.Errorf("no detector of one family read as none at all")
		}
	}
}

// What follows an error without a header belongs to it, but not without end.
func TestEventBounded(t *testing.T) {
	log := "E0105 08:00:02.1 1 proxier.go:1] Failed to execute iptables-restore: exit status 1 (\n" + strings.Repeat("junk\n", 1000)
	p := Derive(Evidence{Logs: []Source{{File: "l", Text: log}}})
	if len(p.Events) != 1 || strings.Count(p.Events[0].Text, "\n") >= maxEventLines {
		t.Errorf("%d events", len(p.Events))
	}
}

func FuzzLog(f *testing.F) {
	for _, name := range []string{
		"seeds/kube-proxy-1.11.log", "seeds/kube-proxy-1.19.log", "cases/01/kube-proxy.log", "cases/22/kube-proxy.log",
		"cases/33/kube-proxy.log", "cases/59/kube-proxy.log", "nodes/kube-proxy-1.36-nftables/kube-proxy.log",
	} {
		f.Add(capture(f, name).Text)
	}
	f.Add(`{"log":"I0105 08:00:11.0 1 server.go:650] \"Version info\" version=\"v1.29.3\"\n"}`)
	f.Add(`time="2026-01-05T08:00:11Z" level=info msg="Running kube-proxy --proxy-mode=ipvs"`)
	f.Fuzz(func(t *testing.T, text string) {
		p := Derive(Evidence{Logs: []Source{{File: "l", Text: text}}, CNILogs: []Source{{File: "c", Text: text}}})
		lines := strings.Count(text, "\n") + 1
		for _, fact := range p.Facts {
			if fact.Line < 1 || fact.Line > lines {
				t.Errorf("fact of line %d of %d: %+v", fact.Line, lines, fact)
			}
		}
		for _, e := range p.Events {
			if e.Line < 1 || e.Line > lines {
				t.Errorf("event of line %d of %d", e.Line, lines)
			}
		}
	})
}
