package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// formatsOf are the formats that answer for a source. Any one of them will do. Rules and objects are not here: what
// became of them is known in more detail.
var formatsOf = []struct {
	source  check.Source
	formats []snapshot.Format
	// family is 4 or 6 where the source is that of one family.
	family int
}{
	{check.Flows, []snapshot.Format{snapshot.Conntrack}, 0},
	{check.FlowStats, []snapshot.Format{snapshot.ConntrackStats}, 0},
	{check.Sysctls, []snapshot.Format{snapshot.Sysctl}, 0},
	{check.Addrs, []snapshot.Format{snapshot.IPAddr}, 0},
	{check.Links, []snapshot.Format{snapshot.IPLink, snapshot.IPAddr}, 0},
	{check.Bridges, []snapshot.Format{snapshot.Bridge, snapshot.BridgeLink, snapshot.Hairpin, snapshot.IPLink}, 0},
	{check.Routes4, []snapshot.Format{snapshot.IPRoute}, 4},
	{check.Routes6, []snapshot.Format{snapshot.IPRoute}, 6},
	{check.RouteRules, []snapshot.Format{snapshot.IPRule}, 0},
	{check.Sockets, []snapshot.Format{snapshot.SocketList}, 0},
	{check.ProxyLog, []snapshot.Format{snapshot.ProxyLog}, 0},
	{check.ProxyHTTP, []snapshot.Format{snapshot.ProxyHealthz, snapshot.ProxyMetrics}, 0},
	{check.ProxyConf, []snapshot.Format{snapshot.ProxyConfig, snapshot.ProxyConfigz, snapshot.ProxyArgs}, 0},
	{check.Kernel, []snapshot.Format{snapshot.Uname}, 0},
	{check.KernelLog, []snapshot.Format{snapshot.Dmesg}, 0},
	{check.Offloads, []snapshot.Format{snapshot.Ethtool}, 0},
	{check.IPSets, []snapshot.Format{snapshot.IPSetSave, snapshot.IPSetList}, 0},
}

// readAnswers says of each source that was not answered why.
func (m *model) readAnswers(s *snapshot.Snapshot) map[check.Source]string {
	out := make(map[check.Source]string)
	for _, f := range formatsOf {
		if why := m.unanswered(s, f.formats, f.family); why != "" {
			out[f.source] = why
		}
	}
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		// A trace answers with what there is and says what is missing beside it; for an audit, half of the rules are no
		// answer.
		if why := m.unread(family); why != "" {
			out[check.RulesOf(family)] = why
		} else if r := m.rules[familyIndex(family)]; len(r.missed)+len(r.part) > 0 {
			out[check.RulesOf(family)] = append(r.missed, r.part...)[0]
		} else if !m.iptablesRead(family) {
			out[check.RulesOf(family)] = "only rules of nftables were read"
		}
	}
	if by := m.servedElsewhere(); by != "" {
		out[check.ServiceTables] = by
	}
	m.objectAnswers(s, out)
	m.answerForWindows(out)
	return out
}

// servedElsewhere says what serves Services on this node where that is not kube-proxy with rules of iptables, and so is
// not evaluated; empty where the rules are the answer.
func (m *model) servedElsewhere() string {
	switch mode := m.proxy.Mode; mode {
	case "", "iptables", "nftables", modeUserspace, modeFallback, "none":
	case "ipvs":
		if t := m.kernel.IPVS; t == nil || !t.HasServices {
			return "the virtual servers were not read (give `ipvsadm -Sn`)"
		}
		return ""
	case modeKernelspace:
		return m.unreadHNS()
	default:
		return fmt.Sprintf("the service proxy runs in %s mode, which this version does not evaluate", mode)
	}
	if m.servedBy(netfilter.IPv4) || m.servedBy(netfilter.IPv6) {
		return ""
	}
	for _, o := range m.proxy.Others {
		return o.Name + " serves Services on this node, which this version does not evaluate"
	}
	for _, o := range dataplane.Others() {
		if slices.ContainsFunc(m.rulesets, func(rs *netfilter.Ruleset) bool { return o.Chain(rs) != nil }) {
			return o.Name + " serves Services on this node, which this version does not evaluate"
		}
	}
	return ""
}

// unanswered says why none of the formats answers, empty when one does. A capture that was cut off, or that could not
// be read as what it is, does not speak for what it lacks.
func (m *model) unanswered(s *snapshot.Snapshot, formats []snapshot.Format, family int) string {
	var why string
	answered := false
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if !slices.Contains(formats, e.Format) || snapshot.PodOf(e.File) != "" || family != 0 && e.Family != 0 && e.Family != family {
			continue
		}
		// What became of it in reading stands in the model's sources, in the same order.
		if src := &m.sources[i]; snapshot.Status(src.Status).Answers() {
			answered = true
		} else if why == "" {
			why = fmt.Sprintf("%s is %s", src.File, src.Status)
			if src.Error != "" {
				why = src.Error
			}
		}
	}
	switch {
	case answered:
		return ""
	case why != "":
		return why
	}
	return "not read"
}

// objectAnswers says which kinds of objects were not read. A collector says for each kind what became of it; loose
// files answer for a kind that they hold an object of.
func (m *model) objectAnswers(s *snapshot.Snapshot, out map[check.Source]string) {
	have := map[check.Source]bool{
		check.Services: len(m.objects.Services) > 0, check.Slices: len(m.objects.EndpointSlices) > 0,
		check.LegacyEPs: len(m.objects.Endpoints) > 0, check.Pods: len(m.objects.Pods) > 0, check.Nodes: len(m.objects.Nodes) > 0,
	}
	files := map[check.Source]string{
		check.Services: "services.json", check.Slices: "endpointslices.json", check.LegacyEPs: "endpoints.json",
		check.Pods: "pods.json", check.Nodes: "nodes.json",
	}
	for source, file := range files {
		why := "not read"
		if have[source] {
			why = ""
		}
		for i := range s.Evidence {
			e := &s.Evidence[i]
			if ns, _ := snapshot.ServicePodsOf(e.File); ns != "" || e.Format != snapshot.Objects || e.File != file && !strings.HasSuffix(e.File, "/"+file) {
				continue
			}
			why = ""
			if !e.Status.Answers() {
				why = e.Error
				if why == "" {
					why = string(e.Status)
				}
			}
		}
		if why != "" {
			out[source] = why
		}
	}
}
