package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// words are the values that string properties are confined to, by "Type.property" of the schema. Results that
// are not listed here are those of the constants of report.Result: see resultWords.
func words() map[string][]any {
	sourceClasses := []any{
		string(intent.LocalPod), string(intent.RemotePod), string(intent.Node), string(intent.RemoteNode),
		string(intent.External), string(intent.Hairpin), string(intent.Localhost),
	}
	return map[string][]any{
		"Trace.apiVersion":        {report.APIVersion},
		"Trace.kind":              {"Trace"},
		"Report.apiVersion":       {report.APIVersion},
		"Report.kind":             {"Report"},
		"Report.verdict":          {string(report.VerdictPass), string(report.VerdictFail), string(report.VerdictUnknown)},
		"NodeServices.apiVersion": {report.APIVersion},
		"NodeServices.kind":       {"NodeServices"},
		"ServicePort.state": {
			string(report.ServicePortOK), string(report.ServicePortDiffers), string(report.ServicePortUnknown), string(report.ServicePortSkipped),
		},
		"ServicePort.severity":  {"critical", "error", "warning", "info", ""},
		"ServicePort.type":      {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName", ""},
		"ServicePort.protocol":  {"TCP", "UDP", "SCTP", ""},
		"ServicePort.family":    {"IPv4", "IPv6", ""},
		"NodeStatus.apiVersion": {report.APIVersion},
		"NodeStatus.kind":       {"NodeStatus"},
		"NodeStatus.verdict": {
			string(report.StatusHealthyProgrammed), string(report.StatusHealthyNotProgrammed), string(report.StatusHealthy),
			string(report.StatusProgrammed), string(report.StatusNotProgrammed), string(report.StatusNotHealthy),
			string(report.StatusNotRunning), string(report.StatusUnknown),
		},
		"TraceList.apiVersion":      {report.APIVersion},
		"TraceList.kind":            {"TraceList"},
		"NodeStatusList.apiVersion": {report.APIVersion},
		"NodeStatusList.kind":       {"NodeStatusList"},
		"Reports.apiVersion":        {report.APIVersion},
		"Reports.kind":              {"ReportList"},
		"Reports.verdict":           {string(report.VerdictPass), string(report.VerdictFail), string(report.VerdictUnknown)},
		"Diff.apiVersion":           {report.APIVersion},
		"Diff.kind":                 {"Diff"},
		"DiffSide.verdict":          {string(report.VerdictPass), string(report.VerdictFail), string(report.VerdictUnknown)},
		"ServiceDiff.change":        {"added", "removed", "changed"},
		"RepairPlan.apiVersion":     {report.APIVersion},
		"RepairPlan.kind":           {"RepairPlan"},
		"RepairStep.kind":           {"iptables", "nftables", "ipset", "ipvs", "address", "conntrack", "sysctl", "route", "advice"},
		"RepairStep.owner":          {"kube-proxy", "foreign", "node"},
		"RepairStep.consent":        {"", "--allow foreign"},
		"RepairRun.apiVersion":      {report.APIVersion},
		"RepairRun.kind":            {"RepairRun"},
		"RepairRun.state": {
			string(report.RepairApplied), string(report.RepairRolledBack), string(report.RepairInterrupted), string(report.RepairNotApplied),
		},
		"RepairRunStep.kind":    {"iptables", "nftables", "ipset", "ipvs", "address", "conntrack", "sysctl", "route", "advice"},
		"RepairRunStep.state":   {"done", "undone", "not-done", "begun", "kept"},
		"RepairRuns.apiVersion": {report.APIVersion},
		"RepairRuns.kind":       {"RepairRunList"},
		"Proxy.backend":         {"legacy", "nft", ""},
		// Empty: a single packet whose class is not known.
		"Path.sourceClass": append(sourceClasses, ""),
		"Path.origin":      {"pod", "node", "external"},
		"Frontend.kind": {
			string(intent.ClusterIP), string(intent.ExternalIP), string(intent.LoadBalancer), string(intent.NodePort),
			string(intent.HealthCheck), "Address",
		},
		"Frontend.protocol": {"TCP", "UDP", "SCTP"},
		"Backend.state":     {"ok", "missing", "stale", "not-ready", "excluded", "unknown"},
		"Reply.result":      {"delivered", "untranslated", "bypasses", "drop", "reject", "no-route", "martian", "unknown"},
		"Hop.kind":          {"rule", "policy", "route", "set", "virtual-server", "map", "conntrack"},
		"Finding.severity":  {"critical", "error", "warning", "info"},
		"Source.status": {
			string(snapshot.OK), string(snapshot.Empty), string(snapshot.Absent), string(snapshot.NotCollected),
			string(snapshot.Unsupported), string(snapshot.Denied), string(snapshot.Failed), string(snapshot.Truncated),
		},
	}
}

// resultWords reads the constants of type Result from the source of package report, in their order: the
// contract's list of outcomes is written down once.
func resultWords(root string) ([]any, error) {
	file := filepath.Join(root, "explain", "report", "report.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read the results of the contract: %w", err)
	}
	var out []any
	for _, decl := range parsed.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Result" {
				continue
			}
			for _, value := range v.Values {
				lit, ok := value.(*ast.BasicLit)
				if !ok {
					return nil, fmt.Errorf("read the results of the contract: %s holds a Result that is no literal", file)
				}
				word, err := strconv.Unquote(lit.Value)
				if err != nil {
					return nil, fmt.Errorf("read the results of the contract: %w", err)
				}
				out = append(out, word)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read the results of the contract: %s has no constant of type Result", file)
	}
	return out, nil
}
