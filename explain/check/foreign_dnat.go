package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// foreignDNAT: another program's rule translates packets to a Service before the service rules see them: the first
// translation of a connection is the only one. Host ports have a check of their own.
var foreignDNAT = Check{
	ID: "foreign-dnat-before-kube-services", Severity: Error, Rests: onGrid,
	Title: "packets to Services that another program's rule translates first",
	Port: func(p *Port) []report.Finding {
		var out []report.Finding
		for _, e := range p.strays(foreign) {
			if isHostPort(e.first.TranslatedBy) {
				continue
			}
			out = append(out, e.provided(report.Finding{
				Object:   report.Object{Endpoint: e.address},
				Subject:  e.first.TranslatedBy,
				Message:  fmt.Sprintf("%s of new connections to %s go to %s: a rule of chain %s, which is not kube-proxy's, translates them first", percent(e.share), p.Key(), e.address, e.first.TranslatedBy),
				Want:     "kube-proxy's rules choose the backend",
				Got:      e.address + " at " + strings.Join(e.seen, ", "),
				Evidence: append(rules(e.first), p.objectEvidence()),
				Causes:   []string{"a port forwarding or redirection of another program that does not leave service addresses and node ports out"},
				Remedy:   "limit the other program's rule to what is its own, or move it behind the jump to KUBE-SERVICES",
			}))
		}
		for _, paths := range p.Cells {
			first := &paths[0]
			if first.Intended == nil || !translates(first.Intended.Result) || !certain(paths) || len(paths) != 1 {
				continue
			}
			if first.Result != report.ResultRedirect && first.Result != report.ResultTProxy {
				continue
			}
			return append(out, report.Finding{
				Subject:  first.Chain,
				Message:  fmt.Sprintf("%s (%s) is redirected to a process on this node by chain %s before kube-proxy's rules", frontend(first), p.Key(), first.Chain),
				Want:     "kube-proxy's rules choose the backend",
				Got:      string(first.Result),
				Evidence: append(verdict(first), p.objectEvidence()),
				Remedy:   "find out which program redirects service traffic; a service mesh on the node may mean it",
			})
		}
		return out
	},
}

// isHostPort tells the chains that implement host ports: those of the portmap plugin, and dockershim's.
func isHostPort(chain string) bool {
	for _, prefix := range []string{"CNI-DN-", "CNI-HOSTPORT-", "KUBE-HOSTPORTS", "KUBE-HP-"} {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}
