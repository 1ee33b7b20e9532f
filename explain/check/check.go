// Package check is the catalogue of findings: each check looks at what was observed beside what is intended
// and names the differences, with evidence and what to do. Ids are stable: they may be added, never renamed.
//
// A check must not look at rules by itself when the grid already tells: most differences show as cells whose
// outcome is not the intended one, whatever the dataplane.
package check

import (
	"cmp"
	"slices"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// Severities, worst first.
const (
	Critical = "critical"
	Error    = "error"
	Warning  = "warning"
	Info     = "info"
)

// Check is one entry of the catalogue.
type Check struct {
	ID       string
	Severity string
	// Run looks at one service port. It returns findings without ID, severity, node, object and docs, which
	// Service fills in; a check that raises or lowers its severity sets it.
	Run func(p Port) []report.Finding
}

// Port is one service port with its cells.
type Port struct {
	Node string
	*intent.ServicePort
	// Cells are the paths of each cell, in the order of the document.
	Cells [][]report.Path
}

// Catalogue is every check, by id.
var Catalogue = []Check{
	missingEndpointRule,
	missingServiceRule,
	notReadyEndpointUsed,
	probabilitySkewed,
	rejectRuleWithReadyEndpoints,
	staleEndpointRule,
}

// Service runs the catalogue over the ports of a Service and sorts what it finds: worst first, then by id
// and object.
func Service(ports []Port) []report.Finding {
	out := []report.Finding{}
	for _, p := range ports {
		for _, c := range Catalogue {
			for _, f := range c.Run(p) {
				f.ID, f.Severity, f.Node = c.ID, cmp.Or(f.Severity, c.Severity), p.Node
				f.Object.Kind, f.Object.Namespace, f.Object.Name = "Service", p.Namespace, p.Name
				f.Object.Port, f.Object.Protocol = p.PortName, p.Protocol
				f.Docs = "docs/findings/" + c.ID + ".md"
				if f.Evidence == nil {
					f.Evidence = []report.Evidence{}
				}
				if f.Causes == nil {
					f.Causes = []string{}
				}
				out = append(out, f)
			}
		}
	}
	Sort(out)
	return out
}

// Sort orders findings: worst first, then by id, object and subject.
func Sort(fs []report.Finding) {
	slices.SortStableFunc(fs, func(a, b report.Finding) int {
		return cmp.Or(
			cmp.Compare(Rank(a.Severity), Rank(b.Severity)), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(a.Object.Port, b.Object.Port), cmp.Compare(a.Object.Endpoint, b.Object.Endpoint), cmp.Compare(a.Subject, b.Subject),
		)
	})
}

// Rank is 0 for critical, growing with harmlessness.
func Rank(severity string) int {
	return slices.Index([]string{Critical, Error, Warning, Info}, severity)
}
