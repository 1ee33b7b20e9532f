package check

import (
	"fmt"
	"math"

	"github.com/svcnet/svcnet/explain/report"
)

// skew is the difference in share from which a backend counts as skewed. kube-proxy up to 1.16 writes
// probabilities with five decimals, which moves a share by up to 2e-5; that is rounding, never a finding.
const skew = 1e-3

// probabilitySkewed: the right backends, but not in the intended shares.
var probabilitySkewed = Check{ID: "probability-skewed", Severity: Warning, Rests: onGrid, Title: "backends whose share is not the intended one", Port: func(p *Port) []report.Finding {
	for _, paths := range p.Cells {
		if !certain(paths) || len(paths) != 1 || paths[0].Result != report.ResultDNAT {
			continue
		}
		worst := -1
		for i, b := range paths[0].Backends {
			if b.State != "ok" || b.Intended == nil {
				worst = -1
				break
			}
			if d := math.Abs(b.Probability - *b.Intended); d > skew && (worst < 0 || d > math.Abs(paths[0].Backends[worst].Probability-*paths[0].Backends[worst].Intended)) {
				worst = i
			}
		}
		if worst < 0 {
			continue
		}
		b := &paths[0].Backends[worst]
		return []report.Finding{{
			Object:   report.Object{Endpoint: joinAddr(b)},
			Subject:  joinAddr(b),
			Message:  fmt.Sprintf("%s gets %s of new connections to %s instead of %s", joinAddr(b), percent(b.Probability), frontend(&paths[0]), percent(*b.Intended)),
			Want:     percent(*b.Intended),
			Got:      percent(b.Probability),
			Evidence: rules(b),
			Causes:   []string{"a rule of the Service's chain was changed or removed by something other than kube-proxy"},
			Remedy:   "restart kube-proxy on this node, then find out who changes its chains",
		}}
	}
	return nil
}}
