package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

// missingServiceRule: a frontend with usable endpoints is not programmed: packets pass untranslated.
var missingServiceRule = Check{ID: "missing-service-rule", Severity: Error, Run: func(p Port) []report.Finding {
	return unserved(p, "is not programmed on this node: packets pass untranslated", report.ResultNoMatch)
}}

// rejectRuleWithReadyEndpoints: a rule of kube-proxy's refuses or drops a frontend that has usable endpoints.
// What another program's rule drops is somebody else's finding.
var rejectRuleWithReadyEndpoints = Check{ID: "reject-rule-with-ready-endpoints", Severity: Error, Run: func(p Port) []report.Finding {
	return unserved(p, "is refused by a service rule although it has usable endpoints", report.ResultReject, report.ResultDrop)
}}

// refusals are the chains in which kube-proxy refuses frontends without usable endpoints.
var refusals = map[string]bool{"KUBE-SERVICES": true, "KUBE-EXTERNAL-SERVICES": true}

// unserved finds the first cell in which all connections should be translated and end in one of the results.
func unserved(p Port, what string, results ...report.Result) []report.Finding {
	for _, paths := range p.Cells {
		first := &paths[0]
		if !certain(paths) || len(paths) != 1 || first.Intended == nil || first.Intended.Result != report.ResultDNAT {
			continue
		}
		for _, r := range results {
			if first.Result != r || (r != report.ResultNoMatch && !refusals[first.Chain]) {
				continue
			}
			return []report.Finding{{
				Subject:  frontend(first),
				Message:  fmt.Sprintf("%s (%s) %s", frontend(first), p.Key(), what),
				Want:     fmt.Sprintf("one of %d endpoints", len(first.Intended.Backends)),
				Got:      string(first.Result),
				Evidence: append(verdict(first), p.objectEvidence()),
				Causes: []string{
					"kube-proxy on this node has not synced since the Service or its endpoints appeared",
					"kube-proxy's rules were flushed (a firewall reload, a network plugin's restart)",
				},
				Remedy: restartProxy,
			}}
		}
	}
	return nil
}
