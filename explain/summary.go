package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// maxClauses bounds the sentence: what the first clauses do not say stands in the paths below it.
const maxClauses = 4

// summary answers in prose what happens to a client of the Service on this node.
func (m *model) summary(t *report.Trace) string {
	name := t.Metadata.Namespace + "/" + t.Metadata.Name
	if len(t.Paths) == 0 {
		return fmt.Sprintf("Nothing to show for %s: no frontend and source class is left of the selection.", name)
	}
	type clause struct {
		fate  string
		cells []*report.Path
	}
	var clauses []*clause
	everybody := make(map[string][]string)
	for _, cell := range cells(t.Paths) {
		f := fateOf(cell)
		at := slices.IndexFunc(clauses, func(c *clause) bool { return c.fate == f })
		if at < 0 {
			clauses = append(clauses, &clause{fate: f})
			at = len(clauses) - 1
		}
		clauses[at].cells = append(clauses[at].cells, &cell[0])
		everybody[cell[0].Frontend.Kind] = append(everybody[cell[0].Frontend.Kind], classWord(&cell[0]))
	}
	var out []string
	for i, c := range clauses {
		if i == maxClauses {
			out = append(out, fmt.Sprintf("%d more outcomes are listed below", len(clauses)-i))
			break
		}
		if len(clauses) == 1 {
			out = append(out, c.fate)
		} else {
			out = append(out, who(c.cells, everybody)+" "+c.fate)
		}
	}
	lead := "A new connection to " + name
	if m.node != "" {
		lead += " on " + m.node
	}
	sentences := []string{lead + " " + strings.Join(out, "; ") + "."}
	if t.AffinitySeconds > 0 {
		sentences = append(sentences, fmt.Sprintf("A client that comes back within %s gets the same backend (ClientIP affinity).", span(t.AffinitySeconds)))
	}
	return strings.Join(append(sentences, mismatches(t.Findings)...), " ")
}

// packetSummary says what happens to one packet.
func (m *model) packetSummary(c *cell, paths []report.Path) string {
	subject := fmt.Sprintf("A new %s connection from %s to %s", c.frontend.Protocol, paths[0].Source, c.dst)
	if slices.ContainsFunc(paths, func(p report.Path) bool {
		return p.Result == report.ResultDNATByConntrack || p.Result == report.ResultUntranslatedByConntrk
	}) {
		subject = fmt.Sprintf("The tracked %s flow from %s to %s", c.frontend.Protocol, paths[0].Source, c.dst)
	}
	if m.node != "" {
		subject += " through " + m.node
	}
	return subject + " " + fateOf(paths) + "."
}

// cells splits paths, which come cell by cell.
func cells(paths []report.Path) [][]report.Path {
	var out [][]report.Path
	for i := range paths {
		if n := len(out); n > 0 && sameCell(&out[n-1][0], &paths[i]) {
			out[n-1] = append(out[n-1], paths[i])
		} else {
			out = append(out, paths[i:i+1:i+1])
		}
	}
	return out
}

// fateOf says what happens to connections of one cell, with a plural or singular subject alike.
func fateOf(paths []report.Path) string {
	certain := true
	var parts []string
	for i := range paths {
		p := &paths[i]
		text := pathFate(p)
		if len(p.Uncertain) > 0 {
			certain = false
			text += " if " + p.Uncertain[0].Condition
		} else if len(paths) > 1 {
			text = fmt.Sprintf("in %s of cases %s", percent(p.Probability), text)
		}
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if len(parts) > 3 {
		parts = append(parts[:3], fmt.Sprintf("%d more ways", len(parts)-3))
	}
	if !certain {
		return "cannot be decided from these files: " + strings.Join(parts, "; ")
	}
	return strings.Join(parts, ", ")
}

func pathFate(p *report.Path) string {
	if len(p.Hops) > 0 && p.Hops[len(p.Hops)-1].Pod != "" && len(p.Backends) == 1 && p.Backends[0].Inside != nil {
		in := p.Backends[0].Inside
		return fmt.Sprintf("never leaves pod %s (%s)", in.Pod, in.Text)
	}
	switch p.Result {
	case report.ResultDNAT, report.ResultIPVS, report.ResultBPF:
		return "reaches " + backendsText(p)
	case report.ResultRedirect:
		if dataplane.IsPortal(p.TranslatedBy) {
			return "is taken by kube-proxy's own process, which picks a backend by itself"
		}
		return "ends at a local process (redirect)"
	case report.ResultTProxy:
		return "ends at a transparent proxy"
	case report.ResultReject:
		return fmt.Sprintf("is refused at once (%s)", verdictText(p))
	case report.ResultDrop:
		return fmt.Sprintf("times out (%s)", verdictText(p))
	case report.ResultNoRoute:
		return "goes nowhere" + behindTranslation(p) + " (" + p.Because + ")"
	case report.ResultMartian:
		return "is dropped by the kernel" + behindTranslation(p) + " (" + p.Because + ")"
	case report.ResultLocalProcess:
		return "ends at a process of the node"
	case report.ResultUntrackedLocal:
		return "skips translation (NOTRACK) and ends at a process of the node"
	case report.ResultAcceptedUndelivered:
		return fmt.Sprintf("passes untranslated (accepted by %s before the service rules)", p.TranslatedBy)
	case report.ResultDNATByConntrack:
		return "goes on to " + backendsText(p) + " by its connection tracking entry, whatever the rules say now"
	case report.ResultUntranslatedByConntrk:
		return "stays untranslated by its connection tracking entry, whatever the rules say now"
	case report.ResultNoMatch:
		return "meets no service rule and is not translated"
	}
	return "cannot be followed to its end"
}

func backendsText(p *report.Path) string {
	var live []*report.Backend
	for i := range p.Backends {
		if p.Backends[i].Probability > 0 {
			live = append(live, &p.Backends[i])
		}
	}
	if len(live) == 0 {
		return "no backend"
	}
	if len(live) == 1 {
		return "one backend, " + backendAddr(live[0]).String()
	}
	lo, hi := live[0].Probability, live[0].Probability
	for _, b := range live {
		lo, hi = min(lo, b.Probability), max(hi, b.Probability)
	}
	if percent(lo) == percent(hi) {
		return fmt.Sprintf("one of %d backends (%s each)", len(live), percent(lo))
	}
	return fmt.Sprintf("one of %d backends (%s to %s)", len(live), percent(lo), percent(hi))
}

func verdictText(p *report.Path) string {
	text := strings.TrimSpace(p.Table + " " + p.Chain + behindTranslation(p))
	if text == "" && len(p.Hops) > 0 && p.Hops[len(p.Hops)-1].Kind == "virtual-server" {
		text = "by its virtual server"
	}
	if p.Intended != nil && p.Intended.Result == p.Result {
		text = strings.TrimPrefix(text+", as intended", ", ")
	}
	return text
}

func behindTranslation(p *report.Path) string {
	if p.TranslatedBy == "" {
		return ""
	}
	return " after translation"
}

func classWord(p *report.Path) string {
	return cmp.Or(intent.Class(p.SourceClass).Words(), "the client")
}

// who names the clients of cells: "from pods of this node or other nodes to the ClusterIP", or just "to the
// NodePort" where nobody fares otherwise there.
func who(cells []*report.Path, everybody map[string][]string) string {
	var kinds []string
	classes := make(map[string][]string)
	for _, p := range cells {
		k := p.Frontend.Kind
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
		classes[k] = append(classes[k], classWord(p))
	}
	for k := range classes {
		if slices.Equal(classes[k], everybody[k]) {
			classes[k] = nil
		}
		slices.Sort(classes[k])
		classes[k] = slices.Compact(classes[k])
	}
	var out []string
	for i := 0; i < len(kinds); i++ {
		same := []string{kinds[i]}
		for j := i + 1; j < len(kinds); {
			if slices.Equal(classes[kinds[j]], classes[kinds[i]]) {
				same = append(same, kinds[j])
				kinds = slices.Delete(kinds, j, j+1)
			} else {
				j++
			}
		}
		text := "to the " + list(same)
		if from := classes[kinds[i]]; len(from) > 0 {
			text = "from " + list(from) + " " + text
		}
		out = append(out, text)
	}
	return list(out)
}

func mismatches(fs []report.Finding) []string {
	var out []string
	for _, f := range fs {
		if f.Severity == "info" {
			continue
		}
		if len(out) == 3 {
			out = append(out, fmt.Sprintf("%d more findings are listed below.", len(fs)-3))
			break
		}
		out = append(out, f.Message+".")
	}
	return out
}

// span is a time in the largest unit that divides it.
func span(seconds int) string {
	for _, u := range []struct {
		seconds int
		name    string
	}{{3600, "hour"}, {60, "minute"}, {1, "second"}} {
		if seconds%u.seconds != 0 {
			continue
		}
		if n := seconds / u.seconds; n != 1 {
			return fmt.Sprintf("%d %ss", n, u.name)
		}
		return "1 " + u.name
	}
	return ""
}

func list(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", share*100) }
