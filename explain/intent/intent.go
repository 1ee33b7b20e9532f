// Package intent says what ought to happen: from Services, EndpointSlices and the node it derives, by
// kube-proxy's own rules for the version at hand, every frontend, every endpoint that may be used and
// the outcome for each class of client. It never looks at rules of the kernel.
//
// The package is pure. Differences between kube-proxy versions are data in version.go.
package intent

import "net/netip"

// ServicePort is one port of one Service as kube-proxy sees it in one family.
type ServicePort struct {
	Namespace, Name, PortName string
	Family                    int    // 4 or 6
	Protocol                  string // TCP, UDP, SCTP
	Port                      int    // spec.ports[].port
	// Frontends by kind (ClusterIP, ExternalIP, LoadBalancer, NodePort, HealthCheck), then address. NodePort and
	// HealthCheck have one for each address on which this proxy serves them, without link-local ones; the
	// health check, which belongs to the whole Service, stands with its first port only.
	Frontends []Frontend
	// Endpoints are all addresses that the slices list for this port, sorted by "address:port", each once.
	Endpoints []Endpoint
	// Cluster and Local are indexes into Endpoints: those that the Cluster and the Local traffic policy use.
	Cluster, Local []int
	// InternalLocal and ExternalLocal are the traffic policies.
	InternalLocal, ExternalLocal bool
	// AffinitySeconds is the ClientIP affinity timeout, 0 for none.
	AffinitySeconds int
	// SourceRanges are the loadBalancerSourceRanges of this family; nil: no restriction.
	SourceRanges []netip.Prefix
	// Usable are indexes into Endpoints: those that could be used from somewhere in the cluster. When there
	// are none kube-proxy rejects; when there are some, but none here, it drops.
	Usable []int
	// EndpointsUnknown is true when the evidence holds neither EndpointSlices nor Endpoints at all.
	EndpointsUnknown bool
	// LocalDestination is true when an annotation of kernelspace mode keeps node ports and load balancer addresses to the
	// endpoints of the node.
	LocalDestination bool
	// ByChance is true when two copies of an endpoint differ in what matters and chance decides, with every sync of
	// kube-proxy's anew, which of them counts: what the lists say is then one possibility.
	ByChance bool
	// NodePort and HealthCheckNodePort are 0 when there is none.
	NodePort            int
	HealthCheckNodePort int
	// NodeIP is the proxy's own primary address of this family; invalid when not known.
	NodeIP netip.Addr
	// TopologyNote says in words why some ready endpoints are left out on this node (hints), empty when none are.
	TopologyNote string
	// dsr says whether the node can keep connections to its own endpoints in kernelspace mode.
	dsr presence
	Evidence
}

// Key is "namespace/name:port", or "namespace/name" when the port has no name: the text that kube-proxy
// 1.19 and newer hashes into chain names and writes into comments.
func (s *ServicePort) Key() string {
	if s.PortName == "" {
		return s.Namespace + "/" + s.Name
	}
	return s.Namespace + "/" + s.Name + ":" + s.PortName
}

// FrontendKind is a way to reach a Service.
type FrontendKind string

// The kinds.
const (
	ClusterIP    FrontendKind = "ClusterIP"
	NodePort     FrontendKind = "NodePort"
	LoadBalancer FrontendKind = "LoadBalancer"
	ExternalIP   FrontendKind = "ExternalIP"
	HealthCheck  FrontendKind = "HealthCheck"
)

// Frontend is an address that clients dial.
type Frontend struct {
	Kind FrontendKind
	// Addr is the address; for NodePort and HealthCheck each address of the node is a frontend.
	Addr netip.Addr
	Port int
	// OnNode is true when Addr is one of this node's own addresses (always so for NodePort and HealthCheck).
	OnNode bool
}

// FrontendProtocol is the protocol of a frontend: that of the port, but TCP for the health check.
func (s *ServicePort) FrontendProtocol(f Frontend) string {
	if f.Kind == HealthCheck {
		return "TCP"
	}
	return s.Protocol
}

// Endpoint is one backend address with what the objects say of it.
type Endpoint struct {
	Addr netip.Addr
	Port int
	// Ready, Serving and Terminating with kube-proxy's defaults applied.
	Ready, Serving, Terminating bool
	// Local is true when the endpoint's nodeName equals the proxy's node name.
	Local          bool
	NodeName, Zone string
	// Pod is "namespace/name" of the target, empty when the slice names none.
	Pod string
	// HintZones and HintNodes are the topology hints.
	HintZones, HintNodes []string
	// Slice is the name of the EndpointSlice (or Endpoints object).
	Slice string
	Evidence
}

// Evidence is where an object was read.
type Evidence struct {
	File string
	Line int
	Text string
}

// Class is a class of clients.
type Class string

// The source classes of the grid.
const (
	LocalPod   Class = "local-pod"
	RemotePod  Class = "remote-pod"
	Node       Class = "node"
	RemoteNode Class = "remote-node"
	External   Class = "external"
	Hairpin    Class = "hairpin"
	Localhost  Class = "localhost"
)

// Client is one client as far as the intent depends on it.
type Client struct {
	Class Class
	Addr  netip.Addr
	// DetectedLocal is what the proxy's local detector says of it: in the cluster CIDR, behind the bridge.
	// It is false when there is no detector.
	DetectedLocal bool
	// OnNode is true when the address is one of this node's own (--src-type LOCAL).
	OnNode bool
}

// Outcome is what ought to happen to new connections of one client to one frontend.
type Outcome struct {
	// Result is dnat, reject, drop, local-process (health check port) or no-match; ipvs instead of dnat in
	// IPVS mode, redirect in userspace mode; unknown when the evidence holds no endpoints of any kind.
	Result string
	// Backends are indexes into ServicePort.Endpoints; each has the share 1/len.
	Backends []int
	// Masquerade by backend, in the order of Backends: whether the backend should see another source than
	// the client's (hairpin included).
	Masquerade []bool
	// MasqueradeUnknown says why Masquerade cannot be told; empty when it is known. Hairpin entries that are
	// true hold in any case.
	MasqueradeUnknown string
	// Because says which rule of kube-proxy decides, in words.
	Because string
	// Alternative is what holds instead if its Condition does, where the evidence does not decide (a
	// version that is only known as a range, a pod that may sit behind a bridge). Nil: nothing is open.
	Alternative *Outcome
	// Condition is what an alternative assumes, in words; empty for an outcome that is none.
	Condition string
}

// Share is the part of the connections that each of Backends ought to get, 0 without any.
func (o Outcome) Share() float64 {
	if len(o.Backends) == 0 {
		return 0
	}
	return 1 / float64(len(o.Backends))
}
