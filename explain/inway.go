package explain

import (
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// AuditInTheWay is Audit for a node that svcnet's own proxy serves, or would serve: what keeps its packets from going where
// the objects ask them to go is told beside the document.
func AuditInTheWay(s *snapshot.Snapshot, o AuditOptions) (*report.Report, []*check.Obstacle, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	m := newModelOf(s, o.Memory)
	n, found := m.audited(o)
	return m.report(o, found), n.InTheWay(), nil
}
