package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// Discovery is a message of IPv6's neighbour discovery that rules of the node end.
type Discovery struct {
	Kind DiscoveryKind
	// Link is the interface; for what pods ask each other their bridge.
	Link string
	// Path is where it ends, with the hops to there.
	Path report.Path
}

// DiscoveryKind is who says what to whom.
type DiscoveryKind uint8

// The messages. A node that is not answered cannot send, and one that does not answer gets nothing.
const (
	NodeAsks DiscoveryKind = iota
	NodeIsAnswered
	NodeIsAsked
	NodeAnswers
	PodAsks
	PodAnswers
)

// words name the messages of a kind on a link.
func (k DiscoveryKind) words(link string) string {
	return fmt.Sprintf([...]string{
		NodeAsks: "the node's questions on %s", NodeIsAnswered: "the answers to the node on %s", NodeIsAsked: "questions for the node on %s",
		NodeAnswers: "the node's answers on %s", PodAsks: "what pods ask each other on bridge %s", PodAnswers: "what pods answer each other on bridge %s",
	}[k], link)
}

// chain is the built-in chain of the filter table that the messages go through.
func (k DiscoveryKind) chain() string {
	return [...]string{NodeAsks: "OUTPUT", NodeIsAnswered: "INPUT", NodeIsAsked: "INPUT", NodeAnswers: "OUTPUT", PodAsks: "FORWARD", PodAnswers: "FORWARD"}[k]
}

// neighbourDiscoveryDropped: the rules drop the packets by which IPv6 finds the link address of a neighbour. They are
// not tracked, so that no rule for established connections accepts them. While addresses are in the neighbour cache all
// is well, for half a minute or so after the last use of each.
var neighbourDiscoveryDropped = Check{
	ID: "neighbour-discovery-dropped", Rests: onRules, Severity: Error,
	Title: "rules that drop IPv6's neighbour discovery",
	Node: func(n *Node) []report.Finding {
		if !slices.Contains(bothFamilies(n.Plan.Ports), netfilter.IPv6) || !n.Needs(Addrs) {
			return nil
		}
		var out []report.Finding
		var done []string
		for i := range n.Discoveries {
			o := n.Discoveries[i].obstacle()
			if slices.Contains(done, o.key()) {
				continue
			}
			done = append(done, o.key())
			out = append(out, n.undiscovered(o))
		}
		return out
	},
}

// obstacle is the place where a message ends.
func (d *Discovery) obstacle() *Obstacle { return onRequest(nil, &d.Path) }

// undiscovered is the finding about all messages that end at one place.
func (n *Node) undiscovered(o *Obstacle) report.Finding {
	var what []string
	var chain string
	bridged := true
	for i := range n.Discoveries {
		if d := &n.Discoveries[i]; d.obstacle().key() == o.key() {
			what = once(what, d.Kind.words(d.Link))
			bridged = bridged && d.Kind >= PodAsks
			chain = cmp.Or(chain, d.Kind.chain())
		}
	}
	f := report.Finding{
		Subject: o.subject() + " IPv6",
		Message: fmt.Sprintf("%s drops neighbour discovery (%s): IPv6 connections stop when a link address has left the neighbour cache", o.Place(), list(what, 6)),
		Want:    "ICMPv6 of types 135 and 136 passes",
		Got:     o.Text,
		Causes: []string{
			"a policy or a last rule of DROP without a rule for ICMPv6; unlike ARP, neighbour discovery goes through ip6tables",
			"the rules rely on connection tracking, which never tracks neighbour discovery",
		},
		Remedy: "accept ICMPv6 of the types nd-neighbor-solicit and nd-neighbor-advert before it",
	}
	if !nativeTable(o.Table) {
		f.Remedy = fmt.Sprintf("ip6tables -t %s -I %s -p ipv6-icmp --icmpv6-type neighbour-solicitation -j ACCEPT, and the same for neighbour-advertisement", o.Table, chain)
	}
	if bridged {
		f.Message += "; these pass the rules because of " + host.BridgeCallsSysctl(6)
	}
	if o.Rule != nil {
		f.Evidence = append(f.Evidence, *o.Rule)
	}
	return f
}
