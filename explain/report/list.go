package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Own is what belongs to one node by intent: two nodes that differ in nothing else are alike. It is no part of a
// document.
type Own struct {
	// Addresses are the node's own, PodCIDRs the ranges of its pods, in the order of the evidence.
	Addresses, PodCIDRs []string
}

// Kindred are nodes of one list that are alike: their documents say the same but for rule order, counters, dates and
// what is node-local by intent (names, addresses, pod ranges, local endpoints of a Local policy). Findings of severity
// info make no node odd.
type Kindred struct {
	// Nodes by name.
	Nodes []string `json:"nodes"`
	// Item is the node among them whose item says it in full, the first one by name.
	Item string `json:"item"`
	// Odd is true for all but the most common kind of nodes.
	Odd bool `json:"odd"`
	// Differs says in words what tells an odd kind from the most common one.
	Differs []string `json:"differs"`
	// Text is the summary of the item.
	Text string `json:"text"`
}

// Unread is a node of which there is no document.
type Unread struct {
	Node string `json:"node"`
	// Error says what was tried, why it failed and what to do next.
	Error string `json:"error"`
}

// NodesFinding is a finding with all nodes that have it.
type NodesFinding struct {
	// Nodes by name.
	Nodes []string `json:"nodes"`
	// Everywhere is true when these are all nodes of the list that were read.
	Everywhere bool `json:"everywhere"`
	// Finding as the first of the nodes has it.
	Finding Finding `json:"finding"`
}

// ListSummary says in prose how many nodes there are and how many kinds of them.
type ListSummary struct {
	Text string `json:"text"`
}

// Reports are the audits of many nodes, a document of kind ReportList.
type Reports struct {
	metav1.TypeMeta `json:",inline"`
	// Items by node name, one for each node that was read. Where an item has Like, its findings, unknown checks and
	// sources are those of that item and not repeated; Findings has those of severity info with all their nodes.
	Items []Report `json:"items"`
	// Kinds are the nodes sorted by likeness: the odd ones first, the rarest of them before the others.
	Kinds []Kindred `json:"kinds"`
	// Findings of all nodes, each once: worst first, and among equals those on few nodes first.
	Findings []NodesFinding `json:"findings"`
	// Unread by node name.
	Unread []Unread `json:"unread"`
	// Summary counts each of Findings once.
	Summary AuditSummary `json:"summary"`
	// Verdict is that of the worst node; unknown where none fails and one could not be read.
	Verdict Verdict `json:"verdict"`
}

// TraceList is what many nodes do with packets to one Service.
type TraceList struct {
	metav1.TypeMeta `json:",inline"`
	// Items by node name, one for each node that was read. Where an item has Like, its paths and findings are those of
	// that item, but for what is the node's own, and not repeated.
	Items []Trace `json:"items"`
	// Kinds are the nodes sorted by likeness: the odd ones first, the rarest of them before the others.
	Kinds []Kindred `json:"kinds"`
	// Unread by node name.
	Unread  []Unread    `json:"unread"`
	Summary ListSummary `json:"summary"`
}

// NodeStatusList says of many nodes what serves Services on them.
type NodeStatusList struct {
	metav1.TypeMeta `json:",inline"`
	// Items by node name, one for each node that was read.
	Items []NodeStatus `json:"items"`
	// Kinds are the nodes sorted by likeness: the odd ones first, the rarest of them before the others.
	Kinds []Kindred `json:"kinds"`
	// Unread by node name.
	Unread  []Unread    `json:"unread"`
	Summary ListSummary `json:"summary"`
}

// GetObjectKind lets the printers of cli-runtime print a list.
func (l *Reports) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a list; see Trace.DeepCopyObject.
func (l *Reports) DeepCopyObject() runtime.Object { c := *l; return &c }

// GetObjectKind lets the printers of cli-runtime print a list.
func (l *TraceList) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a list; see Trace.DeepCopyObject.
func (l *TraceList) DeepCopyObject() runtime.Object { c := *l; return &c }

// GetObjectKind lets the printers of cli-runtime print a list.
func (l *NodeStatusList) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a list; see Trace.DeepCopyObject.
func (l *NodeStatusList) DeepCopyObject() runtime.Object { c := *l; return &c }
