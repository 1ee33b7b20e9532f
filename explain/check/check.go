// Package check is the catalogue of findings: each check looks at what was observed beside what is intended,
// or at one mechanism or its surroundings, and names what is wrong, with evidence and what to do. Ids are stable:
// they may be added, never renamed.
//
// Most differences show as cells of the grid whose outcome is not the intended one, whatever the dataplane: a check
// that looks at cells (Check.Port) needs to know no mechanism. Checks of mechanisms and surroundings (Check.Node) look
// at rules, host, objects and the proxy's traits as data; none of them parses anything.
//
// "Could not look" is never "not there": a check says with Node.Needs what it rests on before it concludes anything
// from it. Where that was not answered the check is unknown, and the document says so.
package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// Severities, worst first.
const (
	Critical = "critical"
	Error    = "error"
	Warning  = "warning"
	Info     = "info"
)

// Check is one entry of the catalogue. It has a page in docs/findings and a scenario for each of firing and staying
// silent in explain/testdata/findings.
type Check struct {
	ID string
	// Severity is the default; a check may set another one on a finding, with a reason in its message.
	Severity string
	// Title says in a few words what is wrong, in the plural of its objects: "service ports that are not programmed".
	Title string
	// Rests says what the check rests on, whatever else it asks for with Needs.
	Rests basis
	// Port looks at one service port with its cells, Node at everything else. A check has one or both. They return
	// findings without ID, severity, node and docs, which Run fills in; Port also gets the object filled in. A Node
	// check names its object itself.
	Port func(p *Port) []report.Finding
	Node func(n *Node) []report.Finding
	// Fold, where set, turns what Port found on all ports into fewer findings that say the same.
	Fold func(n *Node, found []portFinding) []report.Finding
	// Rest speaks last, in the order of the catalogue, of what none of the findings so far explains.
	Rest func(n *Node, found Findings) []report.Finding
	// Explains are the ids of findings that follow from this one: they are shown below it.
	Explains []string
}

// basis is what whole groups of checks rest on.
type basis uint8

const (
	// onObjects: Services and what lists their endpoints.
	onObjects basis = 1 << iota
	// onRules: the rules of the families in which Services have addresses.
	onRules
	// onGrid: both, as every cell does.
	onGrid = onObjects | onRules
)

// Result is what the catalogue says of a node.
type Result struct {
	// Findings, worst first.
	Findings []report.Finding
	// Unknown are the checks that could not be answered, by id.
	Unknown []report.Unknown
}

// Run runs the whole catalogue. It must be called once for a Node.
func Run(n *Node) Result {
	out := Result{Findings: []report.Finding{}, Unknown: []report.Unknown{}}
	for i := range Catalogue {
		c := &Catalogue[i]
		n.missing = nil
		n.needsBasis(c.Rests)
		if c.Node != nil {
			out.add(c, n, c.Node(n))
		}
		if c.Port != nil {
			out.add(c, n, c.ports(n))
		}
		if len(n.missing) > 0 {
			out.Unknown = append(out.Unknown, n.unknown(c.ID))
		}
	}
	for i := range Catalogue {
		if c := &Catalogue[i]; c.Rest != nil {
			out.add(c, n, c.Rest(n, out.Findings))
		}
	}
	// What rests on cells has said already what it lacks.
	n.missing = nil
	n.pend(out.Findings)
	n.possible(out.Findings)
	explained(out.Findings)
	Sort(out.Findings)
	return out
}

// portFinding is a finding of a service port, with the port.
type portFinding struct {
	report.Finding
	port *Port
}

// ports runs the check on every service port.
func (c *Check) ports(n *Node) []report.Finding {
	var found []portFinding
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, f := range c.port(p) {
			found = append(found, portFinding{f, p})
		}
	}
	if c.Fold != nil {
		return c.Fold(n, found)
	}
	out := make([]report.Finding, len(found))
	for i := range found {
		out[i] = found[i].Finding
	}
	return out
}

func (r *Result) add(c *Check, n *Node, found []report.Finding) {
	for _, f := range found {
		r.Findings = append(r.Findings, c.complete(f, n.Name))
	}
}

// Service runs the checks of service ports alone, over the ports of one Service or more.
func Service(ports []Port) []report.Finding {
	out := []report.Finding{}
	for i := range ports {
		for j := range Catalogue {
			if c := &Catalogue[j]; c.Port != nil {
				out = append(out, c.port(&ports[i])...)
			}
		}
	}
	if len(ports) > 0 {
		ports[0].On.possible(out)
	}
	Sort(out)
	return out
}

func (c *Check) port(p *Port) []report.Finding {
	found := c.Port(p)
	for i := range found {
		f := c.complete(found[i], p.On.Name)
		f.Object.Kind, f.Object.Namespace, f.Object.Name = "Service", p.Namespace, p.Name
		f.Object.Port, f.Object.Protocol = p.PortName, p.Protocol
		found[i] = f
	}
	return found
}

// complete fills in what every finding has.
func (c *Check) complete(f report.Finding, node string) report.Finding {
	f.ID, f.Severity, f.Node = c.ID, cmp.Or(f.Severity, c.Severity), node
	f.Docs = "docs/findings/" + c.ID + ".md"
	if f.Object.Kind == "" {
		f.Object.Kind, f.Object.Name = "Node", node
	}
	if f.Evidence == nil {
		f.Evidence = []report.Evidence{}
	}
	if f.Causes == nil {
		f.Causes = []string{}
	}
	return f
}

// explained says of each finding which other one it follows from: the worst, then the first in the catalogue, of
// those that explain it. What is itself explained still explains: a chain of causes leads to its root.
func explained(fs []report.Finding) {
	there := make(map[string]bool, len(fs))
	for i := range fs {
		there[fs[i].ID] = true
	}
	by := make(map[string]string)
	for i := range Catalogue {
		c := &Catalogue[i]
		if !there[c.ID] {
			continue
		}
		for _, id := range c.Explains {
			if first, ok := by[id]; !ok || Rank(Lookup(first).Severity) > Rank(c.Severity) {
				by[id] = c.ID
			}
		}
	}
	for i := range fs {
		if fs[i].CausedBy == "" && by[fs[i].ID] != fs[i].ID {
			fs[i].CausedBy = by[fs[i].ID]
		}
		// What a check raised to critical is not worse than its cause says already.
		if cause := Lookup(fs[i].CausedBy); cause != nil && cause.Severity == Critical && fs[i].Severity == Critical && Lookup(fs[i].ID).Severity != Critical {
			fs[i].Severity = Error
		}
	}
}

// MaySettle tells whether what a check finds may be kube-proxy at work on a change, and gone a moment later: it compares
// rules with objects.
func (c *Check) MaySettle() bool { return c.Rests == onGrid }

// Findings are those of other checks.
type Findings []report.Finding

// Has tells whether there is one of that id whose subject holds a text.
func (fs Findings) Has(id, subject string) bool {
	return slices.ContainsFunc(fs, func(f report.Finding) bool { return f.ID == id && strings.Contains(f.Subject, subject) })
}

// Lookup returns the check of an id, nil when there is none.
func Lookup(id string) *Check {
	i, ok := slices.BinarySearchFunc(Catalogue, id, func(c Check, id string) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return nil
	}
	return &Catalogue[i]
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
