package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RepairPlan is what would put Services of one node back to work, step by step. Nothing of it has been done.
type RepairPlan struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the node whose evidence this is; empty when nothing in the evidence says.
	Node  string `json:"node"`
	Proxy Proxy  `json:"proxy"`
	// Plan identifies the steps: the same steps over the same state have the same one, whatever advice comes with them and
	// whichever tracked connections are removed. It is 12 hex digits, empty for a plan of which nothing can be applied.
	Plan string `json:"plan"`
	// Findings are what the plan is about, worst first.
	Findings []Finding `json:"findings"`
	// Steps in the order in which they are done. Each is one transaction, or one command: done whole, or not at all.
	Steps []RepairStep `json:"steps"`
	// Left are findings that no step mends, in the order of Findings.
	Left    []RepairLeft  `json:"left"`
	Sources []Source      `json:"sources"`
	Summary RepairSummary `json:"summary"`
}

// RepairSummary says in prose what the plan comes to.
type RepairSummary struct {
	Text string `json:"text"`
}

// RepairStep is one thing to do.
type RepairStep struct {
	// Step is its number, from 1.
	Step int `json:"step"`
	// Kind is iptables, nftables, ipset, ipvs, address, conntrack, sysctl, route, or advice: something that svcnet does not do.
	Kind string `json:"kind"`
	// Owner is whose state the step changes: kube-proxy, foreign (another program's, or nobody knows whose) or node (sysctls, routes).
	Owner string `json:"owner"`
	// Title says in a few words what is done: "restore 3 rules in table nat (IPv4, nft)".
	Title string `json:"title"`
	// Reason says why; Affects whose connections change when it is done; Risk what may go wrong, in words.
	Reason  string `json:"reason"`
	Affects string `json:"affects"`
	Risk    string `json:"risk"`
	// Consent is what has to be given beside --apply for the step to be done, as typed: "--allow foreign". Empty: --apply is enough.
	Consent string `json:"consent"`
	// Edits are what the step changes, each with its own reason. Empty for advice.
	Edits []RepairEdit `json:"edits"`
	// Do is what does it, Undo what takes it back. An Undo without Command cannot be taken back, and Until or Risk says so.
	Do   RepairCommand `json:"do"`
	Undo RepairCommand `json:"undo"`
	// Lasts says until when it holds: "until kube-proxy's next full sync, which writes the same". Empty: until somebody changes it.
	Lasts string `json:"lasts"`
}

// RepairCommand is a command as a shell would run it, with what it reads on standard input.
type RepairCommand struct {
	Command []string `json:"command"`
	Input   string   `json:"input"`
}

// RepairEdit is one object of the kernel that a step changes.
type RepairEdit struct {
	// Table says where the object is, as the native tool names it with family and backend: "nat (IPv4, nft)", "ip kube-proxy",
	// "IPVS", "sets", "sysctl", "IPv4 routes".
	Table string `json:"table"`
	// Object names it there: "chain KUBE-SVC-NPX46M4PTMTKRN6Y", "element 10.96.0.1 . tcp . 443 of map service-ips",
	// "virtual server TCP 10.96.0.1:443", "net.ipv4.ip_forward".
	Object string `json:"object"`
	Reason string `json:"reason"`
	// Service is "namespace/name" of the Service that it belongs to; empty for what serves all.
	Service string `json:"service"`
	// Findings are the ids of the findings that it mends, each once, in the order of the plan's.
	Findings []string `json:"findings"`
	// Was and Will are the object before and after, line by line as the native tool prints it without counters and handles.
	// Absent and Remove tell that it is not there before, or not after: an empty list alone is an object without lines.
	Was    []string `json:"was"`
	Will   []string `json:"will"`
	Absent bool     `json:"absent"`
	Remove bool     `json:"remove"`
}

// RepairLeft is a finding that the plan does not mend.
type RepairLeft struct {
	// ID, Object and Subject are those of the finding.
	ID      string `json:"id"`
	Object  Object `json:"object"`
	Subject string `json:"subject"`
	// Because says why no step mends it, Instead what to do.
	Because string `json:"because"`
	Instead string `json:"instead"`
}

// RepairRun is a plan that was applied, and what became of it.
type RepairRun struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the node; empty when nothing says its name.
	Node string `json:"node"`
	// ID names the run for --rollback: when it began (UTC), and its plan: "20270117T101502Z-3f9a01c2b4d5". It is empty where
	// nothing was written.
	ID string `json:"id"`
	// Plan identifies the plan that was applied.
	Plan  string         `json:"plan"`
	State RepairRunState `json:"state"`
	// Steps are those of the plan, in its order.
	Steps []RepairRunStep `json:"steps"`
	// Mended are the plan's findings that are gone, Remaining those that are not, and New what was not found before, worst
	// first. They are empty where nobody looked again.
	Mended    []Finding `json:"mended"`
	Remaining []Finding `json:"remaining"`
	New       []Finding `json:"new"`
	// Unknown are the checks that could not be answered afterwards.
	Unknown []Unknown     `json:"unknown"`
	Summary RepairSummary `json:"summary"`
}

// RepairRunState says what became of a run.
type RepairRunState string

// The states. Applied: all that could be done was done, and the node is not worse. RolledBack: what was done was taken back,
// by the run itself or later. Interrupted: it ended in the middle, or nobody knows how it ended: --rollback takes back
// what was done. NotApplied: nothing was written.
const (
	RepairApplied     RepairRunState = "applied"
	RepairRolledBack  RepairRunState = "rolled-back"
	RepairInterrupted RepairRunState = "interrupted"
	RepairNotApplied  RepairRunState = "not-applied"
)

// RepairRunStep is what became of one step.
type RepairRunStep struct {
	// Step is its number in the plan, Kind and Title are the plan's.
	Step  int    `json:"step"`
	Kind  string `json:"kind"`
	Title string `json:"title"`
	// State is done, undone (taken back), not-done, begun (nobody knows whether it was done), or kept (not taken back).
	State string `json:"state"`
	// Text says why, where there is something to say.
	Text string `json:"text"`
}

// RepairRuns are the runs of one node that its journal knows, the newest first, a document of kind RepairRunList.
type RepairRuns struct {
	metav1.TypeMeta `json:",inline"`
	Items           []RepairRun `json:"items"`
}

// GetObjectKind lets the printers of cli-runtime print a plan.
func (p *RepairPlan) GetObjectKind() schema.ObjectKind { return &p.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a plan. Documents are never changed once made, so a shallow copy
// is enough.
func (p *RepairPlan) DeepCopyObject() runtime.Object { c := *p; return &c }

// GetObjectKind lets the printers of cli-runtime print a run.
func (r *RepairRun) GetObjectKind() schema.ObjectKind { return &r.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print a run; see RepairPlan.DeepCopyObject.
func (r *RepairRun) DeepCopyObject() runtime.Object { c := *r; return &c }

// GetObjectKind lets the printers of cli-runtime print the list.
func (r *RepairRuns) GetObjectKind() schema.ObjectKind { return &r.TypeMeta }

// DeepCopyObject lets the printers of cli-runtime print the list; see RepairPlan.DeepCopyObject.
func (r *RepairRuns) DeepCopyObject() runtime.Object { c := *r; return &c }
