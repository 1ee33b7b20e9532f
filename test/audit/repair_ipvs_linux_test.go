//go:build guest

package audit

import (
	"os"
	"testing"

	"github.com/svcnet/svcnet/test/lab"
)

// repairsInGuest is how many changes a sample mends: one of each kind.
const repairsInGuest = 30

// TestRepairIPVS is TestRepair on a node whose kube-proxy is in IPVS mode, in a guest. A change takes up to half a minute:
// make full makes each kind several times (SVCNET_REPAIR_MUTANTS, SVCNET_GUEST_MINUTES).
func TestRepairIPVS(t *testing.T) { runInGuest(t, "TestRepairInGuest") }

// TestRepairInGuest is what TestRepairIPVS runs.
func TestRepairInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return
	}
	w := ward{"IPVS mode", "ipvs", lab.Legacy, newIPVS}
	l := inGuest.bring(t, "g")
	defer showLogs(t, l)
	w.treat(t, l, setting(t, "SVCNET_REPAIR_MUTANTS", repairsInGuest))
}
