package redact

import (
	"encoding/base32"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/objects"
)

// kube-proxy's chains are named by hashes of service ports and endpoints. Which hash stands for which port is learned
// from objects and from the comments of rules; a hash of which nothing says so is renamed as any other word.

// protocols are those that a service port can have, as kube-proxy hashes them.
var protocols = [...]string{"tcp", "udp", "sctp"}

// servicePort is the new name of "namespace/name:port".
func (r *renaming) servicePort(key string) string {
	return r.text(key, name)
}

// learnPort takes a service port into the table of chains, with an endpoint where there is one.
func (r *renaming) learnPort(key string, endpoint netip.AddrPort) {
	key = strings.TrimSuffix(key, ":")
	keys := []string{key}
	if !strings.Contains(key, ":") {
		keys = append(keys, key+":") // as releases up to 1.18 hash it
	}
	for _, k := range keys {
		fresh := r.servicePort(k)
		for _, protocol := range protocols {
			if !endpoint.IsValid() {
				r.chains[dataplane.ChainID(k, protocol)] = dataplane.ChainID(fresh, protocol)
				continue
			}
			old := strings.TrimPrefix(dataplane.SEPName(k, protocol, endpoint.String()), dataplane.SEPPrefix)
			to := netip.AddrPortFrom(r.address(endpoint.Addr()), endpoint.Port()).String()
			r.chains[old] = strings.TrimPrefix(dataplane.SEPName(fresh, protocol, to), dataplane.SEPPrefix)
			// Up to 1.12 and in tests of that time the endpoint is without a port where a chain is for affinity; nothing
			// of that is left in the wild.
		}
	}
}

// chainHash is the new hash in the name of one of kube-proxy's chains.
func (r *renaming) chainHash(hash string) string {
	if out, ok := r.chains[hash]; ok {
		return out
	}
	h := r.hash("chain", hash)
	return base32.StdEncoding.EncodeToString(h[:])[:16]
}

// learnObjects takes every service port and endpoint of the objects into the table of chains.
func (r *renaming) learnObjects(set *objects.Set) {
	ports := map[string][]string{} // by Service
	for _, s := range set.Services {
		service := s.Namespace + "/" + s.Name
		for _, p := range s.Spec.Ports {
			key := servicePortKey(service, p.Name)
			ports[service] = append(ports[service], key)
			r.learnPort(key, netip.AddrPort{})
		}
	}
	learn := func(service, port string, address string, number int32) {
		if a, err := netip.ParseAddr(address); err == nil && number > 0 && number < 1<<16 {
			r.learnPort(servicePortKey(service, port), netip.AddrPortFrom(a, uint16(number)))
		}
	}
	for _, s := range set.EndpointSlices {
		service := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		for _, p := range s.Ports {
			if p.Port == nil {
				continue
			}
			port := ""
			if p.Name != nil {
				port = *p.Name
			}
			r.learnPort(servicePortKey(service, port), netip.AddrPort{})
			for _, e := range s.Endpoints {
				for _, a := range e.Addresses {
					learn(service, port, a, *p.Port)
				}
			}
		}
	}
	for _, e := range set.Endpoints {
		service := e.Namespace + "/" + e.Name
		for _, subset := range e.Subsets {
			for _, p := range subset.Ports {
				for _, addresses := range [][]corev1.EndpointAddress{subset.Addresses, subset.NotReadyAddresses} {
					for _, a := range addresses {
						learn(service, p.Name, a.IP, p.Port)
					}
				}
			}
		}
	}
}

func servicePortKey(service, port string) string {
	if port == "" {
		return service
	}
	return service + ":" + port
}

// nftName is the new name of one of kube-proxy's chains or sets in nftables mode; empty for names of others.
func (r *renaming) nftName(old string) string {
	key, protocol, endpoint, ok := dataplane.ServicePortOfNFT(old)
	if !ok {
		return ""
	}
	kind, _, _ := strings.Cut(old, "-")
	fresh := r.servicePort(key)
	if kind == "endpoint" || kind == "affinity" {
		if !endpoint.IsValid() {
			// Cut short: which endpoint it was, nothing says.
			h := r.hash("cut", old)
			return kind + "-" + base32.StdEncoding.EncodeToString(h[:])[:8] + "-" + strings.Replace(fresh, ":", "/"+strings.ToLower(protocol)+"/", 1) + "__..."
		}
		to := netip.AddrPortFrom(r.address(endpoint.Addr()), endpoint.Port()).String()
		if kind == "affinity" {
			return dataplane.NFTAffinityName(fresh, protocol, to)
		}
		return dataplane.NFTEndpointName(fresh, protocol, to)
	}
	byKind := map[string]func(string, string) string{
		"service": dataplane.NFTServiceName, "local": dataplane.NFTLocalName,
		"external": dataplane.NFTExternalName, "firewall": dataplane.NFTFirewallName,
	}
	return byKind[kind](fresh, protocol)
}
