package check

import (
	"strings"
	"testing"
)

// TestLeftNFT: tables of nftables mode are left behind where kube-proxy runs in another mode, and decide unless the kernel
// runs none of their chains.
func TestLeftNFT(t *testing.T) {
	const table = `table ip kube-proxy {
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain services {
	}
}
`
	for _, tt := range []struct{ name, mode, old, now, want string }{
		{"in iptables mode", "iptables", "", "", "critical ip kube-proxy"},
		{"in IPVS mode", "ipvs", "", "", "critical ip kube-proxy"},
		{"in its own mode", "nftables", "", "", ""},
		{"switched off", "iptables", "table ip kube-proxy {\n", "table ip kube-proxy {\n\tflags dormant\n", "warning ip kube-proxy"},
		{"without rules", "iptables", "\t\tjump services\n", "", ""},
		{"of another program", "iptables", "table ip kube-proxy", "table inet kube-proxy", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nftNode(t, strings.Replace(table, tt.old, tt.now, 1))
			n.Proxy.Mode = tt.mode
			got := ""
			for _, f := range n.leftNFT() {
				severity := f.Severity
				if severity == "" {
					severity = leftoverProxyModeRules.Severity
				}
				got += severity + " " + f.Subject
			}
			if got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
