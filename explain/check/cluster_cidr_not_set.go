package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// noDetector is the local mode of a proxy that cannot tell pods from other clients.
const noDetector = "-"

// clusterCIDRNotSet: kube-proxy cannot tell pods from other clients, and then masquerades nobody who dials a cluster
// IP: answers to the node itself and to clients outside of the cluster go astray.
var clusterCIDRNotSet = Check{
	ID: "cluster-cidr-not-set", Rests: onGrid, Severity: Error,
	Title: "proxies that cannot tell pods from other clients",
	Node: func(n *Node) []report.Finding {
		if n.Proxy.Mode == "userspace" || n.Proxy.Mode == kernelspace {
			return nil // they ask for it nowhere
		}
		if n.Proxy.LocalMode != noDetector || n.Proxy.MasqueradeAll || len(n.Plan.Ports) == 0 {
			return nil
		}
		f := report.Finding{
			Subject: "kube-proxy's clusterCIDR",
			Message: "kube-proxy has neither clusterCIDR nor another way to tell pods from other clients: it masquerades nobody who dials a cluster IP, so that the node's own connections may leave with the address of the wrong interface and answers to clients outside of the cluster do not come back",
			Want:    "clusterCIDR, or detectLocalMode NodeCIDR, BridgeInterface or InterfaceNamePrefix: a rule `! -s RANGE -d CLUSTER-IP … -j KUBE-MARK-MASQ` for each cluster IP",
			Got:     "no such rule is written",
			Causes: []string{
				"kubeadm init without --pod-network-cidr",
				"a ConfigMap of kube-proxy with an empty clusterCIDR",
			},
			Remedy: "set clusterCIDR (or detectLocalMode) with kubectl -n kube-system edit configmap kube-proxy, then kubectl -n kube-system rollout restart daemonset kube-proxy",
		}
		for _, fact := range n.Proxy.Facts {
			if fact.Name == "localMode" && fact.Value == noDetector {
				f.Evidence = append(f.Evidence, factEvidence(fact))
			}
		}
		for _, e := range n.Proxy.Events {
			if e.Kind == traits.NoDetector {
				f.Evidence = append(f.Evidence, report.Evidence{Source: "kube-proxy's log", File: e.File, Line: e.Line, Text: e.Text})
				break
			}
		}
		if len(f.Evidence) == 0 {
			return nil
		}
		f.Subject = fmt.Sprintf("kube-proxy %s: clusterCIDR", n.Proxy.Mode)
		return []report.Finding{f}
	},
	Explains: []string{"masquerade-missing"},
}

// factEvidence is a trait of the proxy, for a finding.
func factEvidence(f traits.Fact) report.Evidence {
	return report.Evidence{Source: "proxy", File: f.File, Line: f.Line, Text: f.Text}
}
