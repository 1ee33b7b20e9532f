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
	// Namespace and Service limit to findings about one Service, and about none; empty: all.
	Namespace, Service string
}

// wants tells whether a plan is about a finding.
func (o *Options) wants(f *report.Finding) bool {
	return (o.Finding == "" || f.ID == o.Finding) &&
		(o.Service == "" || f.Object.Kind != "Service" || f.Object.Namespace == o.Namespace && f.Object.Name == o.Service)
}

// site is a node as menders see it.
type site struct {
	node *check.Node
	// findings are those that the plan is about, worst first.
	findings []report.Finding
	// mended are the indexes of findings that a step mends.
	mended map[int]bool
	// because says why a mender could not mend findings that are its to mend, by their indexes.
	because map[int]string
}

// leave notes why findings cannot be mended that are a mender's to mend. The first that is said stands.
func (s *site) leave(findings []int, because string) {
	for _, i := range findings {
		if s.because[i] == "" {
			s.because[i] = because
		}
	}
}

// mender plans the steps of one mechanism.
type mender struct {
	name string
	mend func(s *site) []report.RepairStep
}

// menders in the order in which their steps are done: what packets need to get anywhere, then what others need to be there
// (sets before the rules that ask them), then rules, then what stands in their way, then what old state keeps.
var menders = []mender{
	{"sysctl", mendSysctls},
	{"route", mendRoutes},
	{"ipset", mendSets},
	{"ipvs", mendServers},
	{"address", mendAddresses},
	{"nftables", mendNFTables},
	{"leftover tables of nftables", mendNFTLeftovers},
	{"foreign rules of nftables", mendForeignNFT},
	{"iptables", mendIPTables},
	{"what is left of IPVS mode", mendLeftIPVS},
	{"conntrack", mendFlows},
}

// AllowForeign is the consent that steps need which change what is not kube-proxy's.
const AllowForeign = "--allow foreign"

// The owners of what a step changes.
const (
	ownerProxy   = "kube-proxy"
	ownerForeign = "foreign"
	ownerNode    = "node"
)

// Make plans what would mend the findings of a reading.
func Make(r *explain.Reading, o Options) *report.RepairPlan {
	s := &site{node: r.Node(), mended: make(map[int]bool), because: make(map[int]string)}
	for _, f := range r.Report.Findings {
		if o.wants(&f) {
			s.findings = append(s.findings, f)
		}
	}
	p := &report.RepairPlan{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "RepairPlan"},
		Node:     r.Report.Node, Proxy: r.Report.Proxy, Sources: r.Report.Sources,
		Findings: slices.Clone(s.findings), Steps: []report.RepairStep{}, Left: []report.RepairLeft{},
	}
	if p.Findings == nil {
		p.Findings = []report.Finding{}
	}
	for _, m := range menders {
		p.Steps = append(p.Steps, m.mend(s)...)
	}
	// Who owns the state comes first.
	p.Steps = slices.Concat(s.advise(p.Steps), p.Steps)
	for i := range p.Steps {
		p.Steps[i].Step = i + 1
		whole(&p.Steps[i])
	}
	p.Plan = identify(p.Steps)
	p.Left = s.left()
	p.Summary.Text = summary(p)
	return p
}

// whole puts empty lists where there are none: they are never null in a document.
func whole(s *report.RepairStep) {
	lists := []*[]string{&s.Do.Command, &s.Undo.Command}
	if s.Edits == nil {
		s.Edits = []report.RepairEdit{}
	}
	for i := range s.Edits {
		e := &s.Edits[i]
		lists = append(lists, &e.Findings, &e.Was, &e.Will)
	}
	for _, l := range lists {
		if *l == nil {
			*l = []string{}
		}
	}
}

// which are the indexes of the findings that fit, of those that may be mended: what may be kube-proxy at work is left to it.
func (s *site) which(fits func(f *report.Finding) bool) []int {
	var out []int
	for i := range s.findings {
		if f := &s.findings[i]; f.Pending == "" && fits(f) {
			out = append(out, i)
		}
	}
	return out
}

// mends notes that a step mends findings, and gives their ids, each once, in the order of the plan's.
func (s *site) mends(findings ...int) []string {
	out := []string{}
	for _, i := range slices.Sorted(slices.Values(findings)) {
		s.mended[i] = true
		if id := s.findings[i].ID; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// identify is the plan's identity: what is done to which objects, and nothing of the words around it, which hold counters
// and ages. What others have to do is not done, and which connections are tracked changes all the time: neither counts.
func identify(steps []report.RepairStep) string {
	type edit struct {
		Table, Object  string
		Was, Will      []string
		Absent, Remove bool
	}
	type step struct {
		Kind, Consent string
		Do, Undo      report.RepairCommand
		Edits         []edit
	}
	if !slices.ContainsFunc(steps, func(s report.RepairStep) bool { return s.Kind != KindAdvice }) {
		return ""
	}
	var all []step
	for _, s := range steps {
		if s.Kind == KindAdvice || s.Kind == kindConntrack {
			continue
		}
		one := step{Kind: s.Kind, Consent: s.Consent, Do: s.Do, Undo: s.Undo}
		for _, e := range s.Edits {
			one.Edits = append(one.Edits, edit{e.Table, e.Object, e.Was, e.Will, e.Absent, e.Remove})
		}
		all = append(all, one)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // the steps are plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
