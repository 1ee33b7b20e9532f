package dataplane

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/traits"
)

// The sets that kube-proxy keeps in IPVS mode (pkg/proxy/ipvs/ipset.go, 1.21 to 1.36).
const (
	setLoopBack            = "KUBE-LOOP-BACK"
	setClusterIP           = "KUBE-CLUSTER-IP"
	setExternalIP          = "KUBE-EXTERNAL-IP"
	setExternalIPLocal     = "KUBE-EXTERNAL-IP-LOCAL"
	setLoadBalancer        = "KUBE-LOAD-BALANCER"
	setLoadBalancerLocal   = "KUBE-LOAD-BALANCER-LOCAL"
	setLoadBalancerFW      = "KUBE-LOAD-BALANCER-FW"
	setLoadBalancerIP      = "KUBE-LOAD-BALANCER-SOURCE-IP"
	setLoadBalancerCIDR    = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
	setNodePortTCP         = "KUBE-NODE-PORT-TCP"
	setNodePortUDP         = "KUBE-NODE-PORT-UDP"
	setNodePortSCTP        = "KUBE-NODE-PORT-SCTP-HASH"
	setNodePortLocalTCP    = "KUBE-NODE-PORT-LOCAL-TCP"
	setNodePortLocalUDP    = "KUBE-NODE-PORT-LOCAL-UDP"
	setNodePortLocalSCTP   = "KUBE-NODE-PORT-LOCAL-SCTP-HASH"
	setHealthCheckNodePort = "KUBE-HEALTH-CHECK-NODE-PORT"
	setIPVSIPs             = "KUBE-IPVS-IPS"
)

// IPVSSet is one of them, in one family.
type IPVSSet struct {
	Name, Type string // "KUBE-6-CLUSTER-IP", "hash:ip,port"
	Family     int    // 4 or 6; 0 for those that hold ports alone
	// Does says what goes wrong where the set is not there, or lacks an entry.
	Does string
}

// ipvsSets are they, with the versions that have them. Older ones are named where they are known to be the same.
var ipvsSets = []struct {
	IPVSSet
	since int
}{
	{IPVSSet{setClusterIP, "hash:ip,port", 0, "cluster IPs are not accepted or masqueraded"}, 0},
	{IPVSSet{setExternalIP, "hash:ip,port", 0, "external IPs are not accepted or masqueraded"}, 0},
	{IPVSSet{setExternalIPLocal, "hash:ip,port", 0, "external IPs of policy Local are not accepted"}, 18},
	{IPVSSet{setHealthCheckNodePort, "bitmap:port", 0, "health checks of load balancers are not accepted"}, 21},
	{IPVSSet{setIPVSIPs, "hash:ip", 0, "ports of the node can be reached through addresses of Services"}, 26},
	{IPVSSet{setLoadBalancer, "hash:ip,port", 0, "load balancer addresses are not accepted or masqueraded"}, 0},
	{IPVSSet{setLoadBalancerFW, "hash:ip,port", 0, "source ranges are not looked at"}, 0},
	{IPVSSet{setLoadBalancerLocal, "hash:ip,port", 0, "clients of load balancers with policy Local are masqueraded"}, 0},
	{IPVSSet{setLoadBalancerCIDR, "hash:ip,port,net", 0, "clients of the source ranges are dropped"}, 0},
	{IPVSSet{setLoadBalancerIP, "hash:ip,port,ip", 0, "the node itself cannot reach load balancers with source ranges"}, 0},
	{IPVSSet{setLoopBack, "hash:ip,port,ip", 0, "pods cannot reach themselves through their Service"}, 0},
	{IPVSSet{setNodePortLocalSCTP, "hash:ip,port", 0, "clients of SCTP node ports with policy Local are masqueraded"}, 16},
	{IPVSSet{setNodePortLocalTCP, "bitmap:port", 0, "clients of TCP node ports with policy Local are masqueraded"}, 0},
	{IPVSSet{setNodePortLocalUDP, "bitmap:port", 0, "clients of UDP node ports with policy Local are masqueraded"}, 0},
	{IPVSSet{setNodePortSCTP, "hash:ip,port", 0, "connections to SCTP node ports are not masqueraded"}, 16},
	{IPVSSet{setNodePortTCP, "bitmap:port", 0, "connections to TCP node ports are not masqueraded"}, 0},
	{IPVSSet{setNodePortUDP, "bitmap:port", 0, "connections to UDP node ports are not masqueraded"}, 0},
}

// IPVSSets are the sets of a proxy in one family, by name. Those that not every version has which it may be are left out.
func IPVSSets(p *traits.Proxy, family int) []IPVSSet {
	var out []IPVSSet
	for _, s := range ipvsSets {
		if p.Within(s.since, 0) {
			s.Name = ipvsSetName(s.Name, family)
			if s.Type != "bitmap:port" {
				s.Family = family
			}
			out = append(out, s.IPVSSet)
		}
	}
	return out
}

// longestSetName is what the kernel takes (IPSET_MAXNAMELEN, with its end).
const longestSetName = 31

// ipvsSetName is a set's name in a family: "KUBE-6-CLUSTER-IP", cut to what the kernel takes.
func ipvsSetName(name string, family int) string {
	if family == 6 {
		name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	}
	return name[:min(len(name), longestSetName)]
}

// IPVSSetName is the name in a family of the set that has a name in IPv4: "KUBE-6-CLUSTER-IP" of "KUBE-CLUSTER-IP" in 6.
func IPVSSetName(name string, family int) string { return ipvsSetName(name, family) }

// IsIPVSSet tells whether a set has the name of one of kube-proxy's, in either family.
func IsIPVSSet(name string) bool {
	for i := range ipvsSets {
		if s := &ipvsSets[i]; name == s.Name || name == ipvsSetName(s.Name, 6) {
			return true
		}
	}
	return false
}

// HealthCheckSet is the set of health check ports.
func HealthCheckSet(family int) string { return ipvsSetName(setHealthCheckNodePort, family) }

// AddressSet is the set of all addresses on kube-ipvs0.
func AddressSet(family int) string { return ipvsSetName(setIPVSIPs, family) }

// LoopBackSet is the set that endpoints of the node are in.
func LoopBackSet(family int) string { return ipvsSetName(setLoopBack, family) }

// WantedElement is an entry that kube-proxy keeps in one of its sets.
type WantedElement struct {
	Set  string // its name in the family of the port
	Text string // as ipset prints it: "10.96.0.1,tcp:80"
	// Port is the service port that it is for.
	Port *intent.ServicePort
	// May is true where it is right both ways: with it and without.
	May bool
}

// IPVSElements are the entries of kube-proxy's sets that a service port asks for in IPVS mode (syncProxyRules of
// pkg/proxy/ipvs/proxier.go, 1.25 to 1.36). Of endpoints that are not ready older versions know less.
func IPVSElements(sp *intent.ServicePort) []WantedElement {
	var out []WantedElement
	proto := strings.ToLower(sp.Protocol)
	add := func(set string, may bool, text string, args ...any) {
		out = append(out, WantedElement{ipvsSetName(set, sp.Family), fmt.Sprintf(text, args...), sp, may})
	}
	for i := range sp.Endpoints {
		if e := &sp.Endpoints[i]; e.Local {
			add(setLoopBack, !e.Ready, "%s,%s:%d,%s", e.Addr, proto, e.Port, e.Addr)
		}
	}
	for _, f := range sp.Frontends {
		at := fmt.Sprintf("%s,%s:%d", f.Addr, proto, f.Port)
		switch f.Kind {
		case intent.ClusterIP:
			add(setClusterIP, false, "%s", at)
			add(setIPVSIPs, false, "%s", f.Addr)
		case intent.ExternalIP:
			set := setExternalIP
			if sp.ExternalLocal {
				set = setExternalIPLocal
			}
			add(set, false, "%s", at)
			add(setIPVSIPs, f.OnNode, "%s", f.Addr) // not on the device where another one has it
		case intent.LoadBalancer:
			add(setLoadBalancer, false, "%s", at)
			add(setIPVSIPs, f.OnNode, "%s", f.Addr)
			if sp.ExternalLocal {
				add(setLoadBalancerLocal, false, "%s", at)
			}
			if len(sp.SourceRanges) == 0 {
				continue
			}
			add(setLoadBalancerFW, false, "%s", at)
			nodeInside := false
			for _, r := range sp.SourceRanges {
				add(setLoadBalancerCIDR, false, "%s,%s", at, r)
				nodeInside = nodeInside || sp.NodeIP.IsValid() && r.Contains(sp.NodeIP)
			}
			if nodeInside || !sp.NodeIP.IsValid() {
				add(setLoadBalancerIP, !nodeInside, "%s,%s", at, f.Addr)
			}
		case intent.NodePort:
			out = append(out, nodePortElements(sp, f.Addr)...)
		case intent.HealthCheck:
			add(setHealthCheckNodePort, false, "%d", f.Port)
		}
	}
	return out
}

// nodePortSets are the sets of node ports of a protocol: of all, and of those with policy Local.
func nodePortSets(protocol string) [2]string {
	switch protocol {
	case "TCP":
		return [2]string{setNodePortTCP, setNodePortLocalTCP}
	case "UDP":
		return [2]string{setNodePortUDP, setNodePortLocalUDP}
	}
	return [2]string{setNodePortSCTP, setNodePortLocalSCTP}
}

// NodePortSets are the sets that the node port of a service port is in, by their names in its family.
func NodePortSets(sp *intent.ServicePort) []string {
	sets := nodePortSets(sp.Protocol)
	out := []string{ipvsSetName(sets[0], sp.Family)}
	if sp.ExternalLocal {
		out = append(out, ipvsSetName(sets[1], sp.Family))
	}
	return out
}

// NodePortSet tells whether a set holds node ports of the protocol and the family of a service port.
func NodePortSet(name string, sp *intent.ServicePort) bool {
	sets := nodePortSets(sp.Protocol)
	return name == ipvsSetName(sets[0], sp.Family) || name == ipvsSetName(sets[1], sp.Family)
}

// nodePortElements are those of a node port. Sets of TCP and UDP hold ports alone; those of SCTP have the addresses too.
func nodePortElements(sp *intent.ServicePort, addr netip.Addr) []WantedElement {
	sets := nodePortSets(sp.Protocol)
	text := fmt.Sprint(sp.NodePort)
	if sp.Protocol == "SCTP" {
		if addr.IsLoopback() {
			return nil
		}
		text = fmt.Sprintf("%s,sctp:%d", addr, sp.NodePort)
	}
	out := []WantedElement{{ipvsSetName(sets[0], sp.Family), text, sp, false}}
	if sp.ExternalLocal {
		out = append(out, WantedElement{ipvsSetName(sets[1], sp.Family), text, sp, false})
	}
	return out
}
