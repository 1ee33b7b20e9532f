package recorded

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// difference is where some versions do something else with the same objects than the newest recorded one does.
type difference struct {
	service string
	// frontends that differ are those whose name begins so: all when empty.
	frontends string
	// versions are those that do it the old way.
	versions span
	because  string
	// chance: the old way is the new one, too, now and then.
	chance bool
}

var differences = []difference{
	{service: "zone-hints", versions: span{to: 30}, because: "hints count without the annotation since 1.31 (ServiceTrafficDistribution)"},
	{service: "node-hints", versions: span{to: 33}, because: "hints for nodes count since 1.34 (PreferSameTrafficDistribution)"},
	{service: "balancer-ranges-all", frontends: "LoadBalancer", versions: span{to: 33}, because: "a source range /0 means no restriction, and makes no chain of its own, since 1.34"},
	{service: "balancer-proxied", frontends: "LoadBalancer", versions: span{to: 29}, because: "ipMode Proxy keeps the address out of the rules since 1.30 (LoadBalancerIPMode)"},
	{service: "leaving-and-back", versions: span{to: 35}, because: "of two copies of an endpoint the one that is not terminating counts since 1.36; before, that of the slice which was read last, and slices are read in no order", chance: true},
	{service: "hidden-slice", versions: span{to: 35}, because: "slices labelled for another proxy are read since 1.36"},
}

// covers tells whether the difference is expected of a version at a frontend of a Service.
func (d difference) covers(minor int, service, frontend string) bool {
	return d.versions.has(minor) && d.service == service && strings.HasPrefix(frontend, d.frontends)
}

// wordings are rules that say the same in other words.
var wordings = []struct {
	versions span
	// older makes of the newest recorded version's words those of these versions.
	older   *strings.Replacer
	because string
}{
	{span{to: 30}, strings.NewReplacer("-d 127.0.0.0/8 -p", "-p", " -m nfacct --nfacct-name  localhost_nps_accepted_pkts", ""),
		"the same jump for node ports on localhost stands twice since 1.31, first with a counter"},
}

// reword puts a graph of the newest recorded version in the words of another.
func reword(minor int, graph []string) []string {
	out := slices.Clone(graph)
	for _, w := range wordings {
		for i := range out {
			if w.versions.has(minor) {
				out[i] = w.older.Replace(out[i])
			}
		}
	}
	return out
}

// TestTrace: the same objects make the same graph in every version, but for the differences that are listed; those are
// there.
//
// It is about iptables mode, whose chains stayed the same; other modes are held against it in TestConformance.
func TestTrace(t *testing.T) {
	all := recordings(t, "iptables")
	newest := all[len(all)-1]
	services := servicesOf(t, newest)
	want := map[string]map[string][]string{}
	for _, s := range services {
		want[s] = graph(t, newest, s)
	}
	for _, r := range all[:len(all)-1] {
		t.Run(r.folder, func(t *testing.T) {
			if got := servicesOf(t, r); !slices.Equal(got, services) {
				t.Fatalf("other Services than in %s: %s", newest.folder, cmp.Diff(services, got))
			}
			met := map[int]bool{}
			for _, s := range services {
				got := graph(t, r, s)
				for _, frontend := range frontends(want[s], got) {
					diff := cmp.Diff(reword(r.minor, want[s][frontend]), got[frontend])
					if diff == "" {
						continue
					}
					i := slices.IndexFunc(differences, func(d difference) bool { return d.covers(r.minor, s, frontend) })
					if i < 0 {
						t.Errorf("%s at %s: other than in %s (-), in %s (+):\n%s", s, frontend, newest.folder, r.folder, diff)
					}
					met[i] = true
				}
			}
			for i, d := range differences {
				if d.versions.has(r.minor) && !met[i] && !d.chance {
					t.Errorf("%s is as in %s, though %s", d.service, newest.folder, d.because)
				}
			}
		})
	}
}

// servicesOf are the names of the Services of the recording, sorted.
func servicesOf(t *testing.T, r recording) []string {
	t.Helper()
	set := &objects.Set{}
	for _, e := range r.node.Evidence {
		if e.File == "services.json" {
			objects.Decode(set, e.Data, e.File)
		}
	}
	var out []string
	for _, s := range set.Services {
		if s.Namespace == "store" {
			out = append(out, s.Name)
		}
	}
	if len(out) < 40 {
		t.Fatalf("%s has %d Services", r.folder, len(out))
	}
	slices.Sort(out)
	return out
}

// graph is what a trace of a Service shows, by frontend: everything but where the evidence stands.
func graph(t *testing.T, r recording, service string) map[string][]string {
	t.Helper()
	doc, err := explain.Trace(r.node, explain.TraceOptions{Namespace: "store", Service: service})
	if err != nil {
		t.Fatalf("%s: trace svc/%s: %v", r.folder, service, err)
	}
	out := map[string][]string{}
	for i := range doc.Paths {
		p := &doc.Paths[i]
		f := p.Frontend
		name := fmt.Sprintf("%s %s/%s", f.Kind, net.JoinHostPort(f.Address, strconv.Itoa(f.Port)), f.Protocol)
		out[name] = append(out[name], describe(p)...)
	}
	return out
}

// frontends are those of either graph, sorted.
func frontends(a, b map[string][]string) []string {
	var out []string
	for _, g := range []map[string][]string{a, b} {
		for f := range g {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// describe is a path in lines.
func describe(p *report.Path) []string {
	out := []string{fmt.Sprintf("from %s %s (%s): %s by %q at %s/%s, share %.6f, masquerade %s, reply %s", p.SourceClass, p.Source, p.Origin,
		p.Result, p.TranslatedBy, p.Table, p.Chain, p.Probability, word(p.Masquerade), reply(p.Reply))}
	for _, u := range p.Uncertain {
		out = append(out, "  if "+u.Condition)
	}
	for _, n := range p.NotEvaluated {
		out = append(out, "  not evaluated: "+n)
	}
	out = append(out, hops("  ", p.Hops)...)
	for _, b := range p.Backends {
		out = append(out, fmt.Sprintf("  %s:%d on %s, pod %s: %s, share %.6f, %s, masquerade %s, reply %s", b.Address, b.Port, b.Node, b.Pod,
			b.State, b.Probability, b.Result, word(b.Masquerade), reply(b.Reply)))
		out = append(out, hops("    ", b.Hops)...)
	}
	return out
}

// hops leaves out where a rule stands in its chain: kube-proxy writes Services in no order.
func hops(indent string, hops []report.Hop) []string {
	var out []string
	for _, h := range hops {
		out = append(out, fmt.Sprintf("%s%s %s/%s %s, share %.6f", indent, h.Kind, h.Table, h.Chain, h.Text, h.Probability))
	}
	return out
}

func word(b *bool) string {
	if b == nil {
		return "undecided"
	}
	return strconv.FormatBool(*b)
}

func reply(r *report.Reply) string {
	if r == nil {
		return "not walked"
	}
	return string(r.Result)
}
