package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Diff is what changed between two readings: of one node at two moments, or of two nodes. The order of rules, counters
// and dates are no changes; of two nodes neither is what belongs to each of them by intent (names, addresses, pod
// ranges, local endpoints of a Local policy).
type Diff struct {
	metav1.TypeMeta `json:",inline"`
	Before          DiffSide `json:"before"`
	After           DiffSide `json:"after"`
	// Services that changed, by namespace and name.
	Services []ServiceDiff `json:"services"`
	// Appeared are the findings of After that Before does not have, Cleared those that only Before has; worst first.
	Appeared []Finding `json:"appeared"`
	Cleared  []Finding `json:"cleared"`
	// Settings of the proxy that changed, in the order of the traits of NodeStatus.
	Settings []SettingDiff `json:"settings"`
	// Unknown are the checks that were answered on one side alone, by id.
	Unknown []SettingDiff `json:"unknown"`
	// Sources that changed their status, by name.
	Sources []SettingDiff `json:"sources"`
	Summary DiffSummary   `json:"summary"`
}

// DiffSide is one of the two readings.
type DiffSide struct {
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node string `json:"node"`
	// Captured is when the evidence was taken (RFC 3339); empty for loose files.
	Captured string  `json:"captured"`
	Verdict  Verdict `json:"verdict"`
	// Missing names the sources without which this side cannot be right.
	Missing []string `json:"missing"`
}

// ServiceDiff is what changed for one Service.
type ServiceDiff struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Change is added, removed or changed.
	Change string `json:"change"`
	// Paths that changed, by frontend; empty where the Service was added or removed.
	Paths []PathDiff `json:"paths"`
}

// PathDiff is what changed for the clients of one frontend that it changed for in the same way.
type PathDiff struct {
	// Frontend is "kind address:port/protocol".
	Frontend string `json:"frontend"`
	// SourceClasses by name.
	SourceClasses []string `json:"sourceClasses"`
	// Before and After say the outcomes in words; empty where there was none.
	Before string `json:"before"`
	After  string `json:"after"`
	// Gained and Lost are the backends ("address:port") that get connections on one side alone, sorted.
	Gained []string `json:"gained"`
	Lost   []string `json:"lost"`
}

// SettingDiff is a value that changed; empty where it is not known.
type SettingDiff struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// DiffSummary counts what changed.
type DiffSummary struct {
	// Services that were added, removed or changed.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Same is true when nothing changed.
	Same bool   `json:"same"`
	Text string `json:"text"`
}

// GetObjectKind lets the printers of cli-runtime print a diff.
func (d *Diff) GetObjectKind() schema.ObjectKind { return &d.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a diff; see Trace.DeepCopyObject.
func (d *Diff) DeepCopyObject() runtime.Object { c := *d; return &c }
