package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxySyncSlow: kube-proxy needs longer for a sync than it has until the next one is due, and lags behind the API.
var proxySyncSlow = Check{
	ID: "proxy-sync-slow", Severity: Warning,
	Title: "proxies that take longer for a sync than its period",
	Node: func(n *Node) []report.Finding {
		var slow slowness
		for _, family := range []string{"", "IPv4", "IPv6"} {
			slow.readLog(n, family)
		}
		if len(slow.says) == 0 {
			slow.readMetrics(n)
		}
		if len(slow.says) == 0 {
			n.silentProxy()
			return nil
		}
		return []report.Finding{{
			Subject:  "kube-proxy's sync",
			Message:  "kube-proxy lags behind the API: " + strings.Join(slow.says, "; "),
			Want:     "less than its sync period of " + lasting(n.Proxy.SyncPeriod),
			Got:      lasting(slow.longest),
			Evidence: slow.evidence,
			Causes: []string{
				"very many Services and endpoints: in nftables mode listing and writing the table takes longer than in proportion to its size (kubernetes#135639, #139513); in iptables mode before 1.27 every sync writes all of it",
				"errors that make each sync a full one (look for them in the log)",
				"not enough CPU for kube-proxy or the iptables and nft commands that it runs",
			},
			Remedy: "use a newer kube-proxy, nft and kernel, give kube-proxy CPU, and raise minSyncPeriod so that changes are written together; until then iptables mode (1.28 or newer, partial syncs) may be faster",
		}}
	},
}

// slowness gathers what says that syncs take too long.
type slowness struct {
	says     []string
	longest  time.Duration
	evidence []report.Evidence
}

// syncs are the last sync of a family that is complete by the log, and the one that goes on where it ends.
func (n *Node) syncs(family string) (done, running *traits.Event) {
	for _, e := range n.events() {
		switch {
		case e.Kind == traits.Started:
			done, running = nil, nil
		case e.Subject != family:
		case e.Kind == traits.SyncDone:
			done, running = e, nil
		case e.Kind == traits.SyncStarted:
			running = e
		case e.Kind == traits.SyncFailed, e.Kind == traits.LockHeld:
			running = nil
		}
	}
	return done, running
}

// syncing is the slow sync that goes on where the log ends, nil for none.
func (n *Node) syncing() *traits.Event {
	for _, family := range []string{"", "IPv4", "IPv6"} {
		if done, running := n.syncs(family); done != nil && running != nil && done.Elapsed > n.Proxy.SyncPeriod {
			return running
		}
	}
	return nil
}

// readLog looks at the last sync of a family that is complete, and at one that goes on.
func (s *slowness) readLog(n *Node, family string) {
	done, running := n.syncs(family)
	if done == nil {
		return // a log that does not say when syncs end does not say that one goes on
	}
	slow := done.Elapsed > n.Proxy.SyncPeriod
	if slow {
		s.add(done, done.Elapsed, fmt.Sprintf("a sync%s%s that ended at %s took %s", familySuffix(family), sizeOf(done), n.timeOf(done), lasting(done.Elapsed)))
	}
	if running == nil {
		return
	}
	began, ok := running.When(n.Captured)
	if age := n.Captured.Sub(began); ok && (slow || age > n.patience()) {
		s.add(running, age, fmt.Sprintf("one%s that began at %s had not ended %s later", sizeOf(running), clock(began), lasting(max(age, 0))))
	}
}

func (s *slowness) add(e *traits.Event, took time.Duration, text string) {
	s.says = append(s.says, text)
	s.longest = max(s.longest, took)
	s.evidence = append(s.evidence, eventEvidence(e))
}

// readMetrics looks at the average since the proxy started.
func (s *slowness) readMetrics(n *Node) {
	for i := range n.Proxy.Health.Syncs {
		sync := &n.Proxy.Health.Syncs[i]
		if sync.Mean <= n.Proxy.SyncPeriod {
			continue
		}
		s.says = append(s.says, fmt.Sprintf("its syncs%s take %s on average", familySuffix(sync.Family), lasting(sync.Mean)))
		s.longest = max(s.longest, sync.Mean)
		s.evidence = append(s.evidence, factEvidence(sync.MeanEvidence))
	}
}

func sizeOf(e *traits.Event) string {
	if e.Services == 0 && e.Endpoints == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d Services and %d endpoints", e.Services, e.Endpoints)
}

// timeOf is when an event was, for a message.
func (n *Node) timeOf(e *traits.Event) string {
	t, _ := e.When(n.Captured)
	return clock(t)
}
