package traits

import (
	"fmt"
	"strings"
	"time"
)

// EventKind is what a log line reports.
type EventKind string

// The kinds of events.
const (
	// SyncFailed: the kernel refused what the proxy wrote (iptables-restore, nft).
	SyncFailed EventKind = "sync-failed"
	// SyncRetried: the proxy gave up a sync and tries again later; follows a SyncFailed.
	SyncRetried EventKind = "sync-retried"
	// LockHeld: another program held the xtables lock.
	LockHeld EventKind = "lock-held"
	// WatchFailed: the API could not be listed or watched. Subject is the type, "*v1.EndpointSlice".
	WatchFailed EventKind = "watch-failed"
	// WatchDenied: the same, and RBAC is the reason.
	WatchDenied EventKind = "watch-denied"
	// NodeNotFound: no Node object has the proxy's node name, which is Subject.
	NodeNotFound EventKind = "node-not-found"
	// SyncStarted and SyncDone frame a sync. Subject is IPv4, IPv6 or empty; SyncDone has Elapsed.
	SyncStarted EventKind = "sync-started"
	SyncDone    EventKind = "sync-done"
	// PortTaken: a node port could not be opened (up to 1.23). Subject is the port as logged.
	PortTaken EventKind = "port-taken"
	// NoDetector: the proxy cannot tell pods of this node from other clients.
	NoDetector EventKind = "no-local-detector"
	// Started: the proxy said its version, which it does once. What was before is another process's.
	Started EventKind = "started"
	// Listed: the API was listed whole, so that it can be reached. Subject is the type as in WatchFailed.
	Listed EventKind = "listed"
)

// Event is one thing that the log reports.
type Event struct {
	Kind EventKind
	File string
	Line int
	// Time is the time of day as klog writes it, "0105 09:46:26.462441": without year and zone.
	Time string
	// Text is the line, with the lines that continue it.
	Text    string
	Subject string
	Elapsed time.Duration
	// Reason is what a failure gives as its reason: the words of iptables-restore or nft, of the network, of the API
	// server. Empty where the line has none.
	Reason string
	// Server is the address of the API server, "https://192.0.2.1:6443", in a WatchFailed that never got an answer
	// from it: the connection failed. It is empty where the API server answered with an error.
	Server string
	// Services and Endpoints are how many of each a sync was about, 0 where the log does not say.
	Services, Endpoints int
}

// When is the time of an event, which lacks its year: that of the last such day before at, or up to a day after,
// because a log may be in another zone. It is false for an event without a time.
func (ev Event) When(at time.Time) (time.Time, bool) { return klogTime(ev.Time, at) }

// klogTime reads a klog time.
func klogTime(s string, at time.Time) (time.Time, bool) {
	for _, year := range [...]int{at.Year(), at.Year() - 1, at.Year() + 1} {
		t, err := time.Parse("2006 0102 15:04:05.999999999", fmt.Sprintf("%04d %s", max(year, 1), s))
		if err != nil {
			continue
		}
		if d := t.Sub(at); d < 24*time.Hour && d > -364*24*time.Hour {
			return t, true
		}
	}
	return time.Time{}, false
}

// eventPattern recognises an event: the message contains text, and one of also where that is not nil.
type eventPattern struct {
	text string
	also []string
	kind EventKind
}

// eventPatterns in the order in which they are tried. Texts are those of all versions since 1.11.
var eventPatterns = []eventPattern{
	{"holding the xtables lock", nil, LockHeld},
	{"Failed to execute iptables-restore", nil, SyncFailed},
	{"Failed to execute partial iptables-restore", nil, SyncFailed},
	{"Failed to execute iptables restore", nil, SyncFailed},
	{"nftables sync failed", nil, SyncFailed},
	{"Sync failed", nil, SyncRetried},
	{" is forbidden: User ", []string{"list", "watch"}, WatchDenied},
	{"Failed to watch", nil, WatchFailed},
	{"Failed to list ", []string{"*v1", "*core", "*discovery"}, WatchFailed},
	{"Failed to retrieve node info", []string{"not found"}, NodeNotFound},
	{"SyncProxyRules complete", nil, SyncDone},
	{"syncProxyRules took ", nil, SyncDone},
	{"Syncing iptables rules", nil, SyncStarted},
	{"Syncing nftables rules", nil, SyncStarted},
	{"Syncing ipvs proxier rules", nil, SyncStarted},
	{"Syncing ipvs Proxier rules", nil, SyncStarted},
	{"Caches populated", nil, Listed},
	{"can't open ", []string{"nodePort"}, PortTaken},
	{"can't open port, skipping", nil, PortTaken},
	{"clusterCIDR not specified", nil, NoDetector},
	{"cluster CIDR", []string{"no cluster CIDR", "no IPv4 cluster CIDR", "no IPv6 cluster CIDR"}, NoDetector},
}

// eventOf recognises the event of a log entry.
func eventOf(e entry) (Event, bool) {
	for _, p := range eventPatterns {
		if !strings.Contains(e.all, p.text) || p.also != nil && !containsAny(e.all, p.also) {
			continue
		}
		ev := Event{Kind: p.kind, Time: e.time}
		switch p.kind {
		case SyncStarted, SyncFailed:
			ev.Subject = e.value("ipFamily")
		case SyncDone:
			ev.Subject = e.value("ipFamily")
			elapsed := e.value("elapsed")
			if elapsed == "" { // up to 1.19: "syncProxyRules took 41.1ms"
				_, elapsed, _ = strings.Cut(e.msg, " took ")
			}
			ev.Elapsed, _ = time.ParseDuration(elapsed) // 0 where the line does not say
		case WatchFailed, WatchDenied:
			ev.Subject = watched(e.all)
			ev.Server, ev.Reason = refusedBy(e)
		case Listed:
			ev.Subject = watched(e.all)
		case NodeNotFound:
			ev.Subject = quotedAfter(e.all, "nodes ")
		case PortTaken:
			if ev.Subject = quotedAfter(e.all, "can't open "); ev.Subject == "" {
				ev.Subject = e.value("port")
			}
		case NoDetector:
			ev.Subject = detectorFamily(e)
		}
		return ev, true
	}
	return Event{}, false
}

// watched is the type that a reflector names: "Failed to watch *v1.Service: …", type="*v1.Service".
func watched(text string) string {
	i := strings.Index(text, "*")
	if i < 0 {
		return ""
	}
	j := i + 1
	for j < len(text) && (text[j] == '.' || isWordByte(text[j])) {
		j++
	}
	return strings.TrimSuffix(text[i:j], ".")
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// quotedAfter is the quoted word after a text, with or without backslashes before its quotes: inside err="…"
// they have them.
func quotedAfter(text, before string) string {
	_, rest, ok := strings.Cut(text, before)
	if !ok {
		return ""
	}
	rest = strings.TrimPrefix(rest, `\`)
	rest, ok = strings.CutPrefix(rest, `"`)
	if !ok {
		return ""
	}
	word, _, ok := strings.Cut(rest, `"`)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(word, `\`)
}

// detectorFamily is the address family that a line about a missing cluster CIDR speaks of, empty for all.
func detectorFamily(e entry) string {
	for _, family := range [...]string{"IPv4", "IPv6"} {
		if strings.Contains(e.all, "no "+family+" cluster CIDR") || e.value("ipFamily") == family {
			return family
		}
	}
	return ""
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
