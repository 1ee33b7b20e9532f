package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// unsynced are the findings that follow where kube-proxy does not follow the API.
var unsynced = []string{
	"excluded-endpoint-used", "missing-endpoint-rule", "missing-service-rule", "nft-map-entry-missing", "nft-map-entry-stale",
	"not-ready-endpoint-used",
	"refusal-missing", "reject-rule-with-ready-endpoints", "stale-endpoint-rule", "stale-service-rule",
}

// trouble is what the log says of one thing that fails, as far as nothing later in the log says that it is over.
type trouble struct {
	events []*traits.Event
	// since and last are the times of the first and the last event; zero where the log has no times.
	since, last time.Time
}

// trouble gathers the events that fail and are not over. A new start ends what was before it; over tells of other
// events whether they end it.
func (n *Node) trouble(fails func(*traits.Event) bool, over func(failed, later *traits.Event) bool) trouble {
	var t trouble
	for _, e := range n.events() {
		switch {
		case fails(e):
			t.events = append(t.events, e)
		case e.Kind == traits.Started:
			t.events = nil
		default:
			t.events = slices.DeleteFunc(t.events, func(failed *traits.Event) bool { return over(failed, e) })
		}
	}
	if len(t.events) > 0 {
		t.since, _ = t.events[0].When(n.Captured)
		t.last, _ = t.end().When(n.Captured)
	}
	return t
}

func (t *trouble) end() *traits.Event { return t.events[len(t.events)-1] }

// lasts tells whether it happened more than once, over some time: not the hiccup of a restart.
func (t *trouble) lasts() bool { return len(t.events) > 1 && t.last.Sub(t.since) >= time.Minute }

// logReach is how long after its last word a log is taken to speak of the moment of the capture.
const logReach = 10 * time.Minute

// current tells whether trouble goes on: its last word is recent, or what comes back regularly has had no time to do so
// again. A log that is silent for longer may have fallen silent because all is well: kube-proxy says nothing of that
// unless it is told to.
func (t *trouble) current(n *Node) bool { return t.within(n, logReach) }

// within is current for trouble that comes back within the given time as long as it goes on.
func (t *trouble) within(n *Node, reach time.Duration) bool {
	if len(t.events) == 0 {
		return false
	}
	age := n.Captured.Sub(t.last)
	if age <= reach {
		return true
	}
	every := t.last.Sub(t.since) / time.Duration(max(len(t.events)-1, 1))
	return age <= 2*every
}

// evidence are the first and the last event.
func (t *trouble) evidence() []report.Evidence {
	out := []report.Evidence{eventEvidence(t.events[0])}
	if len(t.events) > 1 {
		out = append(out, eventEvidence(t.end()))
	}
	return out
}

// when says since when, and how often, for a message.
func (t *trouble) when() string {
	if len(t.events) == 1 {
		return "at " + clock(t.last)
	}
	return fmt.Sprintf("%d times from %s to %s", len(t.events), clock(t.since), clock(t.last))
}

// events are those of the log, in the order of their times where they have them: the log may come in several files.
func (n *Node) events() []*traits.Event {
	out := make([]*traits.Event, len(n.Proxy.Events))
	timed := true
	for i := range n.Proxy.Events {
		out[i] = &n.Proxy.Events[i]
		timed = timed && out[i].Time != ""
	}
	if timed {
		slices.SortStableFunc(out, func(a, b *traits.Event) int {
			ta, _ := a.When(n.Captured)
			tb, _ := b.When(n.Captured)
			return ta.Compare(tb)
		})
	}
	return out
}

// eventEvidence is what the log says, for a finding: on one line.
func eventEvidence(e *traits.Event) report.Evidence {
	text := e.Text
	if strings.Contains(text, "\n") {
		text = strings.Join(strings.Fields(text), " ")
	}
	return report.Evidence{Source: "kube-proxy log", File: e.File, Line: e.Line, Text: shortened(text)}
}

// clock is a time as logs have it: without the year, which they lack, and in the log's own zone.
func clock(t time.Time) string {
	if t.IsZero() {
		return "a time that the log does not say"
	}
	return t.Format("Jan 2 15:04:05")
}

// lasting is a duration for people.
func lasting(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// behind is a service port whose rules differ from what the objects ask for, in the way in which rules of an earlier
// moment do; nil when there is none.
func (n *Node) behind() *Port {
	for i := range n.Ports {
		if p := &n.Ports[i]; p.behind() {
			return p
		}
	}
	return nil
}

func (p *Port) behind() bool {
	return len(p.endpoints("stale")) > 0 || len(p.endpoints("missing")) > 0 ||
		len(unserved(p, "", report.ResultNoMatch, report.ResultReject)) > 0
}

// silentProxy makes the running check unknown where rules are behind and nothing of the proxy was read that could say
// why.
func (n *Node) silentProxy() {
	if n.behind() != nil {
		n.NeedsAny(ProxyLog, ProxyHTTP)
	}
}

// asked is the moment at which the proxy's ports answered.
func (n *Node) asked() time.Time {
	if at := n.Proxy.Health.At; !at.IsZero() {
		return at
	}
	return n.Captured
}

// patience is how long a change may wait for a sync, or a sync take, before it is worth a word: twice the sync
// period, as kube-proxy's own health check has it.
func (n *Node) patience() time.Duration { return max(2*n.Proxy.SyncPeriod, time.Minute) }

// restart is the command that starts kube-proxy of this node anew.
func (n *Node) restart() string {
	node := n.Name
	if node == "" {
		node = "NODE"
	}
	return "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=" + node +
		" (where kube-proxy is no pod: restart its service, or k3s, rke2, MicroK8s' kubelite)"
}

// familySuffix names the family of a sync where it is known.
func familySuffix(family string) string {
	if family == "" {
		return ""
	}
	return " (" + family + ")"
}
