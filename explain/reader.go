package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// reader turns pieces of evidence into the model and gathers what tells the proxy's traits.
type reader struct {
	model  *model
	memory *objects.Memory
	traits traits.Evidence
	nft    []nftCapture
	sets   []*ipset.Set
	// parsed are large captures of rules that are being parsed beside everything else.
	parsed map[*snapshot.Evidence]chan parsedRules
	// saved is the newest time that a capture of rules says it was made at.
	saved time.Time
}

// hostParsers are the captures of host state, by format.
var hostParsers = map[snapshot.Format]func(h *host.Host, family int, text, file string) ([]host.Problem, error){
	snapshot.IPAddr:     anyFamily(host.ParseAddrs),
	snapshot.IPLink:     anyFamily(host.ParseLinks),
	snapshot.IPRoute:    host.ParseRoutes,
	snapshot.IPRule:     host.ParseRules,
	snapshot.Sysctl:     anyFamily(host.ParseSysctls),
	snapshot.Conntrack:  anyFamily(host.ParseConntrack),
	snapshot.SocketList: anyFamily(host.ParseSockets),
	snapshot.XTRecent:   anyFamily(host.ParseRecent),
	snapshot.Bridge:     anyFamily(host.ParseBridges),
	snapshot.BridgeLink: anyFamily(host.ParseBridgeLinks),
	snapshot.Hairpin:    anyFamily(host.ParseHairpin),
	snapshot.Uname:      anyFamily(host.ParseUname),

	snapshot.ConntrackStats: anyFamily(host.ParseFlowStats),
	snapshot.Dmesg:          anyFamily(host.ParseKernelLog),
	snapshot.Ethtool:        anyFamily(host.ParseOffloads),
}

func anyFamily(parse func(h *host.Host, text, file string) ([]host.Problem, error)) func(*host.Host, int, string, string) ([]host.Problem, error) {
	return func(h *host.Host, _ int, text, file string) ([]host.Problem, error) { return parse(h, text, file) }
}

// rulesetParsers are the captures of iptables rules, by format.
var rulesetParsers = map[snapshot.Format]func(text, file string, hint netfilter.Hint) ([]*netfilter.Ruleset, error){
	snapshot.IPTablesSave:  netfilter.ParseSave,
	snapshot.IPTablesRules: netfilter.ParseRules,
	snapshot.IPTablesList:  netfilter.ParseList,
}

// read takes in one piece of evidence. What became of it shows in the model's sources.
func (r *reader) read(e *snapshot.Evidence) {
	src := report.Source{Name: string(e.Format), Status: string(e.Status), File: e.File, Error: e.Error}
	if e.Format == snapshot.Unrecognised {
		src.Name = "unrecognised"
	}
	defer func() { r.model.sources = append(r.model.sources, src) }()
	fail := func(status snapshot.Status, format string, args ...any) {
		src.Status = string(status)
		src.Error = strings.TrimPrefix(src.Error+"; "+fmt.Sprintf(format, args...), "; ")
	}
	if in := r.model.insideOf(e); in != nil {
		r.readInside(in, e, &src, fail)
		return
	}
	if _, rules := rulesetParsers[e.Format]; rules {
		r.model.noteRules(e)
	}
	r.presence(e)
	r.otherProxies(e)
	r.noneOf(e)
	if e.Status != snapshot.OK && e.Status != snapshot.Truncated {
		return
	}
	text := func() traits.Source { return traits.Source{File: e.File, Text: e.Text()} }

	if parse, ok := rulesetParsers[e.Format]; ok {
		if t, ok := netfilter.SavedAt(e.Text()); ok && t.After(r.saved) {
			r.saved = t
		}
		r.model.rulesets = append(r.model.rulesets, r.parseRules(e, parse, &src, fail)...)
		return
	}
	switch e.Format {
	case snapshot.IPSetSave, snapshot.IPSetList:
		r.readSets(e, &src, fail)
		return
	case snapshot.IPVSSave, snapshot.IPVSList, snapshot.IPVSConns:
		r.readIPVS(e, &src, fail)
		return
	}
	if rank := nftRank(e.Format); rank >= 0 {
		if rs := r.readNFT(e, &src, fail); rs != nil {
			r.nft = append(r.nft, nftCapture{rank, rs})
		}
		return
	}
	if parse, ok := hostParsers[e.Format]; ok {
		r.hostState(r.model.kernel.Host, e, parse, &src, fail)
		return
	}
	switch e.Format {
	case snapshot.WindowsHNS:
		r.readHNS(e, fail)
	case snapshot.Objects:
		r.objects(e, &src, fail)
	case snapshot.ProxyLog:
		r.traits.Logs = append(r.traits.Logs, text())
	case snapshot.ProxyConfig:
		r.traits.Configs = append(r.traits.Configs, text())
	case snapshot.ProxyConfigz:
		r.traits.Configz = append(r.traits.Configz, text())
	case snapshot.ProxyHealthz:
		r.traits.Healthz = append(r.traits.Healthz, text())
	case snapshot.ProxyMetrics:
		r.traits.Metrics = append(r.traits.Metrics, text())
	case snapshot.ProxyMode:
		r.traits.ProxyModes = append(r.traits.ProxyModes, text())
	case snapshot.ProxyArgs:
		r.traits.Args = append(r.traits.Args, text())
	case snapshot.Kubeconfig:
		r.traits.Kubeconfigs = append(r.traits.Kubeconfigs, text())
	case snapshot.APIServerFlags:
		r.traits.APIServerFlags = append(r.traits.APIServerFlags, text())
	case snapshot.CNILog:
		r.traits.CNILogs = append(r.traits.CNILogs, text())
	}
}

// presence notes where a collector looked for the proxy and found none.
func (r *reader) presence(e *snapshot.Evidence) {
	if e.Status != snapshot.Absent {
		return
	}
	found := traits.Source{File: e.File, Text: e.Note}
	switch e.Format {
	case snapshot.ProxyArgs:
		r.traits.NoProcess = append(r.traits.NoProcess, found)
	case snapshot.ProxyHealthz, snapshot.ProxyMetrics:
		r.traits.NoListener = append(r.traits.NoListener, found)
	}
}

// hostState reads a capture of the state of one network namespace.
func (r *reader) hostState(h *host.Host, e *snapshot.Evidence, parse func(*host.Host, int, string, string) ([]host.Problem, error), src *report.Source, fail func(snapshot.Status, string, ...any)) {
	problems, err := parse(h, e.Family, e.Text(), e.File)
	said(problems, err, src, fail)
}

// parsedRules is what a parser of rules returns.
type parsedRules struct {
	rulesets []*netfilter.Ruleset
	err      error
}

// largeCapture is from how many bytes on rules are parsed while other evidence is read.
const largeCapture = 256 << 10

// begin parses large captures of rules, each by a goroutine of its own; parseRules takes what became of them.
func (r *reader) begin(s *snapshot.Snapshot) {
	r.parsed = make(map[*snapshot.Evidence]chan parsedRules)
	for i := range s.Evidence {
		e := &s.Evidence[i]
		parse, ok := rulesetParsers[e.Format]
		if !ok || len(e.Data) < largeCapture || e.Status != snapshot.OK && e.Status != snapshot.Truncated {
			continue
		}
		done := make(chan parsedRules, 1)
		r.parsed[e] = done
		go func() { done <- parsedBy(parse, e) }()
	}
}

func parsedBy(parse func(string, string, netfilter.Hint) ([]*netfilter.Ruleset, error), e *snapshot.Evidence) (p parsedRules) {
	p.rulesets, p.err = parse(e.Text(), e.File, netfilter.Hint{Family: netfilter.Family(e.Family), Backend: netfilter.Backend(e.Backend)})
	return p
}

// parseRules reads a capture of iptables rules.
func (r *reader) parseRules(e *snapshot.Evidence, parse func(string, string, netfilter.Hint) ([]*netfilter.Ruleset, error), src *report.Source, fail func(snapshot.Status, string, ...any)) []*netfilter.Ruleset {
	text := e.Text()
	var p parsedRules
	if done := r.parsed[e]; done != nil {
		p = <-done
	} else {
		p = parsedBy(parse, e)
	}
	if p.err != nil {
		fail(snapshot.Failed, "%v", p.err)
		return nil
	}
	rulesets := p.rulesets
	netfilter.MarkPartial(rulesets, text)
	for _, rs := range rulesets {
		if n := len(rs.Problems); n > 0 {
			p := rs.Problems[0]
			status := snapshot.Status(src.Status)
			if e.Format == snapshot.IPTablesSave && rs.Partial() {
				status = snapshot.Truncated
			}
			said := fmt.Sprintf("line %d: %s", p.Line, p.Why)
			if n > 1 {
				said += fmt.Sprintf(" (and %d more lines)", n-1)
			}
			fail(status, "%s", said)
		}
	}
	return rulesets
}

func (r *reader) objects(e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	before := r.model.objects.Len()
	problems := r.memory.Decode(r.model.objects, e.Data, e.File)
	if len(problems) == 0 {
		return
	}
	p := problems[0]
	text := fmt.Sprintf("line %d: %s", p.Line, p.Why)
	if len(problems) > 1 {
		text += fmt.Sprintf(" (and %d more documents)", len(problems)-1)
	}
	status := snapshot.Status(src.Status)
	if r.model.objects.Len() == before {
		status = snapshot.Failed
	}
	fail(status, "%s", text)
}

// configMap takes the settings of kubeadm's and Cilium's ConfigMaps.
func (r *reader) configMap(c objects.ConfigMap) {
	switch {
	case c.Name == "kube-proxy" && c.Data["config.conf"] != "":
		r.traits.ConfigMaps = append(r.traits.ConfigMaps, traits.Source{File: c.File, Line: c.Line, Text: c.Data["config.conf"]})
	case c.Name == "cilium-config" && c.Data["kube-proxy-replacement"] != "":
		text := "kube-proxy-replacement: " + c.Data["kube-proxy-replacement"]
		r.traits.Cilium = append(r.traits.Cilium, traits.Source{File: c.File, Line: c.Line, Text: text})
	case c.Name == "kubeadm-config" && c.Data["ClusterConfiguration"] != "":
		r.traits.KubeadmConfigs = append(r.traits.KubeadmConfigs, traits.Source{File: c.File, Line: c.Line, Text: c.Data["ClusterConfiguration"]})
	}
}

// otherProxies takes what other service proxies say of themselves. Their tables are not evaluated, whatever the status.
func (r *reader) otherProxies(e *snapshot.Evidence) {
	src := traits.Source{File: e.File, Text: e.Text()}
	switch e.Format {
	case snapshot.CiliumText:
		r.traits.Cilium = append(r.traits.Cilium, src)
	case snapshot.CalicoBPF:
		r.traits.CalicoBPF = append(r.traits.CalicoBPF, src)
	}
}
