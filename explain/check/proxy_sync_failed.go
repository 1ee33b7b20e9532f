package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxySyncFailed: the kernel refuses what kube-proxy writes. A restore is one piece: one bad line keeps out all others.
var proxySyncFailed = Check{
	ID: "proxy-sync-failed", Rests: onObjects, Severity: Critical,
	Title:    "proxies whose rules are refused, so that nothing changes any more",
	Explains: unsynced,
	Node: func(n *Node) []report.Finding {
		if f, ok := n.refusedSync(); ok {
			return []report.Finding{f}
		}
		if f, ok := n.countedFailures(); ok {
			return []report.Finding{f}
		}
		n.silentProxy()
		return nil
	},
}

// endsSync tells whether an event says that the sync which failed has succeeded since.
func endsSync(failed, later *traits.Event) bool {
	return later.Kind == traits.SyncDone && (later.Subject == failed.Subject || later.Subject == "" || failed.Subject == "")
}

// refusedSync is a sync that failed by the log and was not followed by one that succeeded.
func (n *Node) refusedSync() (report.Finding, bool) {
	t := n.trouble(func(e *traits.Event) bool { return e.Kind == traits.SyncFailed }, endsSync)
	if len(t.events) == 0 || !t.current(n) && !n.logsSyncs() && n.behind() == nil {
		return report.Finding{}, false
	}
	last := t.end()
	reason := cmp.Or(last.Reason, "no reason is given")
	return report.Finding{
		Subject: "kube-proxy's sync" + familySuffix(last.Subject),
		Message: fmt.Sprintf("what kube-proxy writes%s was refused %s, and nothing says that it was accepted since: no change of any Service reaches this node: %s",
			familySuffix(last.Subject), t.when(), reason),
		Want:     "every sync is accepted",
		Got:      reason,
		Evidence: t.evidence(),
		Causes:   causesOfRefusal(last.Text),
		Remedy:   "mend what the message names (all lines of a restore stand or fall together), then " + n.restart(),
	}, true
}

// logsSyncs tells whether the log is one that says when a sync succeeds.
func (n *Node) logsSyncs() bool {
	for i := range n.Proxy.Events {
		if n.Proxy.Events[i].Kind == traits.SyncDone {
			return true
		}
	}
	return false
}

// causesOf are what words of a refusal mean.
var causesOf = []struct{ words, cause string }{
	{"Couldn't load target", "a chain that the rules jump to is not in this backend of iptables: the kubelet made it in the other one, or somebody deleted it"},
	{"host/network", "an address of the wrong family, or none at all, in a Service (an externalIP, a load balancer address, a source range)"},
	{"No chain/target/match by that name", "a module of the kernel is missing (xt_comment, xt_statistic, xt_recent…), or a chain was deleted while kube-proxy ran"},
	{"No space left", "the kernel has no memory for a table of this size"},
	{"Cannot allocate memory", "the kernel has no memory for a table of this size"},
	{"Operation not supported", "the kernel lacks a feature of nftables that kube-proxy needs (5.13 or newer)"},
	{"Permission denied", "kube-proxy runs without the capability NET_ADMIN"},
	{"Numerical result out of range", "a chain name or comment is longer than the tool takes"},
}

func causesOfRefusal(text string) []string {
	var out []string
	for _, c := range causesOf {
		if strings.Contains(text, c.words) {
			out = append(out, c.cause)
		}
	}
	return out
}

// countedFailures is a proxy that counts refused syncs and has a change waiting since.
func (n *Node) countedFailures() (report.Finding, bool) {
	lock := n.lockTrouble()
	if len(lock.events) > 0 {
		return report.Finding{}, false
	}
	at := n.asked()
	for i := range n.Proxy.Health.Syncs {
		s := &n.Proxy.Health.Syncs[i]
		waiting := s.Waiting(at)
		if s.Failures == 0 || waiting < n.patience() {
			continue
		}
		return report.Finding{
			Subject: "kube-proxy's sync" + familySuffix(s.Family),
			Message: fmt.Sprintf("kube-proxy counts %s%s since it started, and a change has waited for %s: what it writes is refused, and no change of any Service reaches this node",
				plural(s.Failures, "refused sync"), familySuffix(s.Family), lasting(waiting)),
			Want:     "every sync is accepted",
			Got:      fmt.Sprintf("the last one that was accepted ended %s ago", lasting(at.Sub(s.Last))),
			Evidence: []report.Evidence{factEvidence(s.FailureEvidence), factEvidence(s.Evidence)},
			Remedy:   "read in kube-proxy's log what was refused and mend that, then " + n.restart(),
		}, true
	}
	return report.Finding{}, false
}
