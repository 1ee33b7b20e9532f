package snapshot

import (
	"path"
	"regexp"
	"strings"
)

var (
	sysctlLine   = regexp.MustCompile(`^(net|kernel|vm|fs|dev|user|debug|abi|crypto)(\.[\w@:/-]+)+ ?= ?\S*`)
	sysctlPath   = regexp.MustCompile(`^(/proc/sys)?/?(net|kernel|vm|fs)/[\w@:./-]+ ?[:=] ?\S*`)
	sysctlColon  = regexp.MustCompile(`^net\.[\w.@/-]+: \S+`)
	flowLine     = regexp.MustCompile(`^(ipv[46]\s+\d+\s+)?(tcp|udp|udplite|sctp|dccp|icmp|icmpv6|gre|unknown)\s+\d+\s+(\d+\s+)?.*\bsrc=\S+ dst=\S+`)
	flowCount    = regexp.MustCompile(`^conntrack v\S+ \(conntrack-tools\): \d+ flow entries have been shown`)
	flowStats    = regexp.MustCompile(`^cpu=\d+\s+(found|searched|entries)=\d+ `)
	flowColumns  = regexp.MustCompile(`^entries\s+(searched|clashres)\s+found\s+new\s+invalid\s`)
	flowRow      = regexp.MustCompile(`^[0-9a-f]{8}(\s+[0-9a-f]{8}){14,20}\s*$`)
	socketHeader = regexp.MustCompile(`^(Netid\s+)?State\s+Recv-Q\s+Send-Q\s+Local Address:Port`)
	socketLine   = regexp.MustCompile(`^((tcp|udp|raw|icmp6|sctp|mptcp|v_str|u_str|u_dgr|nl|p_raw|p_dgr)\s+)?(LISTEN|UNCONN|ESTAB|SYN-SENT|SYN-RECV|FIN-WAIT-[12]|TIME-WAIT|CLOSE-WAIT|LAST-ACK|CLOSING|CLOSED)\s+\d+\s+\d+\s+\S+`)
	recentLine   = regexp.MustCompile(`^src=\S+ ttl: \d+ last_seen: \d+ oldest_pkt: \d+`)
	recentHead   = regexp.MustCompile(`^==> \S*/xt_recent/\S+ <==$`)
	unameLine    = regexp.MustCompile(`^Linux (version )?(\S+ )?\d+\.\d+\S*( |$)`)
	releaseLine  = regexp.MustCompile(`^\d+\.\d+\.\d+\S*$`)
	dmesgLine    = regexp.MustCompile(`^(<\d+>)?\[\s*(\d+\.\d{6}|(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \S.*\d{4})\] ?`)
	journalLine  = regexp.MustCompile(`^[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(\.\d+)? \S+ kernel(\[\d+\])?: `)
	featureLine  = regexp.MustCompile(`^(Features for \S+:|\s*[a-z0-9-]+: (on|off)( \[fixed\]| \[requested (on|off)\])?$)`)
	brctlHeader  = regexp.MustCompile(`^bridge name\s+bridge id\s+STP enabled\s+interfaces`)
	brctlLine    = regexp.MustCompile(`^\S+\s+[0-9a-f]{4}\.[0-9a-f]{8,12}\s+(yes|no)(\s+\S+)?$`)
	hairpinLine  = regexp.MustCompile(`(^|/)(brif|brport)/?.*hairpin_mode[:= ]+[01]$`)
	toolLine     = regexp.MustCompile(`^(ip6?tables(-nft|-legacy)?-save v\d\S*( \((legacy|nf_tables)\))?|nftables v\d\S* \(.*\)|ipset v\d\S*, protocol version: \d+|conntrack v\d\S* \(conntrack-tools\))$`)
)

var kernelTells = []tell{
	{Dmesg, func(l string) bool {
		return (l[0] == '[' || l[0] == '<') && dmesgLine.MatchString(l) || journalLine.MatchString(l)
	}},
	{Hairpin, func(l string) bool { return strings.Contains(l, "hairpin_mode") && hairpinLine.MatchString(l) }},
	{Sysctl, func(l string) bool {
		return strings.ContainsAny(l, "=:") && (sysctlLine.MatchString(l) || sysctlPath.MatchString(l) || sysctlColon.MatchString(l)) ||
			strings.HasPrefix(l, "sysctl: ")
	}},
	{ConntrackStats, func(l string) bool {
		return flowStats.MatchString(l) || flowColumns.MatchString(l) || flowRow.MatchString(l)
	}},
	{Conntrack, func(l string) bool {
		return strings.Contains(l, "src=") && flowLine.MatchString(l) || flowCount.MatchString(l)
	}},
	{ToolVersions, func(l string) bool { return strings.Contains(l, " v") && toolLine.MatchString(l) }},
	{SocketList, func(l string) bool { return socketHeader.MatchString(l) || socketLine.MatchString(l) }},
	{XTRecent, func(l string) bool { return recentLine.MatchString(l) || recentHead.MatchString(l) }},
	{Uname, func(l string) bool { return unameLine.MatchString(l) }},
	{Ethtool, func(l string) bool { return featureLine.MatchString(l) }},
	{Bridge, func(l string) bool { return brctlHeader.MatchString(l) || brctlLine.MatchString(l) }},
}

// whoseSysctls tells the kernel's values from a file that only asks for them at boot.
func whoseSysctls(name string) kind {
	if path.Ext(baseName(name)) == ".conf" {
		return unknown("a sysctl configuration file: it says what is asked for at boot, not what the kernel holds; capture `sysctl -a`")
	}
	return kind{format: Sysctl}
}

// recogniseOneLiner knows outputs of one line that are too short to be told without their name, and
// those of one word.
func recogniseOneLiner(name string, lines []string) (kind, bool) {
	if len(lines) != 1 {
		return kind{}, false
	}
	switch line := strings.TrimSpace(lines[0]); {
	case line == "iptables", line == "ipvs", line == "nftables", line == "userspace", line == "kernelspace":
		return kind{format: ProxyMode}, true
	case releaseLine.MatchString(line) && formatOfName(name) == Uname:
		return kind{format: Uname}, true
	}
	return kind{}, false
}
