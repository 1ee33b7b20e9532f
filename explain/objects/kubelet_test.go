package objects

import (
	"strings"
	"testing"
)

func TestKubeletDNS(t *testing.T) {
	config := func(name, kubelet string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n  namespace: kube-system\ndata:\n  kubelet: |\n    " + strings.ReplaceAll(kubelet, "\n", "\n    ") + "\n---\n"
	}
	var set Set
	problems := Decode(&set, []byte(config("kubelet-config", "kind: KubeletConfiguration\nclusterDNS:\n- 10.96.0.10\n- nonsense\n- ::ffff:10.96.0.11")+
		config("kubelet-config-1.22", "clusterDNS: [fd00::a]")+
		config("kubelet-config-broken", "clusterDNS: {")+config("kubelet-config-empty", "clusterDNS: []")+config("other", "clusterDNS: [10.0.0.1]")), "objects.yaml")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	set.Sort()
	got := set.KubeletDNS()
	if len(got) != 2 || got[0].Name != "kubelet-config" || len(got[0].Addrs) != 2 || got[0].Addrs[1].String() != "10.96.0.11" || got[0].Line != 1 || got[1].Addrs[0].String() != "fd00::a" {
		t.Errorf("%+v", got)
	}
}
