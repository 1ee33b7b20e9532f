package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// clusterDNSMismatch: pods are told to ask an address for names that is no DNS Service. It looks where evidence says
// what they are told: the kubelet's configuration, pods with a DNS configuration of their own, and queries that
// nothing translates.
var clusterDNSMismatch = Check{
	ID: "cluster-dns-mismatch", Rests: onObjects, Severity: Error,
	Title: "DNS addresses of pods that are not the DNS Service's",
	Node: func(n *Node) []report.Finding {
		dns := n.dnsService()
		if len(dns.addrs) == 0 {
			return nil
		}
		return slices.Concat(n.kubeletDNS(dns), n.podDNS(dns), n.lostQueries(dns))
	},
}

const dnsPort = 53

// dnsAddrs are the addresses at which Services answer DNS queries. key names the cluster's own DNS Service, cluster is
// that one's addresses.
type dnsAddrs struct {
	key            string
	addrs, cluster []netip.Addr
}

func (n *Node) dnsService() dnsAddrs {
	var d dnsAddrs
	for _, sp := range n.Plan.Ports {
		if sp.Port != dnsPort || sp.Protocol != "UDP" {
			continue
		}
		svc, ok := n.Objects.Service(sp.Namespace, sp.Name)
		own := ok && (sp.Name == "kube-dns" || svc.Labels["k8s-app"] == "kube-dns" || sp.Namespace == "openshift-dns")
		if own && d.key == "" {
			d.key = sp.Namespace + "/" + sp.Name
		}
		for _, f := range sp.Frontends {
			d.addrs = append(d.addrs, f.Addr)
			if f.Kind == intent.ClusterIP && d.key == sp.Namespace+"/"+sp.Name {
				d.cluster = append(d.cluster, f.Addr)
			}
		}
	}
	if len(d.cluster) == 0 {
		return dnsAddrs{} // nothing to hold other addresses against
	}
	return d
}

func (d dnsAddrs) text() string { return fmt.Sprintf("%s (%s)", d.key, addrList(d.cluster)) }

func addrList(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return list(out, 3)
}

// amongServices tells whether an address is of the range of Services, as far as that is known.
func (n *Node) amongServices(a netip.Addr) bool {
	return slices.ContainsFunc(n.Proxy.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// answersHere tells whether an address may well answer DNS queries without being a Service's: a cache on the node, or
// a resolver outside of the cluster.
func (n *Node) answersHere(a netip.Addr) bool {
	if a.IsLinkLocalUnicast() || a.IsLoopback() || !a.IsPrivate() {
		return true
	}
	family := 4
	if a.Is6() {
		family = 6
	}
	if slices.Contains(n.Host.OwnAddrs(family), a) {
		return true
	}
	for _, node := range n.Objects.Nodes {
		for _, na := range node.Status.Addresses {
			if na.Address == a.String() {
				return true
			}
		}
	}
	return false
}

// kubeletDNS holds what kubelets are told to write into pods against the DNS Service.
func (n *Node) kubeletDNS(d dnsAddrs) []report.Finding {
	var out []report.Finding
	for _, k := range n.Objects.KubeletDNS() {
		for _, a := range k.Addrs {
			if slices.Contains(d.addrs, a) || !n.amongServices(a) && n.answersHere(a) {
				continue
			}
			out = append(out, report.Finding{
				Subject: a.String(),
				Message: fmt.Sprintf("kubelets tell pods to ask %s for names (clusterDNS in ConfigMap kube-system/%s), and the DNS Service is %s: names do not resolve in pods", a, k.Name, d.text()),
				Want:    addrList(d.cluster), Got: a.String(),
				Evidence: []report.Evidence{ObjectEvidence(k.Evidence, fmt.Sprintf("ConfigMap kube-system/%s: clusterDNS %s", k.Name, addrList(k.Addrs)))},
				Causes:   []string{"the DNS Service was made anew and got another address", "the range of Services was changed and the kubelets' configuration was not"},
				Remedy:   fmt.Sprintf("set clusterDNS to %s in the kubelet's configuration (/var/lib/kubelet/config.yaml on every node), restart kubelets and then pods; or give the DNS Service the clusterIP %s", addrList(d.cluster), a),
			})
		}
	}
	return out
}

// podDNS is about pods with name servers of their own that are of the range of Services and no Service.
func (n *Node) podDNS(d dnsAddrs) []report.Finding {
	var out []report.Finding
	for _, p := range n.Objects.Pods {
		if p.Spec.DNSConfig == nil || podEnded(p.Pod) {
			continue
		}
		for _, text := range p.Spec.DNSConfig.Nameservers {
			a, err := netip.ParseAddr(text)
			if err != nil || slices.Contains(d.addrs, a) || !n.amongServices(a) {
				continue
			}
			out = append(out, report.Finding{
				Object: report.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, Subject: a.String(),
				Message: fmt.Sprintf("pod %s/%s asks %s for names (dnsConfig), an address of the range of Services that no DNS Service has; the cluster's is %s", p.Namespace, p.Name, a, d.text()),
				Want:    addrList(d.cluster), Got: a.String(),
				Evidence: []report.Evidence{podEvidence(p, "has dnsConfig.nameservers "+list(p.Spec.DNSConfig.Nameservers, 3))},
				Remedy:   fmt.Sprintf("put %s into dnsConfig.nameservers of the pod template, or leave it out and use dnsPolicy: ClusterFirst", addrList(d.cluster)),
			})
		}
	}
	return out
}

// lostQueries are queries on the node to addresses of the range of Services that no Service has: nothing translates
// and nobody answers them.
func (n *Node) lostQueries(d dnsAddrs) []report.Finding {
	var order []netip.Addr
	asked := make(map[netip.Addr][]*host.Flow)
	for i := range n.Host.Flows {
		f := &n.Host.Flows[i]
		if f.Proto != netfilter.ProtoUDP || f.DstPort != dnsPort || !f.Unreplied || f.ReplySrc != f.Dst || slices.Contains(d.addrs, f.Dst) || !n.amongServices(f.Dst) {
			continue
		}
		if asked[f.Dst] == nil {
			order = append(order, f.Dst)
		}
		asked[f.Dst] = append(asked[f.Dst], f)
	}
	var out []report.Finding
	for _, a := range order {
		first := asked[a][0]
		out = append(out, report.Finding{
			Subject: a.String(),
			Message: fmt.Sprintf("%s without an answer (the first from %s) to %s, an address of the range of Services that no DNS Service has; the cluster's is %s", plural(len(asked[a]), "DNS request"), first.Src, a, d.text()),
			Want:    addrList(d.cluster), Got: a.String(),
			Evidence: []report.Evidence{HostEvidence("conntrack", first.Evidence)},
			Causes:   []string{"the kubelet's clusterDNS names an address that the DNS Service no longer has"},
			Remedy:   fmt.Sprintf("compare /etc/resolv.conf in the pod with the address %s; correct clusterDNS in /var/lib/kubelet/config.yaml, restart the kubelet and then the pods", addrList(d.cluster)),
		})
	}
	return out
}
