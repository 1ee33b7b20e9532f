package check

import (
	"cmp"
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxyWatchStalled: kube-proxy runs and does not act on changes: its watch of the API has died, or its syncs hang.
// Its health check does not notice the first.
var proxyWatchStalled = Check{
	ID: "proxy-watch-stalled", Rests: onGrid, Severity: Warning,
	Title:    "proxies that do not act on changes of the API any more",
	Explains: unsynced,
	Node: func(n *Node) []report.Finding {
		for _, look := range []func() (report.Finding, bool){n.stalledByLog, n.stalledBySync, n.stalledByHealth} {
			f, ok := look()
			if !ok {
				continue
			}
			f.Subject = "kube-proxy's watch"
			f.Remedy = "check that this node reaches the API server, then " + n.restart()
			return []report.Finding{f}
		}
		n.silentProxy()
		return nil
	},
}

// stalledByLog: the last that the log says of a watch is that it failed. kube-proxy does not say when a watch works
// again, so that the rules have to show it too, unless the errors go on and are none of the network.
func (n *Node) stalledByLog() (report.Finding, bool) {
	t := n.watchTrouble()
	if len(t.events) == 0 {
		return report.Finding{}, false
	}
	if _, ok := n.unreachable(); ok {
		return report.Finding{}, false
	}
	lags := n.behind()
	if lags == nil && !(t.lasts() && t.current(n) && t.end().Server == "") {
		return report.Finding{}, false
	}
	last := t.end()
	f := report.Finding{
		Message: fmt.Sprintf("the last that kube-proxy's log says of its watches is that they failed (%s: %s)", t.when(), cmp.Or(last.Reason, "no reason is given")),
		Want:    "watches of Services and EndpointSlices that deliver changes",
		Got:     "watch errors, the last one " + lasting(max(n.Captured.Sub(t.last), 0)) + " before the capture",
		Causes: []string{
			"a connection that died unnoticed during an outage of the API server (client-go before 1.20 had no heartbeat: kubernetes#76338)",
			"the API server refuses kube-proxy (expired credentials), or answers with errors",
		},
		Evidence: t.evidence(),
	}
	if lags != nil {
		f.Message += fmt.Sprintf(", and the rules of %s are not what the API asks for", lags.Key())
		f.Evidence = append(f.Evidence, lags.objectEvidence())
	}
	return f, true
}

// stalledBySync: rules differ from objects that changed after the last complete sync, and long enough ago.
func (n *Node) stalledBySync() (report.Finding, bool) {
	for i := range n.Ports {
		p := &n.Ports[i]
		changed := n.changed(p.Namespace, p.Name)
		if changed.IsZero() || !p.behind() {
			continue
		}
		for j := range n.Proxy.Health.Syncs {
			s := &n.Proxy.Health.Syncs[j]
			if s.Last.IsZero() || s.Family != "" && s.Family != fmt.Sprintf("IPv%d", p.Family) {
				continue
			}
			if at := n.asked(); changed.Sub(s.Last) < n.patience() || at.Sub(changed) < n.patience() || s.Waiting(at) > 0 {
				continue
			}
			return report.Finding{
				Message: fmt.Sprintf("%s changed at %s, and kube-proxy's last sync%s ended before that, at %s: it has not heard of the change, or hangs",
					p.Key(), clock(changed), familySuffix(s.Family), clock(s.Last)),
				Want:     "a sync within seconds of the change",
				Got:      fmt.Sprintf("none for %s", lasting(n.asked().Sub(changed))),
				Evidence: []report.Evidence{factEvidence(s.Evidence), p.objectEvidence()},
				Causes:   []string{"kube-proxy's watch of the API died unnoticed", "kube-proxy is stopped or starved of CPU"},
			}, true
		}
	}
	return report.Finding{}, false
}

// stalledByHealth: /healthz says that a change waits, and neither refused nor slow syncs say why.
func (n *Node) stalledByHealth() (report.Finding, bool) {
	h := &n.Proxy.Health
	if h.Word != traits.Unhealthy {
		return report.Finding{}, false
	}
	if _, failed := n.refusedSync(); failed {
		return report.Finding{}, false
	}
	if _, failed := n.countedFailures(); failed || len(n.lockTrouble().events) > 0 {
		return report.Finding{}, false
	}
	f := report.Finding{
		Message:  "kube-proxy's /healthz says that it is not healthy: it has never completed a sync",
		Want:     "healthy",
		Got:      "unhealthy: no sync so far",
		Evidence: []report.Evidence{factEvidence(h.Evidence)},
		Causes:   []string{"kube-proxy waits for Services and EndpointSlices that the API server does not deliver", "a sync hangs, or takes very long", "kube-proxy has just started"},
	}
	for i := range h.Syncs {
		if s := &h.Syncs[i]; !s.Last.IsZero() {
			f.Message = fmt.Sprintf("kube-proxy's /healthz says that it is not healthy: a change waits, and the last sync%s ended at %s", familySuffix(s.Family), clock(s.Last))
			f.Got = fmt.Sprintf("unhealthy: no sync for %s", lasting(max(n.asked().Sub(s.Last), 0)))
			break
		}
	}
	return f, true
}
