package snapshot

import (
	"regexp"
	"strings"
)

var (
	linkLine    = regexp.MustCompile(`^\d+: \S+: <[A-Z0-9_,-]*> mtu \d+ `)
	bridgeLink  = regexp.MustCompile(`^\d+: \S+(: | state )\S.*\b(master \S+ )?state (disabled|listening|learning|forwarding|blocking)\b`)
	addrOneLine = regexp.MustCompile(`^\d+: \S+\s+inet6? [0-9a-f.:]+(/\d+)? `)
	addrLine    = regexp.MustCompile(`^\s+inet6? [0-9a-f.:]+(/\d+| peer ).* scope `)
	routeLine   = regexp.MustCompile(`^(?:(?:unicast|local|broadcast|multicast|anycast|blackhole|unreachable|prohibit|throw|nat) )?(default|[0-9]{1,3}(?:\.[0-9]{1,3}){0,3}(?:/\d+)?|[0-9a-f]*:[0-9a-f:.]*(?:/\d+)?)(?: |$)(.*)$`)
	routeWord   = regexp.MustCompile(`(^|\s)(dev|via|scope|proto|metric|table|nexthop|nhid) `)
	routeHop    = regexp.MustCompile(`^\s+nexthop (via|dev|encap) `)
	routeDead   = regexp.MustCompile(`^(blackhole|unreachable|prohibit|throw) (default|[0-9a-f.:]+(/\d+)?)`)
	ruleOfRoute = regexp.MustCompile(`^\d+:\s+(not )?from \S+`)
	briefLink   = regexp.MustCompile(`^\S+\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s+([0-9a-f.:]+/\d+|([0-9a-f]{2}:){5}[0-9a-f]{2}\s+<)`)
)

var iprouteTells = []tell{
	{BridgeLink, func(l string) bool { return isDigit(l[0]) && bridgeLink.MatchString(l) }},
	{IPLink, func(l string) bool { return isDigit(l[0]) && linkLine.MatchString(l) }},
	{IPAddr, func(l string) bool {
		return isDigit(l[0]) && addrOneLine.MatchString(l) || l[0] == ' ' && addrLine.MatchString(l)
	}},
	{IPRule, func(l string) bool { return isDigit(l[0]) && ruleOfRoute.MatchString(l) }},
	{IPRoute, func(l string) bool {
		m := routeLine.FindStringSubmatch(l)
		return m != nil && routeWord.MatchString(m[2]) || routeDead.MatchString(l) || routeHop.MatchString(l)
	}},
}

// isBriefLink tells `ip -br`. A table of another command that happens to look like it has more columns
// in upper case.
func isBriefLink(l string) bool { return briefLink.MatchString(l) && !strings.HasPrefix(l, "NAME") }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
