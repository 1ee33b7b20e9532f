package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

// refusalMissing: connections that ought to be refused or dropped are not: the Service has no usable endpoint, or its
// policy or source ranges keep this client out. Where they get through to a backend, somebody gets in who should not.
var refusalMissing = Check{
	ID: "refusal-missing", Severity: Warning, Rests: onGrid,
	Title: "connections that ought to be refused and are not",
	Port: func(p *Port) []report.Finding {
		for _, paths := range p.Cells {
			first := &paths[0]
			if !certain(paths) || len(paths) != 1 || first.Intended == nil || translatedAtHome(first) {
				continue
			}
			want := first.Intended.Result
			if want != report.ResultReject && want != report.ResultDrop || first.Result == want {
				continue
			}
			f := report.Finding{
				Subject:  frontend(first),
				Want:     fmt.Sprintf("%s (%s)", want, first.Intended.Because),
				Got:      string(first.Result),
				Evidence: append(verdict(first), p.objectEvidence()),
				Causes:   []string{"kube-proxy's rule in the filter table was removed, or the jump to it", "an earlier rule accepts the packets"},
				Remedy:   restartProxy,
			}
			f.Message = fmt.Sprintf("connections of %s to %s (%s) ought to meet a %s and do not", clientWords(first), frontend(first), p.Key(), want)
			gates := []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"}
			if want == report.ResultDrop {
				gates = append(gates, "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL") // the second in IPVS mode
			}
			where, _ := vacant(p.gates("filter", gates...))
			f.Evidence = append(append(f.Evidence, where...), p.nftGates(first)...)
			switch {
			case translates(first.Result):
				if want == report.ResultDrop {
					f.Severity = Error
				}
				f.Message += ": they reach a backend"
				for i := range first.Backends {
					if first.Backends[i].State == "stale" || first.Backends[i].State == "not-ready" {
						return nil // said of that endpoint
					}
				}
			case first.Result == report.ResultDrop || first.Result == report.ResultReject:
				if !refusesByService(first) {
					continue // stopped somewhere else: nobody gets through
				}
				f.Message += fmt.Sprintf(" but a %s", first.Result)
			case first.Result == report.ResultNoMatch, first.Result == report.ResultNoRoute:
				text, at := p.offDevice(first)
				switch {
				case text != "":
					f.Message += ": " + text
					f.Evidence = append(f.Evidence, at)
					f.Causes = []string{"the address was taken off " + KubeIPVS0}
				case first.Result == report.ResultNoRoute:
					continue // nobody gets through
				default:
					f.Message += ": they leave untranslated and wait for a timeout"
				}
			default:
				continue
			}
			return []report.Finding{f}
		}
		return nil
	},
}
