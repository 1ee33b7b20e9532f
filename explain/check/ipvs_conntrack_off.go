package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
)

// ipvsConntrackOff: IPVS takes its packets out of connection tracking, so that the nat table does not see them and no
// masquerade rule of kube-proxy's acts (ip_vs_send_or_cont, ip_vs_notrack). kube-proxy sets it to 1 when it starts.
var ipvsConntrackOff = Check{
	ID: "ipvs-conntrack-off", Rests: onRules, Severity: Critical,
	Title: "virtual servers whose packets no masquerade rule sees",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode != ipvsMode || !n.Needs(ServiceTables) || len(n.IPVS.Services) == 0 {
			return nil
		}
		const name = "net.ipv4.vs.conntrack"
		value, at, ok := n.Sysctl(name)
		if !ok || value != "0" {
			return nil
		}
		return []report.Finding{{
			Subject:  name,
			Message:  fmt.Sprintf("%s is 0: IPVS takes the packets of %d virtual servers out of connection tracking, and no rule masquerades them", name, len(n.IPVS.Services)),
			Want:     name + " = 1",
			Got:      name + " = 0",
			Evidence: []report.Evidence{at},
			Causes: []string{
				"sysctl settings of the machine were loaded after kube-proxy had started (systemd-sysctl, a tuning profile)",
				"the module ip_vs was loaded again, with its own default",
			},
			Remedy: "sysctl -w " + name + "=1, and take it out of the machine's settings; kube-proxy sets it when it starts, and not again",
		}}
	},
	Explains: []string{"masquerade-missing", "reply-blocked", "nodeport-reply-bypasses-node"},
}
