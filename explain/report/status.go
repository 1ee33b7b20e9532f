package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodeStatus says what serves Services on one node, how it is doing, and how that is known.
type NodeStatus struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node string `json:"node"`
	// Tool is the program that took the evidence and Captured when (RFC 3339); both are empty for loose files.
	Tool     string        `json:"tool"`
	Captured string        `json:"captured"`
	Verdict  StatusVerdict `json:"verdict"`
	// Grounds are what the verdict rests on, in the order: whether a proxy runs, how it is doing, what is programmed.
	Grounds []Ground `json:"grounds"`
	// Ports counts service ports by what the rules do for them.
	Ports PortCount `json:"ports"`
	// Traits are what is known of the proxy, always the same ones in the same order.
	Traits  []Trait       `json:"traits"`
	Sources []Source      `json:"sources"`
	Summary StatusSummary `json:"summary"`
	// Own is what is this node's alone.
	Own Own `json:"-"`
}

// StatusVerdict says in a word how Services fare on a node.
type StatusVerdict string

// The verdicts. Healthy is what the proxy says of itself and nothing contradicts; programmed means that the rules do
// what the API asks for. Where only one of the two is known, the verdict says only that one.
const (
	StatusHealthyProgrammed    StatusVerdict = "healthy-and-programmed"
	StatusHealthyNotProgrammed StatusVerdict = "healthy-but-not-programmed"
	StatusHealthy              StatusVerdict = "healthy"
	StatusProgrammed           StatusVerdict = "programmed"
	StatusNotProgrammed        StatusVerdict = "not-programmed"
	StatusNotHealthy           StatusVerdict = "not-healthy"
	StatusNotRunning           StatusVerdict = "not-running"
	StatusUnknown              StatusVerdict = "unknown"
)

// Ground is one thing that a verdict rests on.
type Ground struct {
	Text     string     `json:"text"`
	Evidence []Evidence `json:"evidence"`
}

// PortCount counts service ports. Total = Programmed + Differ + Unknown.
type PortCount struct {
	// Total are the ports of Services that a proxy forwards, counted for each address family.
	Total int `json:"total"`
	// Programmed are those for which the rules do what the API asks for.
	Programmed int `json:"programmed"`
	// Differ are those for which they do not.
	Differ int `json:"differ"`
	// Unknown are those whose rules or endpoints were not read.
	Unknown int `json:"unknown"`
}

// Trait is one thing that is known of the proxy.
type Trait struct {
	Name string `json:"name"`
	// Value is empty where it is not known.
	Value string `json:"value"`
	// Note says why nothing has to tell it: a default.
	Note string `json:"note"`
	// Facts are where it is known from, the one that decides first; those that contradict it have a note.
	Facts []Fact `json:"facts"`
}

// Fact is what one piece of evidence says of a trait.
type Fact struct {
	Value    string   `json:"value"`
	Evidence Evidence `json:"evidence"`
	// Note says why the value is not used, or what it assumes; empty for a plain fact.
	Note string `json:"note"`
}

// StatusSummary says the verdict in prose.
type StatusSummary struct {
	Text string `json:"text"`
}

// GetObjectKind lets the printers of cli-runtime print a status.
func (s *NodeStatus) GetObjectKind() schema.ObjectKind { return &s.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a status; see Trace.DeepCopyObject.
func (s *NodeStatus) DeepCopyObject() runtime.Object { c := *s; return &c }
