package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// nftMapEntryStale: an entry of kube-proxy's shared sets and maps that no Service asks for.
var nftMapEntryStale = Check{
	ID: "nft-map-entry-stale", Rests: onRules | onObjects, Severity: Warning,
	Title: "entries of kube-proxy's nftables maps and sets that no Service asks for",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, d := range n.nftDifferences() {
			if d.want != nil {
				continue
			}
			// Every cluster has this Service: without it the others that are given are not all there are.
			if _, whole := n.Objects.Service("default", "kubernetes"); !whole {
				n.lacks(Services)
				return nil
			}
			entry := d.text(d.have)
			f := report.Finding{
				Subject: fmt.Sprintf("%s: %s", d.name, entry),
				Message: fmt.Sprintf("%s %s of table %s has the entry %s, which no Service asks for", d.kind(), d.name, d.table, entry),
				Want:    "no such entry", Got: entry,
				Evidence: []report.Evidence{d.evidence()},
				Causes:   []string{proxyStopped, "the Service, its address or its endpoint is gone, and kube-proxy has not synced since"},
				Remedy:   restartProxy,
			}
			if d.name == dataplane.NFTNodePortIPs {
				f.Message = fmt.Sprintf("set %s of table %s has the entry %s: node ports are served at an address that is not the node's primary one", d.name, d.table, entry)
			}
			if sp := d.of(n); sp != nil {
				f.Object = report.Object{Kind: "Service", Namespace: sp.Namespace, Name: sp.Name, Port: sp.PortName, Protocol: sp.Protocol}
				f.Evidence = append(f.Evidence, report.Evidence{Source: "objects", File: sp.Evidence.File, Line: sp.Evidence.Line, Text: sp.Evidence.Text})
			} else if key := d.named(); key != "" {
				f.Object = servicePortNamed(key)
				f.Message = fmt.Sprintf("%s %s of table %s still has the entry %s, and no Service port %s asks for it", d.kind(), d.name, d.table, entry, key)
			}
			out = append(out, f)
		}
		return out
	},
}
