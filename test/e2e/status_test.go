package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// TestStatusOfOtherModes holds status beside the audit of the same files: where the audit cannot tell what is programmed
// because something else than rules of iptables serves Services, status does not say that they are programmed.
func TestStatusOfOtherModes(t *testing.T) {
	const dir = "testdata/othermodes"
	dirs, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	met := 0
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			s := load(t, "", filepath.Join(dir, d.Name()))
			elsewhere := slices.ContainsFunc(audit(t, s).Unknown, func(u report.Unknown) bool {
				return u.ID == "missing-service-rule" && strings.Contains(u.Text, "does not evaluate")
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
	if met < 4 {
		t.Errorf("%d nodes are served by something else than rules of iptables: cases are missing", met)
	}
}
