package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// TestStatusWithoutServers takes the virtual servers away from nodes in IPVS mode. Where the audit cannot tell what is
// programmed, status does not say that Services are.
func TestStatusWithoutServers(t *testing.T) {
	names, all := cases(t)
	met := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := load(t, all[name].Node, filepath.Join(casesDir, name))
			s.Evidence = slices.DeleteFunc(s.Evidence, func(e snapshot.Evidence) bool {
				return e.Format == snapshot.IPVSSave || e.Format == snapshot.IPVSList
			})
			elsewhere := slices.ContainsFunc(audit(t, s).Unknown, func(u report.Unknown) bool {
				return u.ID == "missing-service-rule" && strings.Contains(u.Text, "virtual servers were not read")
			})
			ports := explain.Status(s).Ports
			if !elsewhere || ports.Total == 0 {
				return
			}
			met++
			if ports.Unknown != ports.Total {
				t.Errorf("%+v, and the audit cannot tell", ports)
			}
		})
	}
	if met < 8 {
		t.Errorf("%d nodes lost their virtual servers: cases are missing", met)
	}
}
