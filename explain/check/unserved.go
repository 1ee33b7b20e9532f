package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// missingServiceRule: a frontend with usable endpoints is not programmed: packets pass untranslated. Where no Service
// is programmed at all it is one finding, not one for each.
var missingServiceRule = Check{
	ID: "missing-service-rule", Severity: Error, Rests: onGrid,
	Title: "service ports with ready endpoints that are not programmed",
	Port: func(p *Port) []report.Finding {
		return unserved(p, "is not programmed on this node: packets pass untranslated", report.ResultNoMatch)
	},
	Fold: func(n *Node, found []portFinding) []report.Finding {
		// By family: ip6tables is a program and a restore of its own.
		var out []report.Finding
		for _, family := range []int{4, 6} {
			served := 0
			for i := range n.Ports {
				if p := &n.Ports[i]; p.Family == family && len(p.Usable) > 0 {
					served++
				}
			}
			var of []report.Finding
			for _, f := range found {
				if f.port.Family == family {
					of = append(of, f.Finding)
				}
			}
			if len(of) < 2 || len(of) < served {
				out = append(out, of...)
				continue
			}
			f := of[0]
			f.Severity = Critical
			f.Object = report.Object{}
			f.Message = fmt.Sprintf("none of %d service ports with ready endpoints is programmed on this node for IPv%d: packets to all Services pass untranslated", len(of), family)
			f.Want = "rules for every Service"
			f.Got = "none: packets pass untranslated"
			out = append(out, f)
		}
		return out
	},
}

// rejectRuleWithReadyEndpoints: a rule of kube-proxy's refuses or drops a frontend that has usable endpoints.
// What another program's rule drops is somebody else's finding.
var rejectRuleWithReadyEndpoints = Check{
	ID: "reject-rule-with-ready-endpoints", Severity: Error, Rests: onGrid,
	Title: "frontends that are refused although they have usable endpoints",
	Port: func(p *Port) []report.Finding {
		return unserved(p, "is refused by a service rule although it has usable endpoints", report.ResultReject, report.ResultDrop)
	},
}

// untracked tells whether a rule takes the packet out of connection tracking: the nat table never sees it, whatever is
// in there.
func untracked(p *report.Path) bool {
	for i := range p.Hops {
		if takesOut(&p.Hops[i]) {
			return true
		}
	}
	return false
}

// takesOut tells whether a step takes the packet out of connection tracking.
func takesOut(h *report.Hop) bool {
	if nativeTable(h.Table) {
		rule, _, _ := strings.Cut(h.Text, ` comment "`)
		return slices.Contains(strings.Fields(rule), "notrack")
	}
	return h.Table == "raw" && (strings.Contains(h.Text, "-j NOTRACK") || strings.Contains(h.Text, "--notrack"))
}

// untranslated is the path of a cell to look at: the only one, or where chance decides among several the one on which
// connections do not get to a backend. Where it is the share of one endpoint missing-endpoint-rule names that; nil then.
func untranslated(paths []report.Path) *report.Path {
	if len(paths) == 1 {
		return &paths[0]
	}
	var out *report.Path
	for i := range paths {
		if slices.ContainsFunc(paths[i].Backends, func(b report.Backend) bool { return b.State == "missing" }) {
			return nil
		}
		if out == nil && !translates(paths[i].Result) && paths[i].Probability > skew {
			out = &paths[i]
		}
	}
	return out
}

// unserved finds the first cell in which all connections should be translated and some end in one of the results.
func unserved(p *Port, what string, results ...report.Result) []report.Finding {
	for _, paths := range p.Cells {
		first := untranslated(paths)
		if first == nil || !certain(paths) || first.Intended == nil || !serves(first.Intended.Result) || len(first.Intended.Backends) == 0 || untracked(first) {
			continue
		}
		if !slices.Contains(results, outcome(first)) || outcome(first) != report.ResultNoMatch && !refusesByService(first) {
			continue
		}
		if refusedByServer(first) {
			what = "is refused by its virtual server although it has usable endpoints"
		}
		message, evidence := fmt.Sprintf("%s (%s) %s", frontend(first), p.Key(), what), verdict(first)
		if len(paths) > 1 {
			return []report.Finding{p.partly(paths, first)}
		}
		if outcome(first) == report.ResultNoMatch {
			var where []report.Evidence
			message, where = p.unprogrammed(first, message)
			evidence = append(evidence, where...)
		} else {
			// Where they would have been translated.
			evidence = append(evidence, nftPlaces(p.nftWay(first))...)
			if e, ok := p.entrance(first); ok {
				text, shown := e.leadsTo()
				message += ": " + text
				evidence = append(evidence, shown...)
			}
		}
		return []report.Finding{{
			Subject:  frontend(first),
			Message:  message,
			Want:     fmt.Sprintf("one of %d endpoints", len(first.Intended.Backends)),
			Got:      cmp.Or(first.Because, string(first.Result)),
			Evidence: append(evidence, p.objectEvidence()),
			Causes:   []string{"kube-proxy on this node has not synced since the Service or its endpoints appeared", p.On.flushed()},
			Remedy:   restartProxy,
		}}
	}
	return nil
}

// partly is the finding of a frontend that serves a part of its connections only.
func (p *Port) partly(paths []report.Path, path *report.Path) report.Finding {
	became := "refused by a service rule"
	if outcome(path) == report.ResultNoMatch {
		became = "not translated"
	}
	f := report.Finding{
		Subject: frontend(path),
		Message: fmt.Sprintf("%s of new connections to %s (%s) are %s, and the others reach a backend", percent(path.Probability), frontend(path), p.Key(), became),
		Want:    fmt.Sprintf("one of %d endpoints", len(path.Intended.Backends)),
		Got:     cmp.Or(path.Because, string(path.Result)),
		Causes:  []string{"a rule of the Service's chain was changed or removed by something other than kube-proxy"},
		Remedy:  restartProxy,
	}
	for i := range paths {
		if len(paths[i].Backends) > 0 {
			f.Evidence = append(f.Evidence, rules(&paths[i].Backends[0])...)
			break
		}
	}
	f.Evidence = append(append(f.Evidence, nftPlaces(p.nftWay(path))...), p.objectEvidence())
	return f
}

// outcome is the result of a path. In nftables mode kube-proxy refuses what is sent to a cluster IP and was not
// translated, whichever Service it may be for: nothing serves it.
func outcome(p *report.Path) report.Result {
	if tableOfProxy(p.Table) && p.Chain == "cluster-ips-check" {
		return report.ResultNoMatch
	}
	return p.Result
}

// unprogrammed says where packets to a frontend ought to be translated: by a rule that leads nowhere, or in a chain that
// has none for it.
func (p *Port) unprogrammed(path *report.Path, message string) (string, []report.Evidence) {
	if e, ok := p.entrance(path); ok {
		text, shown := e.leadsTo()
		return fmt.Sprintf("packets to %s (%s) pass untranslated: %s", frontend(path), p.Key(), text), shown
	}
	if p.On.Proxy.Mode == kernelspace {
		return message + " (HNS has no load balancer for it)", nil
	}
	if p.On.Proxy.Mode == "nftables" {
		return p.nftUnprogrammed(path, message)
	}
	if text, at := p.offDevice(path); text != "" {
		return fmt.Sprintf("packets to %s (%s) pass untranslated: %s", frontend(path), p.Key(), text), []report.Evidence{at}
	}
	shared := "KUBE-SERVICES"
	switch {
	case p.On.Proxy.Mode == "userspace":
		shared = dataplane.PortalChain(intent.FrontendKind(path.Frontend.Kind), path.Origin == "node")
	case path.Frontend.Kind == string(intent.NodePort):
		shared = "KUBE-NODEPORTS"
	}
	where, empty := vacant(p.gates("nat", shared))
	if empty != "" {
		message += fmt.Sprintf(" (%s is empty)", empty)
	}
	return message, where
}

// flushed says how all that kube-proxy has programmed may be gone.
func (n *Node) flushed() string {
	if n.Proxy.Mode == kernelspace {
		return "HNS was restarted or its network made anew, and lost its load balancers"
	}
	return "kube-proxy's rules were flushed (a firewall reload, a network plugin's restart)"
}
