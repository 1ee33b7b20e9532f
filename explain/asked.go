package explain

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"net/netip"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// Asked says what the objects ask of the proxy of one node: a digest for each Service that it serves, by
// "namespace/name". Two readings with one digest ask for the same rules, whatever else changed in the objects: an
// endpoint that is not used, an annotation, a label. A Service that the proxy leaves out has none.
type Asked map[string]string

// AuditAsked is Audit together with what the objects asked for when it was made, for who audits again and again and
// wants to know which change of objects ought to change rules. The errors are those of Audit.
func AuditAsked(s *snapshot.Snapshot, o AuditOptions) (*report.Report, Asked, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	m := newModel(s)
	r, err := m.audit(o)
	if err != nil {
		return nil, nil, err
	}
	return r, m.digests(), nil
}

// digests makes them from the plan.
func (m *model) digests() Asked {
	out := make(Asked)
	for i := 0; i < len(m.plan.Ports); {
		first := m.plan.Ports[i]
		sum := sha256.New()
		for ; i < len(m.plan.Ports) && m.plan.Ports[i].Namespace == first.Namespace && m.plan.Ports[i].Name == first.Name; i++ {
			askedOf(sum, m.plan.Ports[i])
		}
		out[first.Namespace+"/"+first.Name] = string(sum.Sum(nil))
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
