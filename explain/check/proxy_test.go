package check

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// noon is when everything here was captured.
var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// proxyNode is a node with this proxy and the Service shop/web, whose endpoints changed at a moment and whose rules
// are behind, or not.
func proxyNode(p traits.Proxy, changed time.Time, behind bool) *Node {
	if p.SyncPeriod == 0 {
		p.SyncPeriod = 30 * time.Second
	}
	set := &objects.Set{
		Services: []objects.Service{{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}},
		EndpointSlices: []objects.EndpointSlice{{EndpointSlice: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: changed.Format(time.RFC3339)},
		}}}},
	}
	set.Sort()
	sp := &intent.ServicePort{Namespace: "shop", Name: "web", PortName: "http", Family: 4}
	n := &Node{
		Name: "node-a", Host: &host.Host{}, Objects: set, Plan: &intent.Plan{Ports: []*intent.ServicePort{sp}}, Proxy: p, Captured: noon,
		Answers: map[Source]string{},
	}
	state := "ok"
	if behind {
		state = "stale"
	}
	n.Ports = []Port{{ServicePort: sp, On: n, Cells: [][]report.Path{{{Result: report.ResultDNAT, Backends: []report.Backend{{Address: "10.244.1.5", Port: 8080, State: state}}}}}}}
	return n
}

func failing(kind traits.EventKind, times ...string) []traits.Event {
	var out []traits.Event
	for i, t := range times {
		out = append(out, traits.Event{Kind: kind, File: "log", Line: i + 1, Time: t, Text: "text", Reason: "reason"})
	}
	return out
}

func TestProxyHTTP(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	at := traits.Fact{File: "metrics.txt", Line: 1}
	sync := func(s traits.Sync) traits.Proxy {
		s.Evidence, s.FailureEvidence, s.MeanEvidence = at, at, at
		return traits.Proxy{Health: traits.Health{Syncs: []traits.Sync{s}}}
	}
	sick := func(s ...traits.Sync) traits.Proxy {
		return traits.Proxy{Health: traits.Health{Word: traits.Unhealthy, At: noon, Evidence: at, Syncs: s}}
	}
	for _, tt := range []struct {
		name    string
		check   *Check
		proxy   traits.Proxy
		changed time.Time
		behind  bool
		want    string
	}{
		{"refused, and a change waits", &proxySyncFailed, sync(traits.Sync{Family: "IPv4", Failures: 7, Last: ago(time.Hour), Queued: ago(10 * time.Minute)}), noon, false, "7 refused syncs (IPv4) since it started, and a change has waited for 10m0s"},
		{"refused once, and synced since", &proxySyncFailed, sync(traits.Sync{Failures: 7, Last: ago(time.Minute), Queued: ago(10 * time.Minute)}), noon, true, ""},
		{"refused once, and at work on it", &proxySyncFailed, sync(traits.Sync{Failures: 1, Last: ago(time.Hour), Queued: ago(5 * time.Second)}), noon, false, ""},
		{"slow on average", &proxySyncSlow, sync(traits.Sync{Mean: 45 * time.Second}), noon, false, "its syncs take 45s on average"},
		{"slow, and the period is longer", &proxySyncSlow, func() traits.Proxy {
			p := sync(traits.Sync{Mean: 45 * time.Second})
			p.SyncPeriod = time.Minute
			return p
		}(), noon, false, ""},
		{"a change that it has not heard of", &proxyWatchStalled, sync(traits.Sync{Family: "IPv4", Last: ago(5 * 24 * time.Hour)}), ago(time.Hour), true, "shop/web:http changed at Jan 5 11:00:00, and kube-proxy's last sync (IPv4) ended before that, at Dec 31 12:00:00"},
		{"a change that it has only just heard of", &proxyWatchStalled, sync(traits.Sync{Family: "IPv4", Last: ago(time.Hour)}), ago(10 * time.Second), true, ""},
		{"nothing has changed for days", &proxyWatchStalled, sync(traits.Sync{Family: "IPv4", Last: ago(5 * 24 * time.Hour)}), ago(6 * 24 * time.Hour), true, ""},
		{"the change is programmed", &proxyWatchStalled, sync(traits.Sync{Family: "IPv4", Last: ago(5 * 24 * time.Hour)}), ago(time.Hour), false, ""},
		{"the other family", &proxyWatchStalled, sync(traits.Sync{Family: "IPv6", Last: ago(5 * 24 * time.Hour)}), ago(time.Hour), true, ""},
		{"unhealthy", &proxyWatchStalled, sick(traits.Sync{Last: ago(time.Hour)}), noon, false, "a change waits, and the last sync ended at Jan 5 11:00:00"},
		{"never synced", &proxyWatchStalled, sick(), noon, false, "it has never completed a sync"},
		{"unhealthy because it is refused", &proxyWatchStalled, sick(traits.Sync{Failures: 3, Last: ago(time.Hour), Queued: ago(time.Hour / 2)}), noon, false, ""},
	} {
		n := proxyNode(tt.proxy, tt.changed, tt.behind)
		expect(t, tt.name, tt.check.Node(n), tt.want)
		if len(n.missing) > 0 {
			t.Errorf("%s: unknown, for lack of %v", tt.name, n.missing)
		}
	}
}

func expect(t *testing.T, name string, found []report.Finding, want string) {
	t.Helper()
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("%s: fires: %s", name, found[0].Message)
	case want != "" && (len(found) != 1 || !strings.Contains(found[0].Message, want)):
		t.Errorf("%s: %+v, want %q", name, found, want)
	case want != "" && (found[0].Subject == "" || found[0].Want == "" || found[0].Got == "" || found[0].Remedy == "" || len(found[0].Evidence) == 0):
		t.Errorf("%s: the finding is not complete: %+v", name, found[0])
	}
}

func TestProxyLog(t *testing.T) {
	network := failing(traits.WatchFailed, "0105 11:40:00.0", "0105 11:59:00.0")
	for i := range network {
		network[i].Server = "https://192.0.2.1:6443"
	}
	then := func(events []traits.Event, later ...traits.Event) []traits.Event { return append(events, later...) }
	slices := []traits.Event{{Kind: traits.WatchDenied, Subject: "*v1.EndpointSlice", Time: "0105 11:59:00.0", File: "log", Line: 1}}
	for _, tt := range []struct {
		name   string
		check  *Check
		events []traits.Event
		behind bool
		want   string
	}{
		{"refused just now", &proxySyncFailed, failing(traits.SyncFailed, "0105 11:58:00.0"), false, "reason"},
		{"refused long ago, and the log would not say that all is well", &proxySyncFailed, failing(traits.SyncFailed, "0104 11:58:00.0"), false, ""},
		{"refused long ago, and it shows", &proxySyncFailed, failing(traits.SyncFailed, "0104 11:58:00.0"), true, "reason"},
		{"refused long ago by a process that is gone", &proxySyncFailed, then(failing(traits.SyncFailed, "0104 11:58:00.0"), traits.Event{Kind: traits.Started, Time: "0104 12:00:00.0"}), true, ""},
		{"refused, and the log says when it is not", &proxySyncFailed, then(failing(traits.SyncDone, "0103 11:58:00.0"), failing(traits.SyncFailed, "0104 11:58:00.0")...), false, "reason"},
		{"refused at each of regular attempts", &proxySyncFailed, failing(traits.SyncFailed, "0105 11:00:00.0", "0105 11:20:00.0", "0105 11:40:00.0"), false, "3 times from Jan 5 11:00:00 to Jan 5 11:40:00"},
		{"the lock was missed once", &xtablesLockContention, failing(traits.LockHeld, "0105 11:58:00.0"), true, ""},
		{"the lock was missed, and had", &xtablesLockContention, then(failing(traits.LockHeld, "0105 11:50:00.0", "0105 11:58:00.0"), failing(traits.SyncDone, "0105 11:58:30.0")...), true, ""},
		{"the lock is missed", &xtablesLockContention, failing(traits.LockHeld, "0105 11:50:00.0", "0105 11:58:00.0"), false, "2 times"},
		{"no connection", &proxyAPIUnreachable, network, false, "https://192.0.2.1:6443"},
		{"no connection is no dead watch", &proxyWatchStalled, network, true, ""},
		{"a connection again", &proxyAPIUnreachable, then(network, traits.Event{Kind: traits.Listed, Time: "0105 11:59:30.0"}), false, ""},
		{"the API server answers with errors", &proxyWatchStalled, failing(traits.WatchFailed, "0105 11:40:00.0", "0105 11:59:00.0"), false, "reason"},
		{"the API server answered with an error", &proxyWatchStalled, failing(traits.WatchFailed, "0105 11:40:00.0"), false, ""},
		{"forbidden", &proxyCannotListEndpointSlices, slices, false, "*v1.EndpointSlice"},
		{"forbidden, and then allowed", &proxyCannotListEndpointSlices, then(slices, traits.Event{Kind: traits.Listed, Subject: "*v1.EndpointSlice", Time: "0105 11:59:10.0"}), true, ""},
		{"forbidden to read what it can do without", &proxyCannotListEndpointSlices, []traits.Event{{Kind: traits.WatchDenied, Subject: "*v1.ServiceCIDR", Time: "0105 11:59:00.0"}}, true, ""},
	} {
		n := proxyNode(traits.Proxy{Events: tt.events}, noon, tt.behind)
		expect(t, tt.name, tt.check.Node(n), tt.want)
	}
}

// Where rules are behind and nobody listened to the proxy, what it suffers from is not known; where all is well nobody
// has to.
func TestProxyUnknown(t *testing.T) {
	for _, c := range []*Check{&proxySyncFailed, &proxyWatchStalled} {
		for _, behind := range []bool{false, true} {
			n := proxyNode(traits.Proxy{}, noon, behind)
			n.Answers = map[Source]string{ProxyLog: "not read", ProxyHTTP: "not read"}
			if found := c.Node(n); len(found) > 0 || (len(n.missing) > 0) != behind {
				t.Errorf("%s: behind %t: %+v, lacks %v", c.ID, behind, found, n.missing)
			}
		}
	}
}

func TestProxyGone(t *testing.T) {
	gone := traits.Proxy{Presence: traits.Gone, PresenceEvidence: []traits.Fact{{File: "kube-proxy-args.txt", Line: 1, Text: "none"}}}
	n := proxyNode(gone, noon, false)
	expect(t, "gone", proxyNotRunning.Node(n), "no Service works here")
	n = proxyNode(gone, noon, false)
	n.Host.Links = []host.Link{{Name: "cilium_host"}}
	expect(t, "replaced", proxyNotRunning.Node(n), "")
	n = proxyNode(gone, noon, false)
	n.Plan = &intent.Plan{}
	expect(t, "no cluster", proxyNotRunning.Node(n), "")
	expect(t, "running", proxyNotRunning.Node(proxyNode(traits.Proxy{Presence: traits.Running}, noon, true)), "")

	// Rules that were not read are not gone.
	n = proxyNode(gone, noon, false)
	n.Answers[Rules4] = "denied"
	if expect(t, "rules not read", proxyNotRunning.Node(n), ""); len(n.missing) == 0 {
		t.Error("rules not read: the check is not unknown")
	}
}
