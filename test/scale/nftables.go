package scale

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// NFTables is the table of kube-proxy 1.36 in nftables mode on the first node of the same cluster as that of
// IPTablesSave, as `nft list table ip kube-proxy` of nft 1.0.6 prints it and `nft -f` takes it. Each Service has a
// chain with one rule, and that rule a map with its endpoints.
func NFTables(services, endpoints int) []byte {
	var b bytes.Buffer
	all := make([]service, services)
	var portals, addrs, local []string
	for i := range all {
		all[i] = newService(i, endpoints)
		portals = append(portals, fmt.Sprintf("%s . tcp . 80 : goto service-%s", all[i].addr, nftName(all[i].name)))
		addrs = append(addrs, all[i].addr)
		for _, e := range all[i].endpoints {
			if e.node == 0 {
				local = append(local, fmt.Sprintf("%s . %s . tcp . 8080", e.addr, e.addr))
			}
		}
	}
	elements := func(list []string, perLine int) string {
		if len(list) == 0 {
			return ""
		}
		var b strings.Builder
		b.WriteString("\t\telements = { ")
		for i, e := range list {
			switch {
			case i == 0:
			case i%perLine == 0:
				b.WriteString(",\n\t\t\t     ")
			default:
				b.WriteString(", ")
			}
			b.WriteString(e)
		}
		b.WriteString(" }\n")
		return b.String()
	}
	fmt.Fprintf(&b, nftDeclarations, elements(local, 1), elements(addrs, 2), elements(portals, 1))
	b.WriteString(nftChains)
	for _, s := range all {
		var to []string
		for j, e := range s.endpoints {
			to = append(to, fmt.Sprintf("%d : %s . 8080", j, e.addr))
		}
		fmt.Fprintf(&b, "\n\tchain service-%s {\n", nftName(s.name))
		if len(to) > 0 {
			fmt.Fprintf(&b, "\t\tmeta l4proto tcp dnat ip to numgen random mod %d map { %s }\n", len(to), strings.Join(to, ", "))
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// nftName is kube-proxy's name of a service port in nftables, behind "service-": the first 8 characters of the base32
// form of the SHA-256 sum, and the name itself.
func nftName(port string) string {
	name, portName, _ := strings.Cut(port, ":")
	full := name + "/tcp/" + portName
	sum := sha256.Sum256([]byte(full))
	return base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + full
}

const nftDeclarations = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set hairpin-connections {
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
		comment "service hairpin connections"
%s	}

	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
%s	}

	set nodeport-ips {
		type ipv4_addr
		comment "IPs that accept NodePort traffic"
		elements = { 172.30.0.11 }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop or reject packets to services with no endpoints"
	}

	map no-endpoint-nodeports {
		type inet_proto . inet_service : verdict
		comment "vmap to drop or reject packets to service nodeports with no endpoints"
	}

	map firewall-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "destinations that are subject to LoadBalancerSourceRanges"
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
%s	}

	map service-nodeports {
		type inet_proto . inet_service : verdict
		comment "NodePort traffic"
	}
`

const nftChains = `
	chain filter-prerouting-pre-dnat {
		type filter hook prerouting priority dstnat - 10; policy accept;
		ct state new jump firewall-check
	}

	chain filter-output-pre-dnat {
		type filter hook output priority -110; policy accept;
		ct state new jump firewall-check
	}

	chain filter-input {
		type filter hook input priority filter; policy accept;
		ct state new jump nodeport-endpoints-check
		ct state new jump service-endpoints-check
	}

	chain filter-forward {
		type filter hook forward priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}

	chain filter-output {
		type filter hook output priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}

	chain nodeport-endpoints-check {
		ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
	}

	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}

	chain firewall-check {
		ip daddr . meta l4proto . th dport vmap @firewall-ips
	}

	chain services {
		ip daddr @cluster-ips ip saddr != 10.128.0.0/9 meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
		ip daddr . meta l4proto . th dport vmap @service-ips
		ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
	}

	chain masquerading {
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}

	chain cluster-ips-check {
		ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
		ip daddr 10.96.0.0/12 drop comment "Drop traffic to unallocated ClusterIPs"
	}

	chain reject-chain {
		comment "helper for @no-endpoint-services / @no-endpoint-nodeports"
		reject
	}
`
