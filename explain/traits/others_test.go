package traits

import "testing"

func TestOthers(t *testing.T) {
	for text, want := range map[string]string{
		"KVStore: Ok\nKubeProxyReplacement:    True   [eth0 192.168.10.11 (Direct Routing)]\n": "KubeProxyReplacement: True",
		"KubeProxyReplacement:   Strict":                "KubeProxyReplacement: Strict",
		"KubeProxyReplacement: False":                   "",
		"KubeProxyReplacement:":                         "",
		"kube-proxy-replacement: \"true\"":              "kube-proxy-replacement: true",
		"KubeProxyReplacement Details:\n  Status: True": "",
	} {
		p := Derive(Evidence{Cilium: []Source{{File: "cilium", Text: text}}})
		got := ""
		if len(p.Others) > 0 {
			got = p.Others[0].Value
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]int{
		"10.96.0.1 port 443 proto 6 id 4 count 1 local 0\n": 1,
		"no such map":  0,
		"a port b c d": 0,
	} {
		if p := Derive(Evidence{CalicoBPF: []Source{{File: "calico", Text: text}}}); len(p.Others) != want {
			t.Errorf("%q: %v", text, p.Others)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		proxy          Proxy
		oldest, newest int
		want           bool
	}{
		{Proxy{}, 0, 0, true},
		{Proxy{}, 20, 0, false},
		{Proxy{}, 0, 20, false},
		{Proxy{Version: Version{1, 24, 3}}, 20, 24, true},
		{Proxy{Version: Version{1, 24, 3}}, 25, 0, false},
		{Proxy{Version: Version{1, 24, 3}}, 0, 23, false},
		{Proxy{VersionFromRules: true, Version: Version{1, 19, -1}, Newest: Version{1, 23, -1}}, 19, 23, true},
		{Proxy{VersionFromRules: true, Version: Version{1, 19, -1}, Newest: Version{1, 23, -1}}, 20, 0, false},
		{Proxy{VersionFromRules: true, Version: Version{1, 25, -1}}, 25, 0, true},
		{Proxy{VersionFromRules: true, Version: Version{1, 25, -1}}, 0, 30, false},
	} {
		if got := tt.proxy.Within(tt.oldest, tt.newest); got != tt.want {
			t.Errorf("%s within %d and %d: %t", tt.proxy.VersionText(), tt.oldest, tt.newest, got)
		}
	}
}
