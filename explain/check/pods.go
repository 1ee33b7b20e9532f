package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// PodScope says which pods the evidence holds. Outside of it, a pod that is not there may well exist.
type PodScope struct {
	// All is true when the pods of every namespace were listed.
	All bool
	// Namespaces are those whose pods were listed.
	Namespaces map[string]bool
	// OnNode is true when the pods that run on this node were listed.
	OnNode bool
	// Services are those, as "namespace/name", for which the pods that they select were listed.
	Services map[string]bool
}

// podsOf are the pods of a namespace that are known, and whether these are all.
func (n *Node) podsOf(namespace string) (pods []objects.Pod, all bool) {
	list := n.Objects.Pods
	at, _ := slices.BinarySearchFunc(list, namespace, func(p objects.Pod, ns string) int { return cmp.Compare(p.Namespace, ns) })
	end := at
	for end < len(list) && list[end].Namespace == namespace {
		end++
	}
	return list[at:end:end], n.PodScope.All || n.PodScope.Namespaces[namespace]
}

// selected are the pods that a Service's selector matches, as far as they are known, and whether these are all.
func (n *Node) selected(s *service) (pods []objects.Pod, all bool) {
	matches := labels.SelectorFromSet(s.Spec.Selector)
	for _, i := range n.candidates(s) {
		if p := n.Objects.Pods[i]; matches.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	_, all = n.podsOf(s.Namespace)
	return pods, all || n.PodScope.Services[s.key()]
}

// podLabel is a label of pods in a namespace.
type podLabel struct{ namespace, key, value string }

// candidates are the pods, by index, that have the rarest of the labels that a Service selects. A namespace may hold
// thousands of Services and pods.
func (n *Node) candidates(s *service) []int {
	if n.labelled == nil {
		n.labelled = make(map[podLabel][]int)
		for i, p := range n.Objects.Pods {
			for k, v := range p.Labels {
				l := podLabel{p.Namespace, k, v}
				n.labelled[l] = append(n.labelled[l], i)
			}
		}
	}
	var rarest []int
	first := true
	for k, v := range s.Spec.Selector {
		if with := n.labelled[podLabel{s.Namespace, k, v}]; first || len(with) < len(rarest) {
			rarest, first = with, false
		}
	}
	return rarest
}

// wouldKnow tells whether a pod of a namespace that runs on a node would be among the evidence.
func (n *Node) wouldKnow(namespace, node string) bool {
	return n.PodScope.All || n.PodScope.Namespaces[namespace] || n.PodScope.OnNode && node == n.Name && node != ""
}

// podByName finds a pod by "namespace/name".
func (n *Node) podByName(key string) (objects.Pod, bool) {
	namespace, name, _ := strings.Cut(key, "/")
	return n.Objects.Pod(namespace, name)
}

func podEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// podReady tells whether a pod ought to be a ready endpoint of Services that select it.
func podReady(p *corev1.Pod) bool {
	c := podCondition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil && !podEnded(p) && p.Status.PodIP != ""
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// podAddrs are the addresses of a pod, those of the node for one in the host's network.
func podAddrs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// whyUnready says in a few words why a pod is not ready, from what the kubelet and the scheduler report.
func whyUnready(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "is being deleted"
	case podEnded(p):
		return "has ended" + inBrackets(string(p.Status.Phase), p.Status.Reason)
	}
	if c := podCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return "is not scheduled" + inBrackets(c.Reason, shortened(c.Message))
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if why := whyStopped(&list[i]); why != "" {
				return why
			}
		}
	}
	if c := podCondition(p, corev1.PodInitialized); c != nil && c.Status == corev1.ConditionFalse {
		return "has not run its init containers" + inBrackets(shortened(c.Message))
	}
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; !c.Ready {
			return fmt.Sprintf("runs, but container %s %s", c.Name, whyNotReady(p, c))
		}
	}
	for _, g := range p.Spec.ReadinessGates {
		if c := podCondition(p, g.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("waits for its readiness gate %s, which somebody outside of the pod has to set", g.ConditionType)
		}
	}
	c := podCondition(p, corev1.PodReady)
	switch {
	case c == nil:
		return "has no condition Ready" + inBrackets(string(p.Status.Phase))
	case c.Status == corev1.ConditionTrue && p.Status.PodIP == "":
		return "has no address"
	case c.Reason == "NodeStatusUnknown" || c.Status == corev1.ConditionUnknown:
		return fmt.Sprintf("is on node %s, from which nothing is heard", p.Spec.NodeName)
	}
	return "has the condition Ready " + string(c.Status) + inBrackets(c.Reason, shortened(c.Message))
}

// whyStopped says why a container does not run; empty for one that does, or that has done what it had to.
func whyStopped(c *corev1.ContainerStatus) string {
	switch {
	case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
		text := fmt.Sprintf("has container %s waiting: %s", c.Name, c.State.Waiting.Reason)
		if last := c.LastTerminationState.Terminated; last != nil {
			text += fmt.Sprintf(" (last exit code %d%s, %d restarts)", last.ExitCode, exitReason(last.Reason), c.RestartCount)
		}
		return text
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("has container %s stopped with exit code %d%s", c.Name, c.State.Terminated.ExitCode, exitReason(c.State.Terminated.Reason))
	}
	return ""
}

// whyNotReady says of a container that runs what keeps it from being ready.
func whyNotReady(p *corev1.Pod, c *corev1.ContainerStatus) string {
	i := slices.IndexFunc(p.Spec.Containers, func(s corev1.Container) bool { return s.Name == c.Name })
	switch {
	case i >= 0 && p.Spec.Containers[i].StartupProbe != nil && c.Started != nil && !*c.Started:
		return "has not passed its startup probe"
	case i >= 0 && p.Spec.Containers[i].ReadinessProbe != nil:
		return "fails its readiness probe"
	}
	return "is not ready"
}

func exitReason(reason string) string {
	if reason == "" || reason == "Error" {
		return ""
	}
	return " " + reason
}

// inBrackets puts what is there of some words in brackets, each once.
func inBrackets(words ...string) string {
	words = slices.Compact(slices.DeleteFunc(words, func(w string) bool { return w == "" }))
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ": ") + ")"
}

// shortened cuts a message of some component to what fits into a sentence.
func shortened(message string) string {
	const most = 160
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}

// podEvidence is a pod with its state, for a finding.
func podEvidence(p objects.Pod, state string) report.Evidence {
	return ObjectEvidence(p.Evidence, fmt.Sprintf("Pod %s/%s %s", p.Namespace, p.Name, state))
}

func podNames(pods []objects.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
