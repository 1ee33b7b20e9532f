package check

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// wrongTranslationID is known to what follows from it.
const wrongTranslationID = "wrong-translation"

// wrongTranslation: a chain of the proxy's translates to what the Service does not mean and never meant: the chain is
// named for one endpoint and leads to another, or it is another Service's. In userspace mode a socket may be.
var wrongTranslation = Check{
	ID: wrongTranslationID, Severity: Error, Rests: onGrid,
	Title: "service rules that translate to an address or port that the Service does not mean",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != "userspace" {
			return nil
		}
		return n.crossedPortals()
	},
	Port: func(p *Port) []report.Finding {
		strays := p.strays(ownWrong)
		out := p.wrongPorts(strays)
		for _, e := range strays {
			if byHNS(e.first) {
				continue
			}
			f := report.Finding{
				Object:   report.Object{Endpoint: e.address},
				Subject:  e.first.TranslatedBy,
				Message:  fmt.Sprintf("%s of new connections to %s are translated to %s, by chain %s, which does not stand for that address", percent(e.share), p.Key(), e.address, e.first.TranslatedBy),
				Want:     "an endpoint of the Service",
				Got:      e.address + " at " + strings.Join(e.seen, ", "),
				Evidence: append(rules(e.first), p.objectEvidence()),
				Causes:   []string{"something other than kube-proxy changed its rules", "a restore of saved rules brought back chains of another moment"},
				Remedy:   restartProxy,
			}
			if ap, ok := p.standsFor(e.first.TranslatedBy); ok {
				f.Want = ap.String() + ", for which the chain is named"
			}
			out = append(out, e.provided(f))
		}
		return out
	},
}
