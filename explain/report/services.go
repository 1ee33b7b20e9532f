package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodeServices are the service ports of one node in a table: what the objects ask for, what the node does, and what an
// audit says of it.
type NodeServices struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node  string `json:"node"`
	Proxy Proxy  `json:"proxy"`
	// Services has a row for each service port and address family that a proxy forwards, and one for each port of Services
	// that none forwards (one without a port for a Service that has no ports); by namespace, name, port, protocol and
	// family. Of Services that only rules name there is a row for each service port that they name.
	Services []ServicePort   `json:"services"`
	Sources  []Source        `json:"sources"`
	Summary  ServicesSummary `json:"summary"`
}

// ServicesSummary counts the rows in prose.
type ServicesSummary struct {
	Text string `json:"text"`
}

// ServicePort is one port of one Service in one address family.
type ServicePort struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is ClusterIP, NodePort, LoadBalancer or ExternalName; empty where no object says.
	Type     string `json:"type"`
	PortName string `json:"portName"`
	// Port is the Service's own port; 0 for a Service without ports, and where only a node port in rules tells of it.
	Port int `json:"port"`
	// Protocol is TCP, UDP or SCTP, empty for a Service without ports.
	Protocol string `json:"protocol"`
	// Family is IPv4 or IPv6, empty where no proxy forwards.
	Family string `json:"family"`
	// Frontends by kind (ClusterIP, ExternalIP, LoadBalancer, NodePort, HealthCheck), then address.
	Frontends []Frontend `json:"frontends"`
	// Ready counts the endpoints that are ready and that this node may use: those of the traffic policies of the Service,
	// after topology. Endpoints counts all that the objects list. Both are null where endpoints were not read.
	Ready     *int `json:"ready"`
	Endpoints *int `json:"endpoints"`
	// Programmed counts the distinct backends to which the node sends connections, over all frontends and clients; null
	// where that was not looked at: the rules were not read, or very many Services are named by rules alone.
	Programmed *int `json:"programmed"`
	// Unasked counts those of Programmed that no client ought to reach: stale, not ready, excluded.
	Unasked int              `json:"unasked"`
	State   ServicePortState `json:"state"`
	// Severity is that of the worst finding about this row: critical, error, warning, info, or empty.
	Severity string `json:"severity"`
	// Findings are the ids of the findings about this row, each once: causes before what follows from them, both worst first. A
	// finding that names no port, or one that has no row, is about every row of its Service.
	Findings []string `json:"findings"`
	// Note says in words why no proxy forwards the port, why its state is not known, or which endpoints topology leaves
	// out; empty for all others.
	Note string `json:"note"`
	// Counted are the rules or virtual servers that count connections to this port; nil where none do. In iptables mode each
	// new connection passes one of the rules that translate to its endpoints, once. What has no usable endpoint is refused by
	// rules that count each attempt of a client. In IPVS mode the virtual servers count connections that got a real server,
	// and none that is refused.
	Counted []Lines `json:"-"`
}

// Lines are lines of one file, from 1, in ascending order.
type Lines struct {
	File    string
	Numbers []int32
}

// ServicePortState says how a service port fares.
type ServicePortState string

// The states. Differs: there is a finding of severity warning or worse about it, whatever else holds. Skipped: no proxy
// forwards it. Unknown: the rules or the endpoints were not read. OK: none of these.
const (
	ServicePortOK      ServicePortState = "ok"
	ServicePortDiffers ServicePortState = "differs"
	ServicePortUnknown ServicePortState = "unknown"
	ServicePortSkipped ServicePortState = "skipped"
)

// GetObjectKind lets the printers of cli-runtime print the table.
func (s *NodeServices) GetObjectKind() schema.ObjectKind { return &s.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print the table; see Trace.DeepCopyObject.
func (s *NodeServices) DeepCopyObject() runtime.Object { c := *s; return &c }
