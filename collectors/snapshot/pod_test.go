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

func TestServicePodsOf(t *testing.T) {
	for file, want := range map[string][2]string{
		"service-pods/store/web.json":                   {"store", "web"},
		"node-1/service-pods/store/web.json":            {"store", "web"},
		"b.tar.gz:evidence/service-pods/pods/pods.json": {"pods", "pods"},
		ServicePodsFile("store", "web"):                 {"store", "web"},
		"service-pods":                                  {},
		"service-pods/store.json":                       {},
		"service-pods/store/web/x.json":                 {},
		"service-pods/store/.json":                      {},
		"pods.json":                                     {},
	} {
		if ns, name := ServicePodsOf(file); ns != want[0] || name != want[1] {
			t.Errorf("ServicePodsOf(%q) = %q, %q, want %q", file, ns, name, want)
		}
		if pod := PodOf(file); pod != "" {
			t.Errorf("%q is taken for the namespace of pod %s", file, pod)
		}
	}
}
