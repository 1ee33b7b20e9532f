package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// Status says what serves Services on the node that a snapshot is of, how it is doing, and how that is known. Evidence
// that is missing is no error: the verdict then says less.
func Status(s *snapshot.Snapshot) *report.NodeStatus {
	m := newModel(s)
	n, found := m.audited(AuditOptions{})
	return m.status(s, n, found)
}

// status is the document of what was found.
func (m *model) status(s *snapshot.Snapshot, n *check.Node, found check.Result) *report.NodeStatus {
	out := &report.NodeStatus{
		TypeMeta: metav1.TypeMeta{APIVersion: report.APIVersion, Kind: "NodeStatus"},
		Node:     m.node, Tool: s.Tool, Captured: s.Captured, Sources: m.sources, Own: m.own(),
	}
	out.Ports = m.countPorts(n, found.Findings)
	v := vitals{ports: out.Ports, presence: m.proxy.Presence, health: m.proxy.Health.Word}
	v.read(found.Findings)
	out.Verdict = v.verdict()
	out.Grounds = grounds(m, found.Findings, out.Ports)
	out.Traits = m.traits()
	out.Summary.Text = statusText(m, out)
	return out
}

// What findings say of the proxy itself, and of the rules that it ought to have written.
var (
	sickness     = []string{"proxy-api-unreachable", "proxy-cannot-list-endpointslices", "proxy-sync-failed", "proxy-watch-stalled", "xtables-lock-contention"}
	unprogrammed = []string{
		"excluded-endpoint-used", "kube-jump-missing", "missing-endpoint-rule", "missing-service-rule", "nft-map-entry-missing", "not-ready-endpoint-used",
		"refusal-missing", "reject-rule-with-ready-endpoints", "selection-incomplete", "stale-endpoint-rule", "wrong-translation",
	}
)

// vitals are what a verdict is made of.
type vitals struct {
	presence, health string
	gone, sick       bool
	ports            report.PortCount
}

// read takes over what findings say.
func (v *vitals) read(found []report.Finding) {
	for i := range found {
		v.gone = v.gone || found[i].ID == "proxy-not-running"
		v.sick = v.sick || slices.Contains(sickness, found[i].ID)
	}
}

func (v *vitals) verdict() report.StatusVerdict {
	healthy := v.health == traits.Healthy
	switch {
	case v.gone:
		return report.StatusNotRunning
	case v.sick, v.health == traits.Unhealthy:
		return report.StatusNotHealthy
	case v.ports.Differ > 0 && healthy:
		return report.StatusHealthyNotProgrammed
	case v.ports.Differ > 0:
		return report.StatusNotProgrammed
	case v.ports.Programmed > 0 && v.ports.Unknown == 0 && healthy:
		return report.StatusHealthyProgrammed
	case v.ports.Programmed > 0 && v.ports.Unknown == 0:
		return report.StatusProgrammed
	case healthy:
		return report.StatusHealthy
	}
	return report.StatusUnknown
}

// portID tells service ports apart as findings name them.
type portID struct{ namespace, name, port, protocol string }

// countPorts counts service ports by whether a finding says that they are not programmed. A finding about the node is
// about all of them.
func (m *model) countPorts(n *check.Node, found []report.Finding) report.PortCount {
	differ := make(map[portID]bool)
	all := false
	for i := range found {
		f := &found[i]
		if !slices.Contains(unprogrammed, f.ID) {
			continue
		}
		if f.Object.Kind != "Service" {
			all = true
		}
		differ[portID{f.Object.Namespace, f.Object.Name, f.Object.Port, f.Object.Protocol}] = true
	}
	c := report.PortCount{Total: len(n.Ports)}
	for i := range n.Ports {
		p := &n.Ports[i]
		switch {
		case m.unobserved(p.ServicePort):
			c.Unknown++
		case all || differ[portID{p.Namespace, p.Name, p.PortName, p.Protocol}]:
			c.Differ++
		default:
			c.Programmed++
		}
	}
	return c
}

// grounds are what the verdict rests on.
func grounds(m *model, found []report.Finding, ports report.PortCount) []report.Ground {
	out := []report.Ground{}
	say := func(evidence []report.Evidence, format string, args ...any) {
		if evidence == nil {
			evidence = []report.Evidence{}
		}
		out = append(out, report.Ground{Text: fmt.Sprintf(format, args...), Evidence: evidence})
	}
	presence := evidenceOf(m.proxy.PresenceEvidence)
	switch m.proxy.Presence {
	case traits.Running:
		say(presence, "a proxy runs")
	case traits.Gone:
		say(presence, "no process of a proxy was found, and nobody listens on its ports")
	default:
		say(presence, "whether a proxy runs is not known: neither its process nor its ports were looked at")
	}
	switch h := &m.proxy.Health; {
	case h.Word == "":
		say(nil, "how it is doing is not known: its /healthz was not read")
	case h.Draining:
		say(evidenceOf([]traits.Fact{h.Evidence}), "its /healthz says %s, and tells load balancers to leave this node", h.Word)
	default:
		say(evidenceOf([]traits.Fact{h.Evidence}), "its /healthz says %s", h.Word)
	}
	for i := range found {
		if f := &found[i]; f.ID == "proxy-not-running" || f.ID == "proxy-sync-slow" || slices.Contains(sickness, f.ID) {
			say(f.Evidence, "%s: %s", f.ID, f.Message)
		}
	}
	switch {
	case ports.Total == 0:
		say(nil, "there is no service port to compare the rules with")
	case m.answers[check.ServiceTables] != "":
		say(nil, "what is programmed is not known: %s", m.answers[check.ServiceTables])
	case ports.Unknown == ports.Total:
		say(nil, "what is programmed is not known: rules or endpoints were not read")
	default:
		text := fmt.Sprintf("%d of %s are programmed as the API asks for", ports.Programmed, plural(ports.Total, "service port"))
		if ports.Unknown > 0 {
			text += fmt.Sprintf(", %d are not known", ports.Unknown)
		}
		say(nil, "%s", text)
	}
	for i := range found {
		if f := &found[i]; ports.Differ > 0 && slices.Contains(unprogrammed, f.ID) {
			say(f.Evidence, "%s: %s", f.ID, f.Message)
			break // one shows what is meant; an audit has them all
		}
	}
	return out
}

func evidenceOf(facts []traits.Fact) []report.Evidence {
	out := []report.Evidence{}
	for _, f := range facts {
		out = append(out, evidenceOfFact(f))
	}
	return out
}

func evidenceOfFact(f traits.Fact) report.Evidence {
	return report.Evidence{Source: "proxy", File: f.File, Line: f.Line, Text: f.Text}
}

// statusWords are the verdicts in words.
var statusWords = map[report.StatusVerdict]string{
	report.StatusHealthyProgrammed:    "healthy and programmed",
	report.StatusHealthyNotProgrammed: "healthy but not programmed",
	report.StatusHealthy:              "healthy, what is programmed is not known",
	report.StatusProgrammed:           "programmed, the proxy's health is not known",
	report.StatusNotProgrammed:        "not programmed, the proxy's health is not known",
	report.StatusNotHealthy:           "not healthy",
	report.StatusNotRunning:           "not running",
	report.StatusUnknown:              "not known",
}

func statusText(m *model, s *report.NodeStatus) string {
	where := "a node that the evidence does not name"
	if s.Node != "" {
		where = s.Node
	}
	who := "the service proxy"
	if v := m.proxy.VersionText(); v != "" {
		who = "kube-proxy " + v
	}
	if m.proxy.Mode != "" {
		who += " in " + m.proxy.Mode + " mode"
	}
	text := fmt.Sprintf("%s on %s: %s", who, where, statusWords[s.Verdict])
	if s.Ports.Differ > 0 {
		text += fmt.Sprintf("; %d of %s differ from what the API asks for", s.Ports.Differ, plural(s.Ports.Total, "service port"))
	}
	return text + "."
}

// isDefault is the note of a trait that nothing in the evidence speaks of.
const isDefault = "kube-proxy's default: nothing in the evidence says otherwise"

// traits are those of the proxy, with where each is known from.
func (m *model) traits() []report.Trait {
	p := &m.proxy
	var out []report.Trait
	add := func(name, value, fallback string, facts []traits.Fact) {
		t := report.Trait{Name: name, Value: value, Facts: []report.Fact{}}
		for _, f := range facts {
			t.Facts = append(t.Facts, report.Fact{Value: f.Value, Evidence: evidenceOfFact(f), Note: f.Note})
		}
		if len(facts) == 0 && value == "" && fallback != "" {
			t.Value, t.Note = fallback, isDefault
		} else if len(facts) == 0 && fallback != "" {
			t.Note = isDefault
		}
		out = append(out, t)
	}
	add("mode", p.Mode, "", m.facts("mode"))
	add("backend", p.Backend, "", m.facts("backend"))
	add("version", p.VersionText(), "", m.facts("version"))
	add("running", map[string]string{traits.Running: "yes", traits.Gone: "no"}[p.Presence], "", p.PresenceEvidence)
	var health []traits.Fact
	if p.Health.Word != "" {
		health = append(health, p.Health.Evidence)
	}
	add("health", p.Health.Word, "", health)
	m.addSyncs(add)
	add("nodeName", p.NodeName, "", m.facts("nodeName"))
	add("apiServer", p.Server, "", m.facts("server"))
	add("serviceCIDR", prefixText(p.ServiceCIDRs), "", m.facts("serviceCIDR"))
	add("podCIDR", prefixText(p.PodCIDRs), "", m.facts("podCIDR"))
	add("nodePodCIDR", valuesOf(m.facts("nodePodCIDR")), "", m.facts("nodePodCIDR"))
	add("detectLocalMode", localMode(p), "", slices.Concat(m.facts("localMode"), m.facts("clusterCIDR"), m.facts("localInterface")))
	add("masqueradeMark", "0x"+strconv.FormatUint(uint64(p.MasqueradeMark), 16), "0x4000", m.facts("masqueradeMark"))
	add("masqueradeAll", strconv.FormatBool(p.MasqueradeAll), "false", m.facts("masqueradeAll"))
	add("nodePortAddresses", nodePorts(p), "all local addresses", m.facts("nodePortAddresses"))
	add("localhostNodePorts", strconv.FormatBool(p.LocalhostNodePorts), "true", m.facts("localhostNodePorts"))
	return out
}

// addSyncs adds when each family was last synced.
func (m *model) addSyncs(add func(name, value, fallback string, facts []traits.Fact)) {
	var values []string
	var facts []traits.Fact
	for i := range m.proxy.Health.Syncs {
		s := &m.proxy.Health.Syncs[i]
		if s.Last.IsZero() {
			continue
		}
		value := s.Last.UTC().Format(time.RFC3339)
		if s.Family != "" {
			value = s.Family + " " + value
		}
		values = append(values, value)
		f := s.Evidence
		f.Value = value
		facts = append(facts, f)
	}
	if len(values) == 0 {
		values, facts = m.loggedSyncs()
	}
	add("lastSync", strings.Join(values, ", "), "", facts)
}

// loggedSyncs are the last syncs that the log has, where the proxy's ports say nothing.
func (m *model) loggedSyncs() (values []string, facts []traits.Fact) {
	for _, family := range []string{"", "IPv4", "IPv6"} {
		for i := len(m.proxy.Events) - 1; i >= 0; i-- {
			e := &m.proxy.Events[i]
			if e.Kind != traits.SyncDone || e.Subject != family {
				continue
			}
			t, ok := e.When(m.captured)
			if !ok {
				break
			}
			value := strings.TrimSpace(family + " " + t.Format("Jan 2 15:04:05"))
			values = append(values, value)
			facts = append(facts, traits.Fact{Value: value, File: e.File, Line: e.Line, Text: e.Text})
			break
		}
	}
	return values, facts
}

// facts are those of one trait, the one that decides first.
func (m *model) facts(name string) []traits.Fact {
	var out []traits.Fact
	for _, f := range m.proxy.Facts {
		if f.Name == name {
			out = append(out, f)
		}
	}
	return out
}

func valuesOf(facts []traits.Fact) string {
	var out []string
	for _, f := range facts {
		if !slices.Contains(out, f.Value) {
			out = append(out, f.Value)
		}
	}
	return strings.Join(out, ", ")
}

func prefixText(ps []netip.Prefix) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

// localMode says how the proxy tells local pods, with what it tells them by.
func localMode(p *traits.Proxy) string {
	switch {
	case p.LocalMode == "-":
		return "none: it cannot tell pods from other clients"
	case p.LocalInterface != "":
		return p.LocalMode + " " + p.LocalInterface
	case len(p.ClusterCIDRs) > 0:
		return p.LocalMode + " " + prefixText(p.ClusterCIDRs)
	}
	return p.LocalMode
}

func nodePorts(p *traits.Proxy) string {
	var out []string
	if p.NodePortPrimary {
		out = append(out, "the node's primary addresses")
	}
	if ranges := prefixText(p.NodePortAddresses); ranges != "" {
		out = append(out, ranges)
	}
	if len(out) == 0 {
		return "all local addresses"
	}
	return strings.Join(out, ", ")
}
