package objects

import (
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"
)

// KubeletDNS is what kubelets are told to write into the resolv.conf of pods.
type KubeletDNS struct {
	// Name is that of the ConfigMap.
	Name string
	// Addrs are the addresses of clusterDNS.
	Addrs []netip.Addr
	Evidence
}

// maxKubeletConfig is the size in bytes above which a configuration is not read: the API server takes no object larger
// than this either.
const maxKubeletConfig = 1 << 20

// KubeletDNS reads the kubelet configuration that kubeadm keeps in the ConfigMap kube-system/kubelet-config
// (kubelet-config-1.x up to 1.23). One that does not read, or names no addresses, tells nothing.
func (s *Set) KubeletDNS() []KubeletDNS {
	var out []KubeletDNS
	for _, c := range s.ConfigMaps {
		text := c.Data["kubelet"]
		if c.Namespace != "kube-system" || !strings.HasPrefix(c.Name, "kubelet-config") || text == "" || len(text) > maxKubeletConfig {
			continue
		}
		var config struct {
			ClusterDNS []string `json:"clusterDNS"`
		}
		if yaml.Unmarshal([]byte(text), &config) != nil {
			continue
		}
		k := KubeletDNS{Name: c.Name, Evidence: c.Evidence}
		for _, a := range config.ClusterDNS {
			if addr, err := netip.ParseAddr(a); err == nil {
				k.Addrs = append(k.Addrs, addr.Unmap())
			}
		}
		if len(k.Addrs) > 0 {
			out = append(out, k)
		}
	}
	return out
}
