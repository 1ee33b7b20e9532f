package snapshot

import "testing"

func TestPodOf(t *testing.T) {
	for file, want := range map[string]string{
		"pods/store/web-0/iptables-nft-save.txt":                 "store/web-0",
		"node-1/pods/store/web-0/ip-addr.txt":                    "store/web-0",
		"b.tar.gz:node-1/pods/store/web-0/ss.txt":                "store/web-0",
		PodDir("store/web-0") + "ss.txt":                         "store/web-0",
		"ip-addr.txt":                                            "",
		"pods/store/ss.txt":                                      "",
		"var/log/pods/kube-system_kube-proxy_1/kube-proxy/0.log": "",
		"mypods/store/web-0/ss.txt":                              "",
	} {
		if got := PodOf(file); got != want {
			t.Errorf("PodOf(%q) = %q, want %q", file, got, want)
		}
	}
}
