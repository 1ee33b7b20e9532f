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
	if fails(t.Findings, failOn) {
		return &exitError{exitFindings}
	}
	if len(t.Paths) > 0 && len(explain.MissingSources(t.Sources)) > 0 {
		return &exitError{exitMissing}
	}
	return nil
}

// auditVerdict is the exit code of a printed report.
func auditVerdict(r *report.Report, failOn string) error {
	if fails(r.Findings, failOn) {
		return &exitError{exitFindings}
	}
	if len(r.Unknown) > 0 {
		return &exitError{exitMissing}
	}
	return nil
}

// The exit codes of lists: that of the worst node, and a node that could not be read is a source that is missing.

func auditListVerdict(l *report.Reports, failOn string) error {
	missing := len(l.Unread) > 0
	for i := range l.Findings {
		if fails([]report.Finding{l.Findings[i].Finding}, failOn) {
			return &exitError{exitFindings}
		}
	}
	for i := range l.Items {
		missing = missing || len(l.Items[i].Unknown) > 0
	}
	return missingVerdict(missing)
}

func traceListVerdict(l *report.TraceList, failOn string) error {
	missing := len(l.Unread) > 0
	for i := range l.Items {
		if fails(l.Items[i].Findings, failOn) {
			return &exitError{exitFindings}
		}
		missing = missing || verdict(&l.Items[i], failNever) != nil
	}
	return missingVerdict(missing)
}

func statusListVerdict(l *report.NodeStatusList) error {
	missing := len(l.Unread) > 0
	for i := range l.Items {
		missing = missing || statusVerdict(&l.Items[i]) != nil
	}
	return missingVerdict(missing)
}

func missingVerdict(missing bool) error {
	if missing {
		return &exitError{exitMissing}
	}
	return nil
}

// fails tells whether a finding is at least as severe as failOn.
func fails(findings []report.Finding, failOn string) bool {
	limit := slices.Index(failLevels, failOn)
	return failOn != failNever && slices.ContainsFunc(findings, func(f report.Finding) bool {
		at := slices.Index(failLevels, f.Severity)
		return at >= 0 && at <= limit
	})
}
