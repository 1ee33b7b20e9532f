package cmd

import (
	"slices"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// failNever makes findings of any severity a success.
const failNever = "never"

// failLevels are the values of --fail-on, worst first.
var failLevels = []string{"critical", "error", "warning", "info", failNever}

// verdict is the exit code of a printed document, as an error; nil for success. Findings come before missing
// sources: what is found is certain. A document without paths (a headless Service) needs no rules.
func verdict(t *report.Trace, failOn string) error {
	limit := slices.Index(failLevels, failOn)
	for i := range t.Findings {
		if at := slices.Index(failLevels, t.Findings[i].Severity); failOn != failNever && at >= 0 && at <= limit {
			return &exitError{exitFindings}
		}
	}
	if len(t.Paths) > 0 && len(explain.MissingSources(t.Sources)) > 0 {
		return &exitError{exitMissing}
	}
	return nil
}
