package explain_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

const statsFile = "ipvsadm-stats.txt"

// ipvsNodes are the recorded nodes in IPVS mode.
func ipvsNodes(t *testing.T) map[string]*snapshot.Snapshot {
	t.Helper()
	nodes := recordedNodes(t)
	for name := range nodes {
		if !strings.Contains(name, "ipvs") {
			delete(nodes, name)
		}
	}
	if len(nodes) < 2 {
		t.Fatalf("%d nodes", len(nodes))
	}
	return nodes
}

// savedServers are the virtual servers of a node as they were saved.
func savedServers(t *testing.T, s *snapshot.Snapshot) (table *ipvs.Table, file string) {
	t.Helper()
	table = &ipvs.Table{}
	for _, e := range s.Of(snapshot.IPVSSave) {
		if _, err := ipvs.Parse(table, e.Text(), e.File); err != nil {
			t.Fatal(err)
		}
		file = e.File
	}
	if len(table.Services) == 0 {
		t.Fatal("no virtual servers")
	}
	return table, file
}

// conns is what the virtual server or real server of a line counts in these tests.
func conns(line, times int) uint64 { return uint64(line * times) }

// withStats is a node of which the counters were read too, each of its own by the line where it is saved.
func withStats(t *testing.T, s *snapshot.Snapshot, times int) *snapshot.Snapshot {
	t.Helper()
	table, file := savedServers(t, s)
	var b strings.Builder
	b.WriteString("IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\n  -> RemoteAddress:Port\n")
	write := func(name string, line int) {
		n := conns(line, times)
		fmt.Fprintf(&b, "%-33s %8d %8d %8d %8d %8d\n", name, n, n*10, n*9, n*1000, n*900)
	}
	for i := range table.Services {
		v := &table.Services[i]
		write(fmt.Sprintf("%-4s %s", map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}[v.Proto], netip.AddrPortFrom(v.Addr, v.Port)), v.Line)
		for j := range v.Dests {
			write("  -> "+v.Dests[j].AddrPort().String(), v.Dests[j].Line)
		}
	}
	out := *s
	out.Evidence = append(slices.Clone(s.Evidence), snapshot.Evidence{
		Format: snapshot.IPVSList, File: path.Join(path.Dir(file), statsFile), Status: snapshot.OK, Data: []byte(b.String()),
	})
	out.Arrange()
	return &out
}

// answers are what is said of a node: audit, status, rows and traces, without the source of the counters.
func answers(t *testing.T, r *explain.Reading) map[string]any {
	t.Helper()
	without := func(sources []report.Source) []report.Source {
		return slices.DeleteFunc(slices.Clone(sources), func(s report.Source) bool { return strings.HasSuffix(s.File, statsFile) })
	}
	audit, status, rows := *r.Report, *r.Status, *r.Services()
	audit.Sources, status.Sources, rows.Sources = without(audit.Sources), without(status.Sources), without(rows.Sources)
	out := map[string]any{"audit": audit, "status": status, "rows": rows}
	for _, row := range rows.Services {
		key := row.Namespace + "/" + row.Name
		if out[key] != nil {
			continue
		}
		trace, err := r.Trace(explain.TraceOptions{Namespace: row.Namespace, Service: row.Name})
		if err != nil {
			t.Fatal(err)
		}
		said := *trace
		said.Sources = without(said.Sources)
		out[key] = said
	}
	for key, v := range out {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[key] = string(text)
	}
	return out
}

// TestStatsChangeNoAnswer: counters beside the virtual servers, whole or cut, change nothing that is said.
func TestStatsChangeNoAnswer(t *testing.T) {
	for name, s := range ipvsNodes(t) {
		t.Run(name, func(t *testing.T) {
			bare := reading(t, s, explain.AuditOptions{})
			want := answers(t, bare)
			counted := withStats(t, s, 1)
			cut := *counted
			cut.Evidence = slices.Clone(counted.Evidence)
			i := slices.IndexFunc(cut.Evidence, func(e snapshot.Evidence) bool { return strings.HasSuffix(e.File, statsFile) })
			e := &cut.Evidence[i]
			e.Status, e.Error = snapshot.Truncated, "cut"
			e.Data = append(slices.Clip(e.Data[:len(e.Data)/2]), "\nTCP  nowhere:80 1 2 3 4 5\n...\n"...)
			for kind, other := range map[string]*snapshot.Snapshot{"counted": counted, "cut": &cut} {
				r := reading(t, other, explain.AuditOptions{})
				if diff := cmp.Diff(want, answers(t, r)); diff != "" {
					t.Errorf("%s: %s", kind, diff)
				}
				for before, after := range explain.Changes(bare, r) {
					if diff := cmp.Diff(before.Paths, after.Paths); diff != "" {
						t.Errorf("%s: %s/%s changed: %s", kind, after.Metadata.Namespace, after.Metadata.Name, diff)
					}
				}
			}
			if got := explain.Same(counted, withStats(t, s, 77)); got != explain.SameButCounters {
				t.Errorf("other counters: %d", got)
			}
		})
	}
}

// TestCountersOfVirtualServers: each line of virtual servers and real servers has its own counters, hops find them there,
// and a row counts the connections of its virtual servers, none of which is another row's.
func TestCountersOfVirtualServers(t *testing.T) {
	for name, s := range ipvsNodes(t) {
		t.Run(name, func(t *testing.T) {
			table, file := savedServers(t, s)
			s := withStats(t, s, 3)
			c := explain.CountersOf(s)
			hold := func(what string, line int) {
				n := conns(line, 3)
				if got, ok := c.At(report.Evidence{File: file, Line: line}); !ok || got != (explain.Count{Packets: n * 10, Bytes: n * 1000, Connections: n}) {
					t.Errorf("%s: %v, %t, want %d connections", what, got, ok, n)
				}
			}
			owner := make(map[int]string) // of virtual servers, by line
			for i := range table.Services {
				v := &table.Services[i]
				hold(v.String(), v.Line)
				if !v.Addr.IsLoopback() { // connections to which do not come there
					owner[v.Line] = ""
				}
				for j := range v.Dests {
					hold(v.DestString(&v.Dests[j]), v.Dests[j].Line)
				}
			}
			r := reading(t, s, explain.AuditOptions{})
			hops := 0
			for _, row := range r.Services().Services {
				var want uint64
				for _, f := range row.Frontends {
					i := slices.IndexFunc(table.Services, func(v ipvs.Service) bool {
						return v.Addr.String() == f.Address && int(v.Port) == f.Port && map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}[v.Proto] == f.Protocol
					})
					if i < 0 {
						continue
					}
					line := table.Services[i].Line
					want += conns(line, 3)
					if owner[line] != "" {
						t.Errorf("%s is counted for %s and for %s", table.Services[i].String(), owner[line], row.Name)
					}
					owner[line] = row.Name
				}
				if n, ok := c.Sum(row.Counted); ok != (want > 0) || n.Connections != want {
					t.Errorf("%s/%s: %v, %t, want %d connections", row.Namespace, row.Name, n, ok, want)
				}
				trace, err := r.Trace(explain.TraceOptions{Namespace: row.Namespace, Service: row.Name})
				if err != nil {
					t.Fatal(err)
				}
				for i := range trace.Paths {
					of := slices.Clone(trace.Paths[i].Hops)
					for _, b := range trace.Paths[i].Backends {
						of = append(of, b.Hops...)
					}
					for _, h := range of {
						if h.Kind == "virtual-server" {
							hold(h.Text, h.Evidence.Line)
							hops++
							if h.Evidence.File != file {
								t.Errorf("%s: evidence in %s", h.Text, h.Evidence.File)
							}
						}
					}
				}
			}
			if hops < 20 {
				t.Errorf("%d hops", hops)
			}
			for line, row := range owner {
				if row == "" {
					t.Errorf("no row has the virtual server of line %d", line)
				}
			}
		})
	}
}

// TestCountersWithoutStats: without the counters, or with none of one virtual server, a row has no sum.
func TestCountersWithoutStats(t *testing.T) {
	for name, s := range ipvsNodes(t) {
		for _, row := range reading(t, s, explain.AuditOptions{}).Services().Services {
			if row.Counted != nil {
				t.Errorf("%s: %s counts %v", name, row.Name, row.Counted)
			}
		}
		// The rows of one reading with the counters of a later one, of which they were not read.
		rows := reading(t, withStats(t, s, 1), explain.AuditOptions{}).Services().Services
		c := explain.CountersOf(s)
		for _, row := range rows {
			if n, ok := c.Sum(row.Counted); ok {
				t.Errorf("%s: %s counts %v", name, row.Name, n)
			}
		}
	}
}

// TestCountersBesideRules: rules in the same file as virtual servers count packets still.
func TestCountersBesideRules(t *testing.T) {
	const file = "session.txt"
	rules := "*nat\n[3:180] -A X -j Y\nCOMMIT\n"
	servers := strings.Repeat("\n", 3) + "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1\n"
	stats := strings.Repeat("\n", 5) + "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\nTCP  10.96.0.1:443 7 8 9 10 11\n  -> 10.0.0.1:6443 0 0 0 0 0\n"
	c := explain.CountersOf(&snapshot.Snapshot{Evidence: []snapshot.Evidence{
		{Format: snapshot.IPTablesSave, File: file, Status: snapshot.OK, Data: []byte(rules)},
		{Format: snapshot.IPVSSave, File: file, Status: snapshot.OK, Data: []byte(servers)},
		{Format: snapshot.IPVSList, File: file, Status: snapshot.OK, Data: []byte(stats)},
	}})
	for line, want := range map[int32]explain.Count{
		2: {Packets: 3, Bytes: 180, Connections: 3}, 4: {Packets: 8, Bytes: 10, Connections: 7}, 5: {},
	} {
		if n, ok := c.Sum([]report.Lines{{File: file, Numbers: []int32{line}}}); !ok || n != want {
			t.Errorf("line %d: %v, %t, want %v", line, n, ok, want)
		}
	}
}
