package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

// selectionIncomplete: the shares of a frontend sum to less than 1: some new connections fall off the end of the
// Service's chain and go on untranslated.
var selectionIncomplete = Check{
	ID: "selection-incomplete", Severity: Error, Rests: onGrid,
	Title: "frontends whose backends' shares sum to less than 1",
	Port: func(p *Port) []report.Finding {
		for _, paths := range p.Cells {
			first := &paths[0]
			if !certain(paths) || first.Intended == nil || !translates(first.Intended.Result) {
				continue
			}
			served := 0.0
			var lost *report.Path
			for i := range paths {
				switch {
				case translates(paths[i].Result):
					served += paths[i].Probability
				case paths[i].Result == report.ResultNoMatch:
					lost = &paths[i]
				}
			}
			if lost == nil || served == 0 || lost.Probability < skew {
				continue
			}
			var evidence []report.Evidence
			for i := range first.Backends {
				evidence = append(evidence, rules(&first.Backends[i])...)
			}
			return []report.Finding{{
				Subject:  frontend(first),
				Message:  fmt.Sprintf("%s of new connections to %s (%s) fall off the end of the Service's chain and go on untranslated", percent(lost.Probability), frontend(first), p.Key()),
				Want:     "the last rule of the chain takes all that is left",
				Got:      percent(served) + " reach a backend",
				Evidence: append(evidence, p.objectEvidence()),
				Causes:   []string{"the last rule of the Service's chain was removed or got a probability"},
				Remedy:   restartProxy,
			}}
		}
		return nil
	},
}
