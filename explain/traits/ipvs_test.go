package traits

import (
	"slices"
	"testing"
)

// TestSettingsOfIPVS: what virtual servers are given comes from a file, an answer or flags.
func TestSettingsOfIPVS(t *testing.T) {
	for name, in := range map[string]Evidence{
		"file":   {Configs: []Source{{File: "c", Text: "kind: KubeProxyConfiguration\nmode: ipvs\nipvs:\n  scheduler: lc\n  excludeCIDRs:\n  - 192.0.2.7/24\n  - 2001:db8::/64\n"}}},
		"answer": {Configz: []Source{{File: "z", Text: `{"kubeproxy.config.k8s.io":{"Mode":"ipvs","IPTables":{},"IPVS":{"Scheduler":"lc","ExcludeCIDRs":["192.0.2.0/24","2001:db8::/64"]}}}`}}},
		"flags":  {Args: []Source{{File: "a", Text: "kube-proxy --proxy-mode=ipvs --ipvs-scheduler=lc --ipvs-exclude-cidrs=192.0.2.0/24,2001:db8::/64"}}},
	} {
		p := Derive(in)
		if p.Mode != modeIPVS || p.Scheduler != "lc" || !slices.Equal(p.ExcludeCIDRs, prefixes([]string{"192.0.2.0/24", "2001:db8::/64"})) {
			t.Errorf("%s: mode %q, scheduler %q, excluded %v", name, p.Mode, p.Scheduler, p.ExcludeCIDRs)
		}
	}
	p := Derive(Evidence{Configs: []Source{{File: "c", Text: "kind: KubeProxyConfiguration\nmode: ipvs\nipvs:\n  scheduler: \"\"\n  excludeCIDRs: null\n"}}})
	if p.Scheduler != "" || p.ExcludeCIDRs != nil {
		t.Errorf("defaults: scheduler %q, excluded %v", p.Scheduler, p.ExcludeCIDRs)
	}
}
