package check

import (
	"fmt"
	"path"
	"slices"

	"github.com/svcnet/svcnet/explain/report"
)

// nothingListens: a packet reaches the pod, and inside of it nobody takes connections on the port. It is told only of
// pods whose own network namespace was read. In userspace mode the same may be true of the socket that kube-proxy itself
// ought to have for a Service.
var nothingListens = Check{
	ID: "nothing-listens", Rests: onGrid, Severity: Error,
	Title: "backends where no process listens",
	Port: func(p *Port) []report.Finding {
		if p.On.Proxy.Mode == "userspace" {
			return p.deafSockets()
		}
		var out []report.Finding
		var seen []string
		for _, paths := range p.Cells {
			for i := range paths {
				for j := range paths[i].Backends {
					b := &paths[i].Backends[j]
					if b.Inside == nil || b.Inside.Result != report.ResultNoMatch || slices.Contains(seen, joinAddr(b)) {
						continue
					}
					seen = append(seen, joinAddr(b))
					out = append(out, p.deaf(b))
				}
			}
		}
		return out
	},
}

func (p *Port) deaf(b *report.Backend) report.Finding {
	at := joinAddr(b)
	return report.Finding{
		Object: report.Object{Endpoint: at}, Subject: at,
		Message: fmt.Sprintf("%s sends connections to %s (pod %s), and inside of the pod %s", p.Key(), at, b.Inside.Pod, b.Inside.Text),
		Want:    "a process that listens on " + at, Got: "none",
		Evidence: append(rules(b), p.objectEvidence()),
		Causes: []string{
			"the process listens on another port than the Service's targetPort",
			"it listens on 127.0.0.1 only, which nobody outside of the pod reaches",
			"it has not started yet or has stopped, and the pod has no readiness probe that says so",
		},
		Remedy: fmt.Sprintf("see who listens: kubectl -n %s exec %s -- ss -lntu; correct the targetPort of %s, or let the process listen on all addresses (0.0.0.0 or ::)", p.Namespace, path.Base(b.Inside.Pod), p.Key()),
	}
}
