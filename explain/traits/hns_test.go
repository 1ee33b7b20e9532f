package traits

import "testing"

// Load balancers of HNS are made by kube-proxy in kernelspace mode alone: they tell the mode, whatever a ConfigMap says
// that nodes with Linux share. The proxy's own answer and configuration count more.
func TestModeByHNS(t *testing.T) {
	hns := []Source{{File: "hns.json", Line: 2, Text: "load balancer 699f2a93: 10.96.0.1:443/TCP to port 6443 of 1 endpoint"}}
	for _, tt := range []struct {
		name string
		in   Evidence
		want string
		// by is the file that decides.
		by string
	}{
		{"alone", Evidence{HNS: hns}, "kernelspace", "hns.json"},
		{"against the ConfigMap", Evidence{HNS: hns, ConfigMaps: []Source{{File: "cm", Text: "mode: iptables\nkind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\n"}}}, "kernelspace", "hns.json"},
		{"against rules of another capture", Evidence{HNS: hns, Rulesets: rulesOf(t, "cases/28/iptables-save.txt")}, "kernelspace", "hns.json"},
		{"with the proxy's own answer", Evidence{HNS: hns, ProxyModes: []Source{{File: "proxyMode", Text: "kernelspace"}}}, "kernelspace", "proxyMode"},
		{"against the proxy's own answer", Evidence{HNS: hns, ProxyModes: []Source{{File: "proxyMode", Text: "iptables"}}}, "iptables", "proxyMode"},
		{"none", Evidence{}, "", ""},
	} {
		p := Derive(tt.in)
		by := ""
		for _, f := range p.Facts {
			if f.Name == "mode" && by == "" {
				by = f.File
			}
		}
		if p.Mode != tt.want || by != tt.by {
			t.Errorf("%s: mode %q by %q, want %q by %q", tt.name, p.Mode, by, tt.want, tt.by)
		}
	}
}
