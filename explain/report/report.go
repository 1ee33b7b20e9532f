// Package report holds the types of every document that svcnet prints: the output contract. Fields may
// be added, never renamed. Arrays are never null and have the order stated at the field.
//
// The package is a leaf: it imports nothing of this project.
package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIVersion is that of every document.
const APIVersion = "svcnet.dev/v1alpha1"

// Metadata names the object that a document is about.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// Trace is the path of packets to one Service (or of one packet) through one node.
type Trace struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        Metadata `json:"metadata"`
	// Type is the Service's type (ClusterIP, NodePort, LoadBalancer, ExternalName), empty without the object.
	Type string `json:"type,omitempty"`
	// AffinitySeconds is how long a client keeps its backend by the object's ClientIP affinity, 0 for none.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node string `json:"node"`
	// Like is, in a list, the node whose item has the paths and findings of this one too; see TraceList.
	Like  string `json:"like,omitempty"`
	Proxy Proxy  `json:"proxy"`
	// Paths in the order of frontends (ClusterIP, ExternalIP, LoadBalancer, NodePort, HealthCheck; then address, port,
	// protocol) and source classes, then by descending probability.
	Paths []Path `json:"paths"`
	// Findings, worst first.
	Findings []Finding    `json:"findings"`
	Sources  []Source     `json:"sources"`
	Summary  TraceSummary `json:"summary"`
	// Own is what is this node's alone.
	Own Own `json:"-"`
}

// TraceSummary answers in prose what happens to a client of the Service on this node.
type TraceSummary struct {
	Text string `json:"text"`
}

// Proxy says what serves Services on the node.
type Proxy struct {
	Mode    string `json:"mode"`
	Backend string `json:"backend"`
	Version string `json:"version"`
	// Evidence says where each trait came from.
	Evidence []Evidence `json:"evidence"`
}

// Path is one outcome of one cell of the grid (frontend × source class). The probabilities of the paths
// of one cell sum to 1; where Uncertain is not empty, a path holds only if its conditions do, and the
// sum is 1 within each consistent choice of conditions.
type Path struct {
	Frontend Frontend `json:"frontend"`
	// SourceClass is local-pod, remote-pod, node, remote-node, external, hairpin or localhost; empty for
	// a single packet whose class is not known.
	SourceClass string `json:"sourceClass"`
	// Source is the representative client, "address" or "address:port".
	Source string `json:"source"`
	// Origin is pod, node or external: where the packet enters this node's stack.
	Origin string `json:"origin"`
	Result Result `json:"result"`
	// TranslatedBy names what chose the backend: a chain ("KUBE-SEP-…"), a virtual server, "conntrack"; empty when nothing did.
	TranslatedBy string `json:"translatedBy"`
	// Table and Chain are where the verdict falls: "filter" and "KUBE-SERVICES", or "FORWARD(policy)".
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Because says in words what ended the packet, for results that are no translation: the rule or policy
	// as printed, the missing route, the source check.
	Because string `json:"because,omitempty"`
	// Probability is this path's share of the cell's connections, 0 to 1.
	Probability float64 `json:"probability"`
	// Uncertain holds the conditions that evidence does not decide.
	Uncertain []Uncertain `json:"uncertain"`
	// Masquerade is true, false, or null when undecided or different between backends.
	Masquerade *bool `json:"masquerade"`
	// Backends by descending probability, then address and port; those that are missing come last.
	Backends []Backend `json:"backends"`
	// Hops are those that all backends of the path share, in the order the kernel runs them.
	Hops []Hop `json:"hops"`
	// NotEvaluated names what lies outside of this node's evidence, e.g. a pod's own rules.
	NotEvaluated []string `json:"notEvaluated"`
	// Intended is what the objects ask for in this cell; null without objects.
	Intended *Intended `json:"intended,omitempty"`
	// Reply is what happens to the answer on its way back; null when the walk did not get there.
	Reply *Reply `json:"reply,omitempty"`
}

// Intended is the outcome that the API objects ask for.
type Intended struct {
	Result   Result   `json:"result"`
	Backends []string `json:"backends"`
	// Because names the rule of kube-proxy that asks for it.
	Because string `json:"because"`
	// Local is true where that depends on the node: a traffic policy Local, or topology, picks the backends. It is no
	// part of the document.
	Local bool `json:"-"`
}

// Reply is the fate of the first answer.
type Reply struct {
	Result ReplyResult `json:"result"`
	Table  string      `json:"table"`
	Chain  string      `json:"chain"`
	Text   string      `json:"text"`
	// Evidence is the rule or policy that stops it; absent where it is none that does.
	Evidence Evidence `json:"evidence,omitzero"`
}

// Result is the outcome of a walk.
type Result string

// The results of the contract.
const (
	ResultDNAT                  Result = "dnat"
	ResultIPVS                  Result = "ipvs"
	ResultBPF                   Result = "bpf"
	ResultRedirect              Result = "redirect"
	ResultTProxy                Result = "tproxy"
	ResultReject                Result = "reject"
	ResultDrop                  Result = "drop"
	ResultNoMatch               Result = "no-match"
	ResultNoRoute               Result = "no-route"
	ResultMartian               Result = "martian"
	ResultLocalProcess          Result = "local-process"
	ResultUntrackedLocal        Result = "untracked-local"
	ResultAcceptedUndelivered   Result = "accepted-undelivered"
	ResultDNATByConntrack       Result = "dnat-by-conntrack"
	ResultUntranslatedByConntrk Result = "untranslated-by-conntrack"
	ResultUnknown               Result = "unknown"
)

// ReplyResult is what becomes of an answer.
type ReplyResult string

// The results of a reply. Delivered: it reaches the client as the answer that it is. Untranslated: it comes from
// an address that the client did not dial. Bypasses: it does not come back through this node, which alone could
// undo the translation, and so is untranslated too. The others are as for requests.
const (
	ReplyDelivered    ReplyResult = "delivered"
	ReplyUntranslated ReplyResult = "untranslated"
	ReplyBypasses     ReplyResult = "bypasses"
	ReplyDrop         ReplyResult = "drop"
	ReplyReject       ReplyResult = "reject"
	ReplyNoRoute      ReplyResult = "no-route"
	ReplyMartian      ReplyResult = "martian"
	ReplyUnknown      ReplyResult = "unknown"
)

// Frontend is an address that clients dial.
type Frontend struct {
	// Kind is ClusterIP, NodePort, LoadBalancer, ExternalIP, HealthCheck, or Address for a packet that belongs to no Service known here.
	Kind     string `json:"kind"`
	Address  string `json:"address"` // RFC 5952, no brackets
	Port     int    `json:"port"`
	Protocol string `json:"protocol"` // TCP, UDP, SCTP
	PortName string `json:"portName"`
}

// Uncertain is a condition that evidence does not decide.
type Uncertain struct {
	// Condition is what this path assumes, e.g. "nft chains run before legacy ones at OUTPUT nat".
	Condition string `json:"condition"`
	// Because says why it cannot be decided, and what would decide it.
	Because string `json:"because"`
}

// Backend is one destination of a path.
type Backend struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
	// Probability is the share of the cell's connections.
	Probability float64 `json:"probability"`
	// Intended is the share that the objects ask for; null without objects.
	Intended *float64 `json:"intended"`
	// State is ok, missing, stale, not-ready or unknown.
	State string `json:"state"`
	// Result is what becomes of packets to this backend after translation: the path's result, or drop, no-route, martian…
	Result     Result `json:"result"`
	Masquerade *bool  `json:"masquerade"`
	// MasqueradeIntended is whether the objects and the proxy's settings ask for it; null where that is not known.
	MasqueradeIntended *bool `json:"masqueradeIntended,omitempty"`
	// SnatTo is the source that the backend sees when masqueraded, empty when not known.
	SnatTo string `json:"snatTo"`
	Node   string `json:"node"`
	// Pod is "namespace/name", empty when no object names it.
	Pod string `json:"pod"`
	// TranslatedBy names what leads to this backend: a chain, "conntrack"; empty for one that gets no traffic.
	TranslatedBy string `json:"translatedBy,omitempty"`
	// Ready is "ready", "not ready", "terminating" and so on, in words; empty without objects.
	Ready string `json:"ready,omitempty"`
	// Hops are this backend's own, after those of the path.
	Hops []Hop `json:"hops"`
	// Reply is the fate of this backend's first answer, null when not walked.
	Reply *Reply `json:"reply,omitempty"`
	// Inside is what happens in the pod's own network namespace, null when that was not read.
	Inside *Inside `json:"inside,omitempty"`
}

// Inside is the fate of a packet that has reached a pod.
type Inside struct {
	// Pod is "namespace/name".
	Pod string `json:"pod"`
	// Result is local-process when somebody listens, redirect when the pod's own rules hand the packet to a
	// proxy, no-match when nobody listens, or drop, reject, no-route, martian, unknown.
	Result Result `json:"result"`
	// Text says it in words, with the process that listens.
	Text string `json:"text"`
	// Hops are the pod's own rules.
	Hops []Hop `json:"hops"`
}

// Hop is one step: a rule, a policy, a routing decision, a virtual server, a map.
type Hop struct {
	// Kind is rule, policy, route, set, virtual-server, map or conntrack.
	Kind  string `json:"kind"`
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Rule is the position in the chain, from 1; 0 for hops that are no rules.
	Rule int    `json:"rule"`
	Text string `json:"text"`
	// Probability is of this rule alone; Cumulative that of the whole path up to here.
	Probability float64  `json:"probability"`
	Cumulative  float64  `json:"cumulative"`
	Evidence    Evidence `json:"evidence"`
	// Pod is "namespace/name" for a hop inside a pod's own network namespace, empty for the node's.
	Pod string `json:"pod,omitempty"`
}

// Evidence is what a claim rests on, as the native tool prints it.
type Evidence struct {
	Source string `json:"source"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Text   string `json:"text,omitempty"`
}

// Finding is a difference or a hazard.
type Finding struct {
	ID       string     `json:"id"`
	Severity string     `json:"severity"` // critical, error, warning, info
	Node     string     `json:"node"`
	Object   Object     `json:"object"`
	Subject  string     `json:"subject"`
	Message  string     `json:"message"`
	Want     string     `json:"want"`
	Got      string     `json:"got"`
	Evidence []Evidence `json:"evidence"`
	Causes   []string   `json:"causes"`
	Remedy   string     `json:"remedy"`
	Docs     string     `json:"docs"`
	// CausedBy is the id of another finding of the same document that explains this one; empty for a finding that
	// stands for itself.
	CausedBy string `json:"causedBy,omitempty"`
	// Pending says, for a difference that may be kube-proxy at work, how old the change is; empty for all others. The
	// severity is then info.
	Pending string `json:"pending,omitempty"`
}

// Object names what a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      string `json:"port"`
	Protocol  string `json:"protocol"`
	Endpoint  string `json:"endpoint"`
}

// Source is the status of one source of evidence.
type Source struct {
	Name string `json:"name"`
	// Status is ok, empty, absent, not-collected, unsupported, denied, failed or truncated.
	Status string `json:"status"`
	File   string `json:"file"`
	Error  string `json:"error"`
}

// GetObjectKind lets the printers of cli-runtime print a trace.
func (t *Trace) GetObjectKind() schema.ObjectKind { return &t.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a trace. Documents are never changed once made,
// so a shallow copy is enough.
func (t *Trace) DeepCopyObject() runtime.Object { c := *t; return &c }
