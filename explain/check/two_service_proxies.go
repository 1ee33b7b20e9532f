package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
)

// twoServiceProxies: kube-proxy's rules are in place, and another program says that it serves all Services too.
var twoServiceProxies = Check{
	ID: "two-service-proxies", Severity: Error,
	Title: "nodes on which two programs serve Services",
	Node: func(n *Node) []report.Finding {
		if len(n.Proxy.Others) == 0 {
			return nil
		}
		var (
			rules *netfilter.Ruleset
			rule  *netfilter.Rule
		)
		for _, rs := range n.Rulesets {
			if r, active := dataplane.Serving(rs); active {
				rules, rule = rs, r
				break
			}
		}
		if rule == nil {
			n.NeedsAny(Rules4, Rules6)
			return nil
		}
		other := n.Proxy.Others[0]
		f := report.Finding{
			Subject: other.Name + " and kube-proxy",
			Message: fmt.Sprintf("%s serves Services on this node (%s), and so do kube-proxy's rules: which of them decides depends on the way that a packet takes, and session affinity, node ports and connection tracking have two truths",
				other.Name, other.Value),
			Want:     "one program that serves Services",
			Got:      fmt.Sprintf("%s (%s) and kube-proxy's chains", other.Name, other.Value),
			Evidence: []report.Evidence{{Source: "proxy", File: other.File, Line: other.Line, Text: other.Text}, RuleEvidence(rules, rule)},
			Causes:   []string{"the distribution starts kube-proxy by itself (k3s, MicroK8s, kubeadm's DaemonSet), and it was not turned off", "kube-proxy was removed and its rules stayed"},
			Remedy:   "stop kube-proxy (kubectl -n kube-system delete daemonset kube-proxy; k3s: --disable-kube-proxy), then remove its rules on each node: kube-proxy --cleanup, or iptables-save | grep -v KUBE | iptables-restore",
		}
		if pod := n.proxyPod(); pod != "" {
			f.Message += fmt.Sprintf("; kube-proxy runs here as pod %s", pod)
		}
		if n.agrees() {
			f.Severity = Warning
			f.Message += ". Traffic works: kube-proxy's rules agree with the API"
		}
		return []report.Finding{f}
	},
}

// proxyPod is the kube-proxy pod of this node, empty where none is known.
func (n *Node) proxyPod() string {
	for _, p := range n.Objects.Pods {
		if p.Labels["k8s-app"] == "kube-proxy" && p.Status.Phase == corev1.PodRunning && (n.Name == "" || p.Spec.NodeName == n.Name) {
			return p.Namespace + "/" + p.Name
		}
	}
	return ""
}

// agrees tells whether every cell that was looked at has the outcome that the objects ask for.
func (n *Node) agrees() bool {
	for i := range n.Ports {
		for _, paths := range n.Ports[i].Cells {
			for j := range paths {
				p := &paths[j]
				if p.Intended == nil || p.Intended.Result != p.Result {
					return false
				}
				for _, b := range p.Backends {
					if b.State != "ok" {
						return false
					}
				}
			}
		}
	}
	return len(n.Ports) > 0
}
