package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodeEvent is something that happened on a node while it was watched. One is written on each line.
type NodeEvent struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when it was known, RFC 3339 with fractions of a second, UTC, by the clock of the node.
	Time string `json:"time"`
	// Node is the node that is watched; empty when nothing says which it is.
	Node string    `json:"node"`
	Type EventType `json:"type"`
	// Text says it in one line.
	Text string `json:"text"`
	// Lag is there for type lag.
	Lag *Lag `json:"lag,omitempty"`
	// Finding is there for types appeared and cleared. Since says when one that cleared had appeared.
	Finding *Finding `json:"finding,omitempty"`
	Since   string   `json:"since,omitempty"`
	// Source and Before are there for type source: a source of evidence and the status that it had before. The source
	// "api" is the connection that objects come by, "audit" the audit as a whole.
	Source *Source `json:"source,omitempty"`
	Before string  `json:"before,omitempty"`
	// ObjectsOf is when the objects were last known to be those of the API server, where it does not answer now; what
	// is said then rests on objects of that time.
	ObjectsOf string `json:"objectsOf,omitempty"`
	// Writers are the programs that changed rules of the node between the reading that this rests on and the one
	// before, oldest first, as far as the kernel says it. At most 8: the newest.
	Writers []Writer `json:"writers"`
}

// EventType says what happened.
type EventType string

// The types of events. Started: the node is watched from now on. Lag: a change of objects is in the kernel. Appeared and
// cleared: a finding that was not there before, one that is gone. Source: a source of evidence has another status. Proxy:
// kube-proxy was started again.
const (
	EventStarted  EventType = "started"
	EventLag      EventType = "lag"
	EventAppeared EventType = "appeared"
	EventCleared  EventType = "cleared"
	EventSource   EventType = "source"
	EventProxy    EventType = "proxy"
)

// Lag is how long a change of an object took to get into the kernel.
type Lag struct {
	// Kind, Namespace and Name are the object that changed: a Service, an EndpointSlice. Service is the name of the
	// Service, in the same namespace.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Service   string `json:"service"`
	// Change is added, updated or deleted. ResourceVersion is that of the object after the change.
	Change          string `json:"change"`
	ResourceVersion string `json:"resourceVersion"`
	// Triggered is when a pod or Service changed so that the slice had to, as its controller wrote it down, by another
	// clock; Written when the API server wrote the object, in whole seconds. Empty where the object does not say.
	Triggered string `json:"triggered,omitempty"`
	Written   string `json:"written,omitempty"`
	// Observed is when the watch on this node told of the change; Shown the moment of the first rules that show it.
	Observed string `json:"observed"`
	Shown    string `json:"shown"`
	// From is what Seconds counts from: triggered where there is such a time, else observed.
	From string `json:"from"`
	// Seconds is the lag: the change was in the kernel by then. AtLeast is the same for the earliest change of rules that
	// may have been the one: rules are read less often than they change. Both are 0 for a change that was in the kernel
	// before the watch told of it.
	Seconds float64 `json:"seconds"`
	AtLeast float64 `json:"atLeast"`
}

// Writer is a program that changed rules of nf_tables.
type Writer struct {
	Time    string `json:"time"`
	Process string `json:"process"`
	PID     int    `json:"pid"`
}

// GetObjectKind lets the printers of cli-runtime print an event.
func (e *NodeEvent) GetObjectKind() schema.ObjectKind { return &e.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print an event; see Trace.DeepCopyObject.
func (e *NodeEvent) DeepCopyObject() runtime.Object { c := *e; return &c }
