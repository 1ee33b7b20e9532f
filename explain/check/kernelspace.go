package check

import "slices"

// kernelspace is kube-proxy's mode on Windows.
const kernelspace = "kernelspace"

// OnLinuxOnly are the sources that a Windows node does not have: nothing there can be wrong in the way that checks look
// for, and what is missing is no gap in the evidence.
var OnLinuxOnly = []Source{
	Rules4, Rules6, RuleCounters, Flows, FlowStats, Sysctls, Addrs, Links, Bridges, Routes4, Routes6, RouteRules, Sockets,
	Kernel, KernelLog, Offloads,
}

// hasNone tells whether the node is one that does not have a source at all.
func (n *Node) hasNone(s Source) bool {
	return n.Proxy.Mode == kernelspace && slices.Contains(OnLinuxOnly, s)
}
