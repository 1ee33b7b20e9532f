package main

import (
	"github.com/svcnet/svcnet/explain/report"
)

// document is one kind of document with its schema.
type document struct {
	kind string
	// file is the schema's path from the root of the repository.
	file string
	// value is of the document's type.
	value any
}

// documents lists every kind of document that svcnet prints.
func documents() []document {
	return []document{
		{"Diff", "docs/schema/diff.schema.json", report.Diff{}},
		{"NodeEvent", "docs/schema/nodeevent.schema.json", report.NodeEvent{}},
		{"NodeServices", "docs/schema/nodeservices.schema.json", report.NodeServices{}},
		{"NodeStatus", "docs/schema/nodestatus.schema.json", report.NodeStatus{}},
		{"NodeStatusList", "docs/schema/nodestatuslist.schema.json", report.NodeStatusList{}},
		{"RepairPlan", "docs/schema/repairplan.schema.json", report.RepairPlan{}},
		{"RepairRun", "docs/schema/repairrun.schema.json", report.RepairRun{}},
		{"RepairRunList", "docs/schema/repairrunlist.schema.json", report.RepairRuns{}},
		{"Report", "docs/schema/report.schema.json", report.Report{}},
		{"ReportList", "docs/schema/reportlist.schema.json", report.Reports{}},
		{"Trace", "docs/schema/trace.schema.json", report.Trace{}},
		{"TraceList", "docs/schema/tracelist.schema.json", report.TraceList{}},
	}
}
