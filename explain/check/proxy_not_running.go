package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxyNotRunning: nothing maintains the service rules. What is there works until something changes.
var proxyNotRunning = Check{
	ID: "proxy-not-running", Severity: Error,
	Title:    "nodes on which no service proxy runs",
	Explains: append([]string{"proxy-watch-stalled"}, unsynced...),
	Node: func(n *Node) []report.Finding {
		if n.servedByOther() {
			return nil
		}
		pod, known := n.podOfProxy()
		var f report.Finding
		switch stopped := known && !runningPod(pod.Pod); {
		case n.Proxy.Presence == traits.Running, known && !stopped:
			return nil
		case stopped:
			f = report.Finding{
				Message:  fmt.Sprintf("the kube-proxy pod of this node, %s/%s, does not run: it %s", pod.Namespace, pod.Name, whyUnready(pod.Pod)),
				Got:      whyUnready(pod.Pod),
				Evidence: []report.Evidence{podEvidence(pod, whyUnready(pod.Pod))},
				Remedy:   fmt.Sprintf("see why it stops: kubectl -n %s logs %s --previous", pod.Namespace, pod.Name),
			}
		case n.Proxy.Presence == traits.Gone:
			f = report.Finding{
				Message: "no kube-proxy runs on this node: there is no such process, and nobody listens on its ports",
				Got:     "no process, and nobody on ports 10256 and 10249",
				Remedy:  "see why it does not run: kubectl -n kube-system get pods -o wide -l k8s-app=kube-proxy (is there one for this node, do taints keep it away?), or systemctl status kube-proxy; for a dataplane that replaces kube-proxy, remove the rules that are left with kube-proxy --cleanup",
			}
			for _, fact := range n.Proxy.PresenceEvidence {
				f.Evidence = append(f.Evidence, factEvidence(fact))
			}
		default:
			elsewhere, ok := n.proxyElsewhere()
			if !ok {
				if n.behind() != nil {
					n.NeedsAny(ProxyHTTP, ProxyConf, ProxyLog)
				}
				return nil
			}
			f = report.Finding{
				Message:  fmt.Sprintf("other nodes have a kube-proxy pod (%s on %s), this one has none", elsewhere.Name, elsewhere.Spec.NodeName),
				Got:      "no kube-proxy pod on this node",
				Evidence: []report.Evidence{podEvidence(elsewhere, "runs on node "+elsewhere.Spec.NodeName)},
				Remedy:   "see why the DaemonSet makes none here (taints, a node selector): kubectl -n kube-system describe daemonset kube-proxy",
			}
		}
		f.Subject, f.Want = "kube-proxy", "a service proxy that runs"
		if e, ok := n.rulesOfProxy(); ok {
			f.Message += "; its rules are still there and serve what was true when it stopped"
			f.Evidence = append(f.Evidence, e)
		} else {
			if len(n.Plan.Ports) == 0 || n.withoutRules() || !n.Needs(Rules4, Rules6) {
				return nil
			}
			f.Message += ", and there are no service rules either: no Service works here"
		}
		return []report.Finding{f}
	},
}

// servedByOther tells whether there are signs of a dataplane that does without kube-proxy.
func (n *Node) servedByOther() bool {
	if len(n.Proxy.Others) > 0 {
		return true
	}
	for _, o := range dataplane.Others() {
		if _, ok := n.traceOf(&o); ok {
			return true
		}
	}
	return false
}

// withoutRules tells whether a dataplane is here that may serve Services without leaving a trace in the rules: Cilium
// or Calico with BPF. Both may as well leave Services to kube-proxy.
func (n *Node) withoutRules() bool {
	return slices.ContainsFunc(n.Host.Links, func(l host.Link) bool {
		return strings.HasPrefix(l.Name, "cilium_") || strings.HasPrefix(l.Name, "bpfin.cali")
	})
}

// rulesOfProxy is a rule or table of kube-proxy's that is in force.
func (n *Node) rulesOfProxy() (report.Evidence, bool) {
	for _, rs := range n.Rulesets {
		if r, serving := dataplane.Serving(rs); serving {
			return RuleEvidence(rs, r), true
		}
	}
	for _, f := range n.Proxy.Facts {
		if f.Name == "mode" && f.Value == "nftables" && strings.HasPrefix(f.Text, "table") {
			return factEvidence(f), true
		}
	}
	return report.Evidence{}, false
}

// isProxyPod tells the pods of kube-proxy: kubeadm's and kind's DaemonSet, or a static pod.
func isProxyPod(p *corev1.Pod) bool {
	return p.Namespace == "kube-system" && (p.Labels["k8s-app"] == "kube-proxy" || strings.HasPrefix(p.Name, "kube-proxy-"))
}

// podOfProxy is the kube-proxy pod of this node: one that runs before one that does not.
func (n *Node) podOfProxy() (pod objects.Pod, ok bool) {
	for _, p := range n.Objects.Pods {
		if n.Name == "" || p.Spec.NodeName != n.Name || !isProxyPod(p.Pod) || podEnded(p.Pod) {
			continue
		}
		if !ok || runningPod(p.Pod) {
			pod, ok = p, true
		}
	}
	return pod, ok
}

// ProxyPod is the kube-proxy pod of this node, and whether it runs; the zero Pod where there is none, or none is known.
func (n *Node) ProxyPod() (pod objects.Pod, runs bool) {
	pod, ok := n.podOfProxy()
	return pod, ok && runningPod(pod.Pod)
}

// proxyElsewhere is a kube-proxy pod of another node, where the pods of kube-system are all known and this node has none.
func (n *Node) proxyElsewhere() (objects.Pod, bool) {
	pods, all := n.podsOf("kube-system")
	if !all || n.Name == "" {
		return objects.Pod{}, false
	}
	for _, p := range pods {
		if isProxyPod(p.Pod) && p.Spec.NodeName != "" && p.Spec.NodeName != n.Name && runningPod(p.Pod) {
			return p, true
		}
	}
	return objects.Pod{}, false
}

// runningPod tells whether a container of the pod runs. An object without container states is taken to.
func runningPod(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil || c.State.Terminated != nil {
			return false
		}
	}
	return true
}
