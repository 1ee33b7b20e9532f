package render

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// delivers tells whether connections with this result reach something that answers, as far as this node can tell.
func delivers(r report.Result) bool {
	switch r {
	case report.ResultDNAT, report.ResultIPVS, report.ResultBPF, report.ResultRedirect, report.ResultTProxy,
		report.ResultLocalProcess, report.ResultDNATByConntrack:
		return true
	}
	return false
}

// means says what a result is and what the client sees of it. by is the last hop, nil when there is none.
func means(p *report.Path, by *report.Hop) string {
	switch p.Result {
	case report.ResultDNAT, report.ResultIPVS, report.ResultBPF:
		return "sent to a backend"
	case report.ResultRedirect:
		return "redirected to a process on this node"
	case report.ResultTProxy:
		return "handed to a transparent proxy on this node"
	case report.ResultLocalProcess:
		return "answered by a process on this node"
	case report.ResultDNATByConntrack:
		return "sent where an existing conntrack entry says, whatever the rules say now"
	case report.ResultUntranslatedByConntrk:
		return "an existing conntrack entry keeps it untranslated, whatever the rules say now"
	case report.ResultReject:
		return "rejected: " + refusal(p, by)
	case report.ResultDrop:
		return "dropped: the client hears nothing and waits for its timeout"
	case report.ResultNoMatch:
		return "no service rule applies: the packet goes on untranslated"
	case report.ResultNoRoute:
		return "no route: " + discarded(p, by)
	case report.ResultMartian:
		return "discarded by the kernel's address checks: the client hears nothing and waits for its timeout"
	case report.ResultUntrackedLocal:
		return "not tracked (NOTRACK), so never translated: delivered on this node"
	case report.ResultAcceptedUndelivered:
		return "accepted untranslated by a rule that is none of the service proxy's"
	case report.ResultUnknown:
		return "cannot be decided from the evidence"
	}
	return string(p.Result)
}

// refusal is what a client sees of a rejected connection, by the --reject-with of the rule (Linux: the ICMP
// error that comes back decides the errno of connect; iptables sends icmp-port-unreachable unless told otherwise).
func refusal(p *report.Path, by *report.Hop) string {
	with := "icmp-port-unreachable"
	if by != nil {
		if _, rest, ok := strings.Cut(by.Text, "--reject-with "); ok {
			with, _, _ = strings.Cut(rest, " ")
		}
	}
	switch with {
	case "tcp-reset", "icmp-port-unreachable", "icmp6-port-unreachable", "port-unreach":
		if p.Frontend.Protocol == "UDP" {
			return "the client gets “connection refused” with its next read or write"
		}
		return "the client gets “connection refused” at once"
	case "icmp-net-unreachable", "icmp6-no-route", "no-route":
		return "the client gets “network is unreachable” at once"
	}
	return "the client gets “no route to host” at once"
}

// discarded is what a client sees of a packet without a route. Linux answers with an ICMP error that says
// which kind of route was found, but not for a blackhole, and not when it forwards nothing at all (ip_error).
func discarded(p *report.Path, by *report.Hop) string {
	route := ""
	if by != nil && by.Kind == "route" {
		route = by.Text
	}
	switch {
	case strings.HasPrefix(route, "blackhole") && p.Origin == "node":
		return "the client gets “invalid argument” at once"
	case strings.HasPrefix(route, "prohibit") && p.Origin == "node":
		return "the client gets “permission denied” at once"
	case strings.HasPrefix(route, "blackhole"), strings.Contains(route, "forward"):
		return "the client hears nothing and waits for its timeout"
	case strings.HasPrefix(route, "unreachable"), strings.HasPrefix(route, "prohibit"):
		return "the client gets “no route to host”"
	}
	return "the client gets “network is unreachable”"
}

// clientsOf names the clients of a branch.
func clientsOf(b *branch) string {
	return namesOf(b.clients)
}

func namesOf(clients []client) string {
	names := make([]string, len(clients))
	for i, c := range clients {
		names[i] = className(c)
	}
	return strings.Join(names, ", ")
}

func className(c client) string {
	if c.exact && c.source != "" {
		return c.source
	}
	name := ""
	switch c.class {
	case "local-pod":
		name = "local pods"
	case "remote-pod":
		name = "remote pods"
	case "node":
		name = "the node"
	case "remote-node":
		name = "other nodes"
	case "external":
		name = "external clients"
	case "hairpin":
		name = "a local backend itself"
	case "localhost":
		name = "localhost on the node"
	case "":
		if c.source == "" {
			return "any client"
		}
		return c.source
	default:
		name = c.class
	}
	if c.several && c.source != "" {
		name += " like " + c.source
	}
	return name
}

// dial is "address:port" with brackets around IPv6.
func dial(address string, port int) string {
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() {
		address = "[" + address + "]"
	}
	if port == 0 {
		return address
	}
	return address + ":" + strconv.Itoa(port)
}

// dialed is the frontend's address with its protocol and port name.
func dialed(f report.Frontend) string {
	s := dial(f.Address, f.Port)
	if f.Protocol != "" {
		s += "/" + f.Protocol
	}
	if f.PortName != "" {
		s += " (" + f.PortName + ")"
	}
	return s
}

// percent shows a share with one decimal; "<0.1%" where that would round a real share away.
func percent(p float64) string {
	switch {
	case p == 0:
		return "0%"
	case p > 0 && p < 0.0005:
		return "<0.1%"
	case p < 1 && p > 0.9995:
		return ">99.9%"
	case p == 1:
		return "100%"
	}
	return strconv.FormatFloat(p*100, 'f', 1, 64) + "%"
}

// mark is a sign with its word and colour.
type mark struct {
	sign, word string
	tone       tone
}

var (
	markOK    = mark{"✓", "ok", good}
	markWarn  = mark{"!", "warn", warn}
	markError = mark{"✗", "error", bad}
)

// worse returns the more severe of two marks.
func (m mark) worse(n mark) mark {
	if n == markError || m == markOK {
		return n
	}
	return m
}

// severity is the mark of a finding.
func severity(s string) mark {
	switch s {
	case "critical", "error":
		return mark{markError.sign, s, bad}
	case "warning":
		return mark{markWarn.sign, "warn", warn}
	}
	return mark{"·", s, noTone}
}

// addressOnly is the kind of a frontend that belongs to no Service: there, that no service rule applies is right.
const addressOnly = "Address"

// judge is the mark of a path: delivered is ok, anything else is an error unless the objects ask for it.
func judge(p *report.Path) mark {
	switch {
	case p.Result == report.ResultUnknown:
		return markWarn
	case p.Intended != nil && p.Intended.Result != p.Result && !(delivers(p.Result) && delivers(p.Intended.Result)):
		return markError
	case delivers(p.Result), p.Result == report.ResultNoMatch && p.Frontend.Kind == addressOnly:
		return markOK
	case p.Intended != nil:
		return markWarn
	}
	return markError
}

// judgeBackend is the mark of a backend with the words that say why.
func judgeBackend(p *report.Path, b *report.Backend) (mark, string) {
	switch b.State {
	case "stale":
		return markError, "stale: no endpoint of the Service"
	case "missing":
		return markError, "missing: " + orElse(b.Ready, "usable") + " endpoint gets no traffic"
	case "not-ready":
		return markError, "not ready, yet it gets traffic"
	case "excluded":
		return markError, "excluded: ready, but not meant for these clients on this node"
	}
	if b.Result != "" && b.Result != p.Result && !delivers(b.Result) {
		return markError, string(b.Result) + " after translation"
	}
	if m, text := judgeReply(b.Reply); m != markOK {
		return m, text
	}
	if b.Intended != nil && differ(b.Probability, *b.Intended) {
		return markWarn, "should get " + percent(*b.Intended)
	}
	if b.State == "unknown" {
		return markOK, ""
	}
	return markOK, "ok"
}

// judgeReply says what is wrong with the way back. An answer that is not known of is not wrong.
func judgeReply(r *report.Reply) (mark, string) {
	if r == nil {
		return markOK, ""
	}
	switch r.Result {
	case report.ReplyDelivered:
		return markOK, ""
	case report.ReplyUnknown:
		return markWarn, "answer not decided"
	case report.ReplyUntranslated:
		return markError, "answer comes back untranslated: the client does not take it"
	case report.ReplyBypasses:
		return markError, "answer does not come back through this node: the client does not take it"
	case report.ReplyDrop:
		return markError, "answer dropped: the client waits for its timeout"
	case report.ReplyReject:
		return markError, "answer rejected: the client waits for its timeout"
	}
	return markError, "answer lost: " + string(r.Result)
}

// differ tells whether two shares differ by more than the rounding of kube-proxy and of the kernel (kube-proxy
// up to 1.16 wrote five decimals).
func differ(a, b float64) bool { return a-b > 0.001 || b-a > 0.001 }

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
