package tui

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// byHand is the command that shows on the node what a hop was read from; empty where there is none.
func byHand(p *report.Path, h *report.Hop) string {
	switch h.Kind {
	case "rule", "policy":
		chain := strings.TrimSuffix(h.Chain, "(policy)")
		if strings.HasPrefix(h.Evidence.Source, "nft") {
			return fmt.Sprintf("nft list chain %s %s", h.Table, ShellWord(chain))
		}
		return fmt.Sprintf("%s -t %s -nvL %s --line-numbers", iptables(p, h.Evidence.Source), h.Table, ShellWord(chain))
	case "route":
		to := p.Frontend.Address
		if len(p.Backends) > 0 {
			to = p.Backends[0].Address
		}
		return fmt.Sprintf("ip route get %s", to)
	case "virtual-server":
		return fmt.Sprintf("ipvsadm -Ln --stats %s", virtualServer(h.Text))
	case "conntrack":
		return fmt.Sprintf("conntrack -L -p %s --orig-dst %s", strings.ToLower(p.Frontend.Protocol), p.Frontend.Address)
	}
	return ""
}

// iptables is the program that shows the rules a source was read from: of IPv4 or IPv6, and of the backend that is named.
func iptables(p *report.Path, source string) string {
	name := "iptables"
	if a, err := netip.ParseAddr(p.Frontend.Address); err == nil && a.Is6() {
		name = "ip6tables"
	}
	for _, backend := range []string{"legacy", "nft"} {
		if strings.HasSuffix(source, backend) {
			return name + "-" + backend
		}
	}
	return name
}

// virtualServer are the words of ipvsadm that name a virtual server in a line of `ipvsadm -Sn`.
func virtualServer(line string) string {
	words := strings.Fields(line)
	for i, w := range words[:max(len(words)-1, 0)] {
		switch w {
		case "-t", "-u", "-f", "--sctp-service":
			return w + " " + words[i+1]
		}
	}
	return ""
}
