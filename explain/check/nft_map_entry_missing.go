package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// nftMapEntryMissing: an entry of kube-proxy's shared sets and maps is not there, or leads elsewhere.
var nftMapEntryMissing = Check{
	ID: "nft-map-entry-missing", Rests: onRules | onObjects, Severity: Error,
	Title: "entries that kube-proxy's nftables maps and sets lack",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, d := range n.nftDifferences() {
			if d.want == nil {
				continue
			}
			sp := d.want.Port
			place := fmt.Sprintf("%s %s of table %s", d.kind(), d.name, d.table)
			entry := d.text(&d.want.Entry)
			f := report.Finding{
				Object:   report.Object{Kind: "Service", Namespace: sp.Namespace, Name: sp.Name, Port: sp.PortName, Protocol: sp.Protocol},
				Subject:  fmt.Sprintf("%s: %s", d.name, entry),
				Message:  fmt.Sprintf("%s lacks the entry %s, for %s", place, entry, sp.Key()),
				Want:     entry,
				Got:      "no such entry",
				Evidence: []report.Evidence{d.evidence(), {Source: "objects", File: sp.Evidence.File, Line: sp.Evidence.Line, Text: sp.Evidence.Text}},
				Causes:   []string{proxyStopped, "something other than kube-proxy changed its table: kube-proxy compares maps with what it remembers, and reads them anew only in a full sync"},
				Remedy:   restartProxy,
			}
			if d.name == dataplane.NFTNodePortIPs { // of the node, whichever Service asks first
				f.Object = report.Object{}
				f.Message = fmt.Sprintf("%s lacks the entry %s: node ports are not served at this address of the node", place, entry)
			}
			switch {
			case d.set == nil:
				f.Message = fmt.Sprintf("%s is not there, and with it no entry %s, for %s", place, entry, sp.Key())
				f.Got = "no such " + d.kind()
			case d.have != nil:
				f.Got = d.text(d.have)
				f.Message = fmt.Sprintf("%s has %s, where %s asks for %s", place, f.Got, sp.Key(), entry)
			}
			out = append(out, f)
		}
		return out
	},
	Explains: []string{"missing-service-rule", "refusal-missing", "reject-rule-with-ready-endpoints", "wrong-translation"},
}
