package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Report is what an audit of one node found: every difference between what Services and EndpointSlices ask for and
// what the node does, and every hazard around it. What is as it should be is only counted.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node string `json:"node"`
	// Like is, in a list, the node whose item has the findings of this one too; see Reports.
	Like     string       `json:"like,omitempty"`
	Proxy    Proxy        `json:"proxy"`
	Services ServiceCount `json:"services"`
	// Findings, worst first.
	Findings []Finding `json:"findings"`
	// Unknown are the checks that could not be answered, by id.
	Unknown []Unknown    `json:"unknown"`
	Sources []Source     `json:"sources"`
	Summary AuditSummary `json:"summary"`
	Verdict Verdict      `json:"verdict"`
	// Own is what is this node's alone.
	Own Own `json:"-"`
}

// ServiceCount counts Services by what the audit says of them. Total = OK + Differ + Unknown + Skipped.
type ServiceCount struct {
	// Total are the Services that were asked for.
	Total int `json:"total"`
	// OK are those without any finding of severity warning or worse.
	OK int `json:"ok"`
	// Differ are those with one.
	Differ int `json:"differ"`
	// Unknown are those for which rules or endpoints were not read.
	Unknown int `json:"unknown"`
	// Skipped are those that no proxy forwards: headless, ExternalName, left to another proxy.
	Skipped int `json:"skipped"`
}

// AuditSummary counts findings by severity, and checks that could not be answered.
type AuditSummary struct {
	Critical int    `json:"critical"`
	Error    int    `json:"error"`
	Warning  int    `json:"warning"`
	Info     int    `json:"info"`
	Unknown  int    `json:"unknown"`
	Text     string `json:"text"`
}

// Verdict is the outcome of an audit.
type Verdict string

// The verdicts. Fail: there are findings of severity error or critical. Unknown: there are none, but some check could
// not be answered. Pass: every check was answered, and none found an error.
const (
	VerdictPass    Verdict = "pass"
	VerdictFail    Verdict = "fail"
	VerdictUnknown Verdict = "unknown"
)

// Unknown is a check that could not be answered.
type Unknown struct {
	// ID is that of the finding which is then neither raised nor excluded.
	ID string `json:"id"`
	// Sources are the sources that the check needs and that were not answered.
	Sources []string `json:"sources"`
	// Text says what is missing and how to get it.
	Text string `json:"text"`
}

// GetObjectKind lets the printers of cli-runtime print a report.
func (r *Report) GetObjectKind() schema.ObjectKind { return &r.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a report; see Trace.DeepCopyObject.
func (r *Report) DeepCopyObject() runtime.Object { c := *r; return &c }
