package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// KindAdvice is the kind of steps that svcnet does not do: somebody else owns what they change.
const KindAdvice = "advice"

// troubles are the findings that say what keeps kube-proxy from its work, with what is to be done in a few words.
var troubles = []struct{ id, do string }{
	{"proxy-not-running", "start kube-proxy"},
	{"two-service-proxies", "stop one of the two service proxies"},
	{"proxy-api-unreachable", "let kube-proxy reach the API server"},
	{"proxy-cannot-list-endpointslices", "let kube-proxy read EndpointSlices"},
	{"proxy-watch-stalled", "restart kube-proxy, which does not follow the API any more"},
	{"proxy-sync-failed", "let kube-proxy write its rules"},
	{"node-name-mismatch", "give kube-proxy the name of its Node"},
	{"cluster-cidr-not-set", "tell kube-proxy the range of pods"},
	{"iptables-backend-split", "let kube-proxy use the same iptables as the others on this node"},
	{"xtables-lock-contention", "find out who keeps the lock of iptables"},
}

// advise says what is to be done about the proxy itself: it owns most of what the steps change, and writes it anew.
func (s *site) advise(steps []report.RepairStep) []report.RepairStep {
	var out []report.RepairStep
	for _, t := range troubles {
		found := s.which(func(f *report.Finding) bool { return f.ID == t.id })
		if len(found) == 0 {
			continue
		}
		f := &s.findings[found[0]]
		step := advice(t.do, f.Message, f.Remedy)
		if t.id == "proxy-watch-stalled" {
			step.Do.Command = s.restart()
		}
		s.mends(found...)
		out = append(out, step)
	}
	if len(out) > 0 || !slices.ContainsFunc(steps, func(r report.RepairStep) bool { return r.Owner == ownerProxy }) {
		return out
	}
	if s.node.Proxy.Presence == traits.Gone {
		return nil
	}
	if _, runs := s.node.ProxyPod(); !runs && s.node.Proxy.Presence != traits.Running {
		return nil
	}
	step := advice("restart kube-proxy on this node", "what the steps below write is kube-proxy's own: when it starts it writes all of it anew, and keeps it so; while it runs it may not notice what others changed for a long time",
		"the steps below do the same by hand, for when a restart is not possible or does not help; kube-proxy's next full sync then writes over them")
	step.Do.Command = s.restart()
	return []report.RepairStep{step}
}

func advice(title, reason, risk string) report.RepairStep {
	return report.RepairStep{
		Kind: KindAdvice, Owner: ownerProxy, Title: title, Reason: reason, Risk: risk,
		Affects: "all Services of the node", Edits: []report.RepairEdit{},
		Do: report.RepairCommand{Command: []string{}}, Undo: report.RepairCommand{Command: []string{}},
	}
}

// units are the services of systemd that run kube-proxy inside another program, by its name and first argument.
var units = []struct{ program, argument, unit string }{
	{"k3s", "server", "k3s"},
	{"k3s", "agent", "k3s-agent"},
}

// restart is the command that restarts kube-proxy the way it runs; empty where that is not known.
func (s *site) restart() []string {
	if pod, _ := s.node.ProxyPod(); pod.Pod != nil {
		return []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name}
	}
	for _, f := range s.node.Proxy.PresenceEvidence {
		words := strings.Fields(f.Text)
		if f.Value != "process" || len(words) == 0 {
			continue
		}
		program := path.Base(words[0])
		for _, u := range units {
			if program == u.program && len(words) > 1 && words[1] == u.argument {
				return []string{"systemctl", "restart", u.unit}
			}
		}
	}
	return []string{}
}
