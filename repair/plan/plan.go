// Package plan says what would put Services back to work on a node: data made from what was read of it, and nothing
// done. What kube-proxy would have written (package kubeproxy) is set beside what is there; each difference that a
// finding speaks of becomes an edit, and the edits of one table one transaction, with the transaction that takes it back.
//
// The package is pure: the same reading gives the same plan.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// Options select what a plan is about.
type Options struct {
	// Finding limits to findings of this id; empty: all. Services and namespaces are limited by the reading's own options.
	Finding string
}

// site is a node as menders see it.
type site struct {
	node *check.Node
	// findings are those that the plan is about, worst first.
	findings []report.Finding
	// mended are the indexes of findings that a step mends.
	mended map[int]bool
}

// mender plans the steps of one mechanism.
type mender struct {
	name string
	mend func(s *site) []report.RepairStep
}

// menders in the order in which their steps are done: what packets need to get anywhere, then what others need to be there
// (sets before the rules that ask them), then rules, then what stands in their way, then what old state keeps.
var menders = []mender{}

// Make plans what would mend the findings of a reading.
func Make(r *explain.Reading, o Options) *report.RepairPlan {
	s := &site{node: r.Node(), mended: make(map[int]bool)}
	for _, f := range r.Report.Findings {
		if o.Finding == "" || f.ID == o.Finding {
			s.findings = append(s.findings, f)
		}
	}
	p := &report.RepairPlan{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "RepairPlan"},
		Node:     r.Report.Node, Proxy: r.Report.Proxy, Sources: r.Report.Sources,
		Findings: slices.Clone(s.findings), Steps: []report.RepairStep{}, Left: []report.RepairLeft{},
	}
	for _, m := range menders {
		p.Steps = append(p.Steps, m.mend(s)...)
	}
	for i := range p.Steps {
		p.Steps[i].Step = i + 1
	}
	p.Plan = identify(p.Steps)
	return p
}

// identify is the plan's identity.
func identify(steps []report.RepairStep) string {
	if len(steps) == 0 {
		return ""
	}
	text, err := json.Marshal(steps)
	if err != nil {
		panic(err) // the steps are plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
