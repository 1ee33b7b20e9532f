package explain

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"net/netip"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// Asked says what the objects ask of the proxy of one node, and where the rules are not like that.
type Asked struct {
	// Digests has one for each Service that the proxy serves, by "namespace/name". Two readings with one digest ask for
	// the same rules, whatever else changed in the objects: an endpoint that is not used, an annotation, a label. A Service
	// that the proxy leaves out has none.
	Digests map[string]string
	// Differ are the findings about Services that compare rules with objects, those that nobody wants to hear of included.
	Differ []report.Finding
	// Judged is true where all such checks were answered.
	Judged bool
}

// AuditAsked is Audit together with what the objects asked for when it was made, for who audits again and again and
// wants to know when a change of objects is in the rules. The errors are those of Audit.
func AuditAsked(s *snapshot.Snapshot, o AuditOptions) (*report.Report, Asked, error) {
	if err := o.check(); err != nil {
		return nil, Asked{}, err
	}
	m := newModel(s)
	r, err := m.audit(o)
	if err != nil {
		return nil, Asked{}, err
	}
	whole := r
	if len(o.Ignore) > 0 {
		// What is ignored still is not in the rules.
		all := o
		all.Ignore = nil
		if whole, err = m.audit(all); err != nil {
			return nil, Asked{}, err
		}
	}
	return r, AskedOf(m.digests(&o), whole), nil
}

// AskedOf takes from a report what compares rules with objects.
func AskedOf(digests map[string]string, r *report.Report) Asked {
	a := Asked{Digests: digests, Judged: true}
	for _, u := range r.Unknown {
		// Why rules are behind is another question than whether they are, and has no answer where nothing of the proxy can be
		// read.
		if u.ID != "proxy-watch-stalled" && check.Lookup(u.ID).MaySettle() {
			a.Judged = false
		}
	}
	for _, f := range r.Findings {
		if f.Object.Kind == "Service" && check.Lookup(f.ID).MaySettle() {
			a.Differ = append(a.Differ, f)
		}
	}
	return a
}

// digests makes them from the plan, for the Services that were asked for.
func (m *model) digests(o *AuditOptions) map[string]string {
	out := make(map[string]string)
	for i := 0; i < len(m.plan.Ports); {
		first := m.plan.Ports[i]
		sum := sha256.New()
		for ; i < len(m.plan.Ports) && m.plan.Ports[i].Namespace == first.Namespace && m.plan.Ports[i].Name == first.Name; i++ {
			askedOf(sum, m.plan.Ports[i])
		}
		if o.selects(m, first.Namespace, first.Name) {
			out[first.Namespace+"/"+first.Name] = string(sum.Sum(nil))
		}
	}
	return out
}

// askedOf adds what decides about the rules of one service port. Health check ports are answered by the proxy itself and
// need none.
func askedOf(sum hash.Hash, sp *intent.ServicePort) {
	fmt.Fprintf(sum, "%s/%d/%s/%d %v %v %d %v %d\n", sp.PortName, sp.Family, sp.Protocol, sp.Port,
		sp.InternalLocal, sp.ExternalLocal, sp.AffinitySeconds, sp.SourceRanges, sp.NodePort)
	for _, f := range sp.Frontends {
		if f.Kind != intent.HealthCheck {
			fmt.Fprintf(sum, "%s %s %d\n", f.Kind, f.Addr, f.Port)
		}
	}
	for _, list := range [][]int{sp.Cluster, sp.Local} {
		for _, i := range list {
			e := &sp.Endpoints[i]
			fmt.Fprintf(sum, "%s ", netip.AddrPortFrom(e.Addr, uint16(e.Port)))
		}
		fmt.Fprintln(sum)
	}
	// Refusing and dropping differ by whether anybody could serve elsewhere.
	fmt.Fprintln(sum, len(sp.Usable) > 0)
}
