package explain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/scale"
)

// recordedNodes are nodes that were recorded: that of --demo, those of the oldest and the newest version of kube-proxy in
// each mode, and those that scenarios stand on.
func recordedNodes(t testing.TB) map[string]*snapshot.Snapshot {
	t.Helper()
	out := make(map[string]*snapshot.Snapshot)
	for _, pattern := range []string{"../cmd/demo/node-*", "../test/recorded/testdata/kube-proxy-1.29-*", "../test/recorded/testdata/kube-proxy-1.36-*", "testdata/findings/base*"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil || len(dirs) == 0 {
			t.Fatalf("no recorded node: %s: %v", pattern, err)
		}
		for _, dir := range dirs {
			s, err := snapshot.Load([]string{dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(dir)] = s
		}
	}
	return out
}

// scenarioNodes are the evidence of which each scenario makes its finding, by file.
func scenarioNodes(t *testing.T) map[string]*snapshot.Snapshot {
	t.Helper()
	names, err := filepath.Glob("testdata/findings/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	out := make(map[string]*snapshot.Snapshot)
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files := fstest.MapFS{}
		for _, node := range []string{"base", "base-nft", "base-ipvs"} {
			if slices.Contains(strings.Split(string(a.Comment), "\n"), node) {
				base(t, node, files)
			}
		}
		var edits []byte
		for _, f := range a.Files {
			file, ok := strings.CutPrefix(f.Name, "fires/")
			if !ok {
				file, ok = strings.CutPrefix(f.Name, "both/")
			}
			switch {
			case !ok, file == "want", file == "evidence", file == "unknown":
			case file == "edit":
				edits = append(edits, f.Data...)
			default:
				files[file] = &fstest.MapFile{Data: f.Data}
			}
		}
		edit(t, files, string(edits))
		s, err := snapshot.LoadFS(files, "scenario")
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = s
	}
	return out
}

func reading(t testing.TB, s *snapshot.Snapshot, o explain.AuditOptions) *explain.Reading {
	t.Helper()
	r, err := explain.Read(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServicesOfRecordedNodes and TestServicesOfScenarios hold every row against the trace and the audit of its Service.
func TestServicesOfRecordedNodes(t *testing.T) {
	for name, s := range recordedNodes(t) {
		t.Run(name, func(t *testing.T) { holdRows(t, s) })
	}
}

func TestServicesOfScenarios(t *testing.T) {
	for name, s := range scenarioNodes(t) {
		t.Run(name, func(t *testing.T) { holdRows(t, s) })
	}
}

func holdRows(t *testing.T, s *snapshot.Snapshot) {
	t.Helper()
	r := reading(t, s, explain.AuditOptions{})
	doc := r.Services()
	traces := make(map[string]*report.Trace)
	for i := range doc.Services {
		row := &doc.Services[i]
		key := row.Namespace + "/" + row.Name
		if traces[key] == nil {
			o := explain.TraceOptions{Namespace: row.Namespace, Service: row.Name}
			trace, err := r.Trace(o)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			// Reading everything anew for each Service takes its time.
			if len(traces)%16 == 3 || len(traces) == 0 {
				fresh, err := explain.Trace(s, o)
				if err != nil {
					t.Fatalf("%s: %v", key, err)
				}
				if !reflect.DeepEqual(fresh, trace) {
					t.Errorf("%s: the reading's trace is another one:\n%s", key, cmp.Diff(fresh, trace))
				}
			}
			traces[key] = trace
		}
		holdRow(t, row, traces[key])
	}
	holdFindings(t, doc, r.Report)
	ordered := slices.IsSortedFunc(doc.Services, func(a, b report.ServicePort) int {
		return strings.Compare(rowName(&a), rowName(&b))
	})
	if !ordered {
		t.Error("the rows are in no order")
	}
}

func rowName(row *report.ServicePort) string {
	return fmt.Sprintf("%s\x00%s\x00%05d\x00%s\x00%s", row.Namespace, row.Name, row.Port, row.Protocol, row.Family)
}

// holdRow compares a row with the paths to its frontends.
func holdRow(t *testing.T, row *report.ServicePort, trace *report.Trace) {
	t.Helper()
	name := fmt.Sprintf("%s/%s:%s %d/%s %s", row.Namespace, row.Name, row.PortName, row.Port, row.Protocol, row.Family)
	if row.Type != trace.Type && !(trace.Type == "" && row.Type == "ClusterIP") {
		t.Errorf("%s has type %q, and %q in the trace", name, row.Type, trace.Type)
	}
	backends, ready := make(map[string]bool), make(map[string]bool)
	paths, followed := 0, true
	for i := range trace.Paths {
		p := &trace.Paths[i]
		at := slices.IndexFunc(row.Frontends, func(f report.Frontend) bool {
			return f.Kind == p.Frontend.Kind && f.Address == p.Frontend.Address && f.Port == p.Frontend.Port && f.PortName == p.Frontend.PortName &&
				(f.Protocol == p.Frontend.Protocol || f.Kind == "HealthCheck")
		})
		if at < 0 {
			continue
		}
		paths++
		followed = followed && p.Intended != nil && p.Result != report.ResultUnknown && p.Intended.Result != report.ResultRedirect
		for j := range p.Backends {
			b := &p.Backends[j]
			address := fmt.Sprintf("%s %d", b.Address, b.Port)
			if b.Probability > 0 {
				backends[address] = true
			}
			if b.Intended != nil && *b.Intended > 0 && strings.HasPrefix(b.Ready, "ready") {
				ready[address] = true
			}
		}
	}
	switch row.State {
	case report.ServicePortSkipped:
		if row.Note == "" || row.Programmed != nil || row.Ready != nil || paths > 0 {
			t.Errorf("%s is skipped, with %d paths: %+v", name, paths, row)
		}
		return
	case report.ServicePortUnknown:
		if row.Note == "" {
			t.Errorf("%s is not known, and nothing says why", name)
		}
	}
	if row.Family == "" {
		return // none that a proxy forwards, with findings
	}
	if row.Programmed != nil && *row.Programmed != len(backends) {
		t.Errorf("%s: %d backends are programmed, the trace has %d", name, *row.Programmed, len(backends))
	}
	if row.Programmed == nil && row.State == report.ServicePortOK {
		t.Errorf("%s is as it should be, and nobody looked", name)
	}
	if row.Ready != nil && followed && paths > 0 && *row.Ready != len(ready) {
		t.Errorf("%s: %d are ready, the trace has %d that are and ought to get connections", name, *row.Ready, len(ready))
	}
	if row.Ready != nil && *row.Ready > *row.Endpoints {
		t.Errorf("%s: %d of %d are ready", name, *row.Ready, *row.Endpoints)
	}
}

// holdFindings compares what rows say of Services with what the audit does.
func holdFindings(t *testing.T, doc *report.NodeServices, audit *report.Report) {
	t.Helper()
	worst, ids := make(map[string]string), make(map[string]map[string]bool)
	for _, f := range audit.Findings {
		if f.Object.Kind == "Service" {
			key := f.Object.Namespace + "/" + f.Object.Name
			if worst[key] == "" || check.Rank(f.Severity) < check.Rank(worst[key]) {
				worst[key] = f.Severity
			}
			if ids[key] == nil {
				ids[key] = make(map[string]bool)
			}
			ids[key][f.ID] = true
		}
	}
	rows, rowIDs := make(map[string]string), make(map[string]map[string]bool)
	states := make(map[string]map[report.ServicePortState]bool)
	for i := range doc.Services {
		row := &doc.Services[i]
		key := row.Namespace + "/" + row.Name
		if states[key] == nil {
			states[key], rowIDs[key] = make(map[report.ServicePortState]bool), make(map[string]bool)
		}
		if row.Type != "" {
			states[key][row.State] = true
		}
		if row.Severity != "" && (rows[key] == "" || check.Rank(row.Severity) < check.Rank(rows[key])) {
			rows[key] = row.Severity
		}
		for _, id := range row.Findings {
			rowIDs[key][id] = true
		}
		if (row.Severity == "") != (len(row.Findings) == 0) {
			t.Errorf("%s has severity %q and the findings %q", key, row.Severity, row.Findings)
		}
		if (row.State == report.ServicePortDiffers) != (row.Severity != "" && row.Severity != check.Info) {
			t.Errorf("%s has severity %q and is %s", key, row.Severity, row.State)
		}
	}
	for key, severity := range worst {
		if rows[key] != severity {
			t.Errorf("%s: the worst finding is %s, and in the rows %q", key, severity, rows[key])
		}
		if !reflect.DeepEqual(ids[key], rowIDs[key]) {
			t.Errorf("%s has the findings %v, and in the rows %v", key, ids[key], rowIDs[key])
		}
	}
	for key, severity := range rows {
		if worst[key] != severity {
			t.Errorf("%s: the rows say %s, and the audit %q", key, severity, worst[key])
		}
	}
	var count report.ServiceCount
	for _, s := range states {
		if len(s) == 0 {
			continue // no object
		}
		count.Total++
		switch {
		case s[report.ServicePortDiffers]:
			count.Differ++
		case s[report.ServicePortUnknown]:
			count.Unknown++
		case s[report.ServicePortSkipped]:
			count.Skipped++
		default:
			count.OK++
		}
	}
	if count != audit.Services {
		t.Errorf("the audit counts %+v, the rows %+v", audit.Services, count)
	}
}

// TestServicesAlike: a port that was not walked has the row that it would have had.
func TestServicesAlike(t *testing.T) {
	nodes := recordedNodes(t)
	for name, s := range scenarioNodes(t) {
		nodes[name] = s
	}
	node, files := scale.NewFleet(300, 5).Node(3)
	fs := fstest.MapFS{}
	for file, data := range files {
		fs[file] = &fstest.MapFile{Data: data}
	}
	large, err := snapshot.LoadFS(fs, "node")
	if err != nil {
		t.Fatal(err)
	}
	large.Node = node
	nodes["large"] = large
	// The same with rules that drop packets before they are translated: all of them, and those of the node itself.
	raw := *large
	raw.Evidence = append(slices.Clone(large.Evidence), snapshot.Evidence{
		Format: snapshot.IPTablesSave, Family: 4, Backend: "legacy", File: "legacy.txt", Status: snapshot.OK,
		Data: []byte("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n[7:420] -A PREROUTING -j DROP\n[7:420] -A OUTPUT -j DROP\nCOMMIT\n"),
	})
	nodes["large-dropping"] = &raw
	some := *large
	some.Evidence = append(slices.Clone(large.Evidence), snapshot.Evidence{
		Format: snapshot.IPTablesSave, Family: 4, Backend: "legacy", File: "legacy.txt", Status: snapshot.OK,
		Data: []byte("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n[7:420] -A OUTPUT -j DROP\nCOMMIT\n"),
	})
	nodes["large-dropping-own"] = &some
	lists := scale.Lists(200, 3)
	servers := &snapshot.Snapshot{Node: "node-1", Evidence: scale.IPVS(200, 3)}
	for _, kind := range []string{"nodes", "services", "endpointslices"} {
		servers.Evidence = append(servers.Evidence, snapshot.Evidence{Format: snapshot.Objects, File: kind + ".json", Status: snapshot.OK, Data: lists[kind+".json"]})
	}
	nodes["large-ipvs"] = servers
	for name, s := range nodes {
		alike, each := reading(t, s, explain.AuditOptions{}).Services(), reading(t, s, explain.AuditOptions{EachByItself: true}).Services()
		if diff := cmp.Diff(each, alike); diff != "" {
			t.Errorf("%s: walked each by itself (-), and with those that are alike (+):\n%s", name, diff)
		}
	}
}

// TestServicesOfDemo: the rows of a Service of which one of three backends is stale and a ready one is missing.
func TestServicesOfDemo(t *testing.T) {
	s := recordedNodes(t)["node-1"]
	doc := reading(t, s, explain.AuditOptions{Namespace: "store", Services: []string{"web"}}).Services()
	var got []string
	for _, row := range doc.Services {
		got = append(got, fmt.Sprintf("%s %s %s %d/%s %s ready %d of %d, programmed %d, %s %s %v", row.Type, row.Name, row.PortName, row.Port, row.Protocol, row.Family,
			*row.Ready, *row.Endpoints, *row.Programmed, row.State, row.Severity, row.Findings))
	}
	want := demoRows
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServicesWithoutObjects: rules alone name service ports.
func TestServicesWithoutObjects(t *testing.T) {
	for name, s := range recordedNodes(t) {
		bare := *s
		bare.Evidence = slices.DeleteFunc(slices.Clone(s.Evidence), func(e snapshot.Evidence) bool { return e.Format == snapshot.Objects })
		all, few := reading(t, s, explain.AuditOptions{}), reading(t, &bare, explain.AuditOptions{})
		holdRows(t, &bare)
		named := make(map[string]bool)
		for _, row := range few.Services().Services {
			if row.Type != "" || row.State != report.ServicePortUnknown || row.Ready != nil || row.Endpoints != nil {
				t.Errorf("%s: %+v", name, row)
			}
			named[row.Namespace+"/"+row.Name+":"+row.PortName+row.Protocol+row.Family] = true
		}
		if strings.Contains(name, "ipvs") {
			continue // virtual servers have no names
		}
		if len(named) == 0 {
			t.Errorf("%s: rules name no Service", name)
		}
		for _, row := range all.Services().Services {
			if key := row.Namespace + "/" + row.Name + ":" + row.PortName + row.Protocol + row.Family; row.Programmed != nil && *row.Programmed > 0 && !named[key] {
				t.Errorf("%s: %s is served, and rules do not name it", name, key)
			}
		}
	}
}

// TestServicesUnread: what could not be looked at has no numbers and says why.
func TestServicesUnread(t *testing.T) {
	s := recordedNodes(t)["node-1"]
	without := func(f func(*snapshot.Evidence) bool) []report.ServicePort {
		some := *s
		some.Evidence = slices.DeleteFunc(slices.Clone(s.Evidence), func(e snapshot.Evidence) bool { return f(&e) })
		holdRows(t, &some)
		return reading(t, &some, explain.AuditOptions{}).Services().Services
	}
	for _, row := range without(func(e *snapshot.Evidence) bool { return e.Format == snapshot.IPTablesSave }) {
		if row.Family != "" && (row.Programmed != nil || row.Ready == nil || row.State == report.ServicePortOK || row.State == report.ServicePortUnknown && row.Note == "") {
			t.Errorf("without rules: %+v", row)
		}
	}
	for i := range s.Evidence {
		if e := &s.Evidence[i]; e.Format == snapshot.Objects {
			cut := *e
			cut.Data = []byte(strings.NewReplacer("kind: EndpointSlice\n", "kind: Lease\n", "kind: Endpoints\n", "kind: Lease\n").Replace(string(e.Data)))
			if string(cut.Data) == string(e.Data) {
				t.Fatal("the objects have no endpoints")
			}
			some := *s
			some.Evidence = slices.Clone(s.Evidence)
			some.Evidence[i] = cut
			for _, row := range reading(t, &some, explain.AuditOptions{}).Services().Services {
				if row.Family != "" && (row.Ready != nil || row.Endpoints != nil || row.State == report.ServicePortOK) {
					t.Errorf("without endpoints: %+v", row)
				}
			}
		}
	}
}

// TestServicesSettled: the rows are those of the report that the caller has put in.
func TestServicesSettled(t *testing.T) {
	r := reading(t, recordedNodes(t)["node-1"], explain.AuditOptions{})
	differ := 0
	for _, row := range r.Services().Services {
		if row.State == report.ServicePortDiffers {
			differ++
		}
	}
	none := *r.Report
	none.Findings = nil
	r.Report = explain.Settled(&none, r.Report)
	for _, row := range r.Services().Services {
		if row.State == report.ServicePortDiffers || row.Severity != "" && row.Severity != check.Info {
			t.Errorf("%+v", row)
		}
	}
	if differ == 0 {
		t.Error("nothing differs before")
	}
}

// TestReadingKeepsNode: a question that takes its own word for whose evidence it is changes nothing for the next.
func TestReadingKeepsNode(t *testing.T) {
	data, err := os.ReadFile("../cmd/demo/node-1/iptables-save.txt")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := os.ReadFile("../cmd/demo/node-1/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.LoadFS(fstest.MapFS{"iptables-save.txt": &fstest.MapFile{Data: data}, "objects.yaml": &fstest.MapFile{Data: objects}}, "node")
	if err != nil {
		t.Fatal(err)
	}
	r := reading(t, s, explain.AuditOptions{})
	if r.Report.Node != "" {
		t.Fatalf("the node is known to be %s", r.Report.Node)
	}
	before := r.Services()
	web := explain.TraceOptions{Namespace: "store", Service: "web"}
	adopted := 0
	for _, o := range []explain.TraceOptions{
		{To: "10.96.0.1:443/TCP", FromAddr: "10.244.1.9", Origin: "pod"}, web, {To: "10.96.0.1:443/TCP", FromAddr: "10.244.2.9", Origin: "pod"},
		{To: "10.96.0.1:443/TCP", FromAddr: "10.244.3.9", Origin: "pod"}, {To: "172.18.0.11:30080/TCP", FromAddr: "10.244.1.9", Origin: "pod"},
		{To: "172.18.0.12:30080/TCP", FromAddr: "10.244.2.9", Origin: "pod"}, {To: "172.18.0.13:30080/TCP", FromAddr: "10.244.3.9", Origin: "pod"}, {To: "10.96.0.1:443/TCP", FromAddr: "203.0.113.9"}, web,
	} {
		fresh, err := explain.Trace(s, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Trace(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fresh, again); diff != "" {
			t.Errorf("%+v: asked anew (-), and of the reading (+):\n%s", o, diff)
		}
		if fresh.Node != "" {
			adopted++
		}
	}
	if adopted < 2 {
		t.Errorf("%d questions take their word for whose evidence it is", adopted)
	}
	if diff := cmp.Diff(before, r.Services()); diff != "" {
		t.Error(diff)
	}
	if _, err := r.Trace(explain.TraceOptions{}); err == nil {
		t.Error("a question that asks nothing is answered")
	}
	if _, err := r.Trace(explain.TraceOptions{Namespace: "store", Service: "no-such"}); err == nil {
		t.Error("a Service that is not there is traced")
	}
}

// TestReadingKeepsClients: a question about one packet counts what its client did before, and the next one about new clients
// does not.
func TestReadingKeepsClients(t *testing.T) {
	s := recordedNodes(t)["kube-proxy-1.36-iptables-nft"]
	r := reading(t, s, explain.AuditOptions{})
	remembered := 0
	for _, row := range r.Services().Services {
		if row.Family != "IPv4" || row.Name == "" || len(row.Frontends) == 0 || remembered > 0 && !strings.Contains(row.Name, "affin") && !strings.Contains(row.Name, "sticky") {
			continue
		}
		f := row.Frontends[0]
		for _, o := range []explain.TraceOptions{
			{To: fmt.Sprintf("%s:%d/%s", f.Address, f.Port, f.Protocol), FromAddr: "10.244.1.10"}, {Namespace: row.Namespace, Service: row.Name},
		} {
			fresh, err := explain.Trace(s, o)
			if err != nil {
				t.Fatal(err)
			}
			again, err := r.Trace(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fresh, again); diff != "" {
				t.Errorf("%+v: asked anew (-), and of the reading (+):\n%s", o, diff)
			}
		}
		remembered++
	}
	if remembered < 2 {
		t.Errorf("%d Services with affinity", remembered)
	}
}

// large is a node of a cluster of 10,000 Services with 5 endpoints each, without the files that are not asked for.
func large(t testing.TB, n int) *snapshot.Snapshot {
	t.Helper()
	name, files := scale.NewFleet(10000, 5).Node(n)
	fs := fstest.MapFS{}
	for file, data := range files {
		fs[file] = &fstest.MapFile{Data: data}
	}
	s, err := snapshot.LoadFS(fs, "node")
	if err != nil {
		t.Fatal(err)
	}
	s.Node = name
	return s
}

func BenchmarkServices(b *testing.B) {
	r := reading(b, large(b, 0), explain.AuditOptions{})
	for b.Loop() {
		if doc := r.Services(); len(doc.Services) != 10000 {
			b.Fatal(len(doc.Services))
		}
	}
}

// demoRows are the rows of store/web: three Pods are ready, one of which the rules do not have yet, beside one that is gone.
var demoRows = []string{"NodePort web http 80/TCP IPv4 ready 3 of 3, programmed 3, differs error [missing-endpoint-rule stale-endpoint-rule]"}
