package objects

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *testing.T, text string) (*Set, []Problem) {
	t.Helper()
	set := &Set{}
	problems := Decode(set, []byte(text), "f")
	set.Sort()
	return set, problems
}

// names lists what a set holds, as "kind namespace/name:line".
func names(s *Set) []string {
	out := []string{}
	add := func(kind, ns, name string, e Evidence) {
		out = append(out, fmt.Sprintf("%s %s/%s:%d", kind, ns, name, e.Line))
	}
	for _, o := range s.Services {
		add("Service", o.Namespace, o.Name, o.Evidence)
	}
	for _, o := range s.EndpointSlices {
		add("EndpointSlice", o.Namespace, o.Name, o.Evidence)
	}
	for _, o := range s.Endpoints {
		add("Endpoints", o.Namespace, o.Name, o.Evidence)
	}
	for _, o := range s.Nodes {
		add("Node", o.Namespace, o.Name, o.Evidence)
	}
	for _, o := range s.Pods {
		add("Pod", o.Namespace, o.Name, o.Evidence)
	}
	for _, o := range s.Namespaces {
		add("Namespace", "", o.Name, o.Evidence)
	}
	for _, o := range s.ConfigMaps {
		add("ConfigMap", o.Namespace, o.Name, o.Evidence)
	}
	return out
}

var kindLine = regexp.MustCompile(`(?m)^(- |  )?kind: (\w+)$`)

// Every recorded file decodes whole, and each object's line is the one on which it begins.
func TestDecodeFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) != 52 {
		t.Fatalf("%d case files, want 52 (%v)", len(files), err)
	}
	files = append(files, "testdata/kubectl-list.yaml", "testdata/svc-clusterip.yaml")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set := &Set{}
			for _, p := range Decode(set, data, file) {
				if !strings.HasSuffix(file, "svc-clusterip.yaml") {
					t.Errorf("problem: %v", p)
				}
			}
			set.Sort()

			want := map[string]int{}
			for _, m := range kindLine.FindAllStringSubmatch(string(data), -1) {
				if m[2] != "List" {
					want[m[2]]++
				}
			}
			got := map[string]int{}
			text := strings.Split(string(data), "\n")
			for _, n := range names(set) {
				var kind, name string
				var line int
				if _, err := fmt.Sscanf(strings.Replace(n, ":", " ", 1), "%s %s %d", &kind, &name, &line); err != nil {
					t.Fatalf("%q: %v", n, err)
				}
				got[kind]++
				if first := strings.TrimPrefix(text[line-1], "- "); !strings.HasPrefix(first, "apiVersion:") && !strings.HasPrefix(first, "addressType:") {
					t.Errorf("%s: line %d is %q", name, line, first)
				}
				if !strings.Contains(strings.Join(text[line:min(len(text), line+60)], "\n"), name[strings.Index(name, "/")+1:]) {
					t.Errorf("%s is not at line %d", name, line)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kinds (-in the text +decoded):\n%s", diff)
			}
		})
	}
}

// What the fast paths decode is what the plain library decodes of the same text.
func TestDecodeAgreesWithLibrary(t *testing.T) {
	data := read(t, "kubectl-list.yaml")
	var list struct{ Items []json.RawMessage }
	if err := yaml.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	for _, raw := range list.Items {
		var o any
		switch kind := typeOfTest(t, raw); kind {
		case "Service":
			o = &corev1.Service{}
		case "EndpointSlice":
			o = &discoveryv1.EndpointSlice{}
		case "Node":
			o = &corev1.Node{}
		case "Pod":
			o = &corev1.Pod{}
		default:
			t.Fatalf("kind %s", kind)
		}
		if err := json.Unmarshal(raw, o); err != nil {
			t.Fatal(err)
		}
		m := o.(interface {
			GetNamespace() string
			GetName() string
		})
		want[fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())] = o
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"yaml": data, "json": asJSON, "crlf": []byte(strings.ReplaceAll(string(data), "\n", "\r\n"))} {
		t.Run(name, func(t *testing.T) {
			set := &Set{}
			if p := Decode(set, text, "f"); len(p) > 0 {
				t.Fatalf("problems: %v", p)
			}
			got := map[string]any{}
			for _, o := range set.Services {
				got[fmt.Sprintf("%T %s/%s", o.Service, o.Namespace, o.Name)] = o.Service
			}
			for _, o := range set.EndpointSlices {
				got[fmt.Sprintf("%T %s/%s", o.EndpointSlice, o.Namespace, o.Name)] = o.EndpointSlice
			}
			for _, o := range set.Nodes {
				got[fmt.Sprintf("%T %s/%s", o.Node, o.Namespace, o.Name)] = o.Node
			}
			for _, o := range set.Pods {
				got[fmt.Sprintf("%T %s/%s", o.Pod, o.Namespace, o.Name)] = o.Pod
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-library +decoded):\n%s", diff)
			}
		})
	}
}

func typeOfTest(t *testing.T, raw []byte) string {
	t.Helper()
	var m struct{ Kind string }
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	return m.Kind
}

func TestDecodeForms(t *testing.T) {
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"}}`
	for _, tt := range []struct {
		name, text string
		want       []string
		problems   []string
	}{
		{name: "one JSON object", text: service, want: []string{"Service shop/web:1"}},
		{name: "a byte order mark", text: "\xef\xbb\xbf" + service, want: []string{"Service shop/web:1"}},
		{name: "JSON documents one after another", text: service + "\n" + strings.Replace(service, "web", "api", 1), want: []string{"Service shop/api:2", "Service shop/web:1"}},
		{name: "a bare JSON array", text: "[\n" + service + "\n]", want: []string{"Service shop/web:2"}},
		{name: "kind of the list before its items, items without kind (the API server's form)",
			text: "{\"kind\":\"ServiceList\",\"apiVersion\":\"v1\",\"metadata\":{},\n\"items\":[\n{\"metadata\":{\"name\":\"web\",\"namespace\":\"shop\"}}]}", want: []string{"Service shop/web:3"}},
		{name: "kind of the list behind its items (kubectl's form)",
			text: "{\"apiVersion\":\"discovery.k8s.io/v1\",\"items\":[\n{\"metadata\":{\"name\":\"s\",\"namespace\":\"shop\"}}],\"kind\":\"EndpointSliceList\"}", want: []string{"EndpointSlice shop/s:2"}},
		{name: "lists within a list", text: `{"kind":"List","apiVersion":"v1","items":[{"kind":"List","apiVersion":"v1","items":[` + service + `]}]}`, want: []string{"Service shop/web:1"}},
		{name: "an empty list", text: `{"kind":"List","apiVersion":"v1","items":[]}`, want: []string{}},
		{name: "a list of null", text: `{"kind":"ServiceList","apiVersion":"v1","items":null}`, want: []string{}},
		{name: "nothing", text: "", want: []string{}},
		{name: "comments only", text: "# nothing here\n---\n# nor here\n", want: []string{}},
		{name: "many YAML documents, comments between them",
			text: "# a\n---\n# b\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n---\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n...\n",
			want: []string{"Node /n1:10", "Namespace /shop:3"}},
		{name: "a YAML list with indented items, kind first",
			text: "kind: List\napiVersion: v1\nitems:\n  - apiVersion: v1\n    kind: Pod\n    metadata:\n      name: p\n      namespace: shop\n  # the next\n  - apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: c, namespace: shop}\n    data:\n      x: |\n        - apiVersion: v1\n        items:\n",
			want: []string{"Pod shop/p:4", "ConfigMap shop/c:10"}},
		{name: "a YAML list whose items have no kind", text: "apiVersion: v1\nitems:\n- metadata:\n    name: web\n    namespace: shop\nkind: ServiceList\n", want: []string{"Service shop/web:3"}},
		{name: "a YAML list with an anchor across items",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n1, labels: &l {a: b}}\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n2, labels: *l}\n",
			want: []string{"Node /n1:1", "Node /n2:1"}},
		{name: "YAML in flow form", text: "{apiVersion: v1, kind: Node, metadata: {name: n1}}", want: []string{"Node /n1:1"}},
		{name: "content behind the marker", text: "--- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n", want: []string{"Node /n1:1"}},
		{name: "no namespace", text: strings.Replace(service, `,"namespace":"shop"`, "", 1), want: []string{"Service default/web:1"},
			problems: []string{`f:1: Service default/web: has no namespace: taken to be in "default"`}},
		{name: "other kinds, and a kind of another group with a known name",
			text: "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x, namespace: y}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", want: []string{}},
		{name: "a wrong type leaves the others whole",
			text:     "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: bad, namespace: shop}\n  spec: {ports: [{port: http}]}\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n1}\n",
			want:     []string{"Node /n1:8"},
			problems: []string{"f:4: Service shop/bad: does not decode: spec.ports.port is a string, which the API does not allow there"}},
		{name: "broken YAML in one document leaves the others whole",
			text:     "apiVersion: v1\nkind: Node\nmetadata:\n\tname: n0\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n",
			want:     []string{"Node /n1:6"},
			problems: []string{"f:4: broken YAML: found character that cannot start any token"}},
		{name: "a JSON list that is cut off keeps what came before",
			text:     "{\"apiVersion\":\"v1\",\"items\":[\n" + service + ",\n{\"apiVersion\":\"v1\",\"kind\":\"Serv",
			want:     []string{"Service shop/web:2"},
			problems: []string{"f:3: broken JSON: the text ends too early; copy it again"}},
		{name: "JSON with junk behind it", text: service + "\n$ exit\n", want: []string{"Service shop/web:1"}, problems: []string{"f:2: broken JSON: what follows was not read"}},
		{name: "no object at all", text: "just words\n", want: []string{}, problems: []string{"f:1: not a Kubernetes object: a value that is no object"}},
		{name: "no kind", text: "a: b\n", want: []string{}, problems: []string{"f:1: not a Kubernetes object: it has no kind"}},
		{name: "no name", text: `{"apiVersion":"v1","kind":"Service","metadata":{}}`, want: []string{}, problems: []string{"f:1: Service: not a Kubernetes object: it has no name"}},
		{name: "metadata that is no object", text: `{"apiVersion":"v1","kind":"Service","metadata":7}`, want: []string{}, problems: []string{"f:1: Service: does not decode: metadata is a number, which the API does not allow there"}},
		{name: "a time that is none", text: "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: yesterday}\n", want: []string{},
			problems: []string{`f:1: Node n1: does not decode: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`}},
		{name: "an unquoted time", text: "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: 2026-01-05T10:00:00Z}\n", want: []string{"Node /n1:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, problems := decode(t, tt.text)
			if diff := cmp.Diff(tt.want, names(set)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.problems, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeDuplicates(t *testing.T) {
	service := func(uid, version, ip string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, uid: %q, resourceVersion: %q}\nspec: {clusterIP: %q}\n", uid, version, ip)
	}
	for _, tt := range []struct {
		name, first, second, want string
		problem                   string
	}{
		{"the same version", service("u", "5", "10.0.0.1"), service("u", "5", "10.0.0.1"), "10.0.0.1", ""},
		{"equal without versions", service("", "", "10.0.0.1"), service("", "", "10.0.0.1"), "10.0.0.1", ""},
		{"the later is newer, compared as numbers", service("u", "9", "10.0.0.1"), service("u", "10", "10.0.0.2"), "10.0.0.2", "is given twice: this one has the higher resourceVersion (10, not 9) and counts"},
		{"the earlier is newer", service("u", "10", "10.0.0.1"), service("u", "9", "10.0.0.2"), "10.0.0.1", "is given twice: this one has the lower resourceVersion (9, not 10) and does not count"},
		{"no versions to compare", service("", "", "10.0.0.1"), service("", "", "10.0.0.2"), "10.0.0.2", "is given twice and differs: this later one counts"},
		{"another object of the same name", service("u", "5", "10.0.0.1"), service("v", "5", "10.0.0.2"), "10.0.0.2", "is given twice: this one has the higher resourceVersion (5, not 5) and counts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := &Set{}
			problems := Decode(set, []byte(tt.first), "a")
			problems = append(problems, Decode(set, []byte(tt.second), "b")...)
			set.Sort()
			if len(set.Services) != 1 || set.Services[0].Spec.ClusterIP != tt.want {
				t.Fatalf("services %v, want one with %s", names(set), tt.want)
			}
			var got string
			for _, p := range problems {
				got += p.Why
				if !p.Taken || p.Object != "Service shop/web" || p.File != "b" {
					t.Errorf("problem %+v", p)
				}
			}
			if got != tt.problem {
				t.Errorf("problem %q, want %q", got, tt.problem)
			}
		})
	}
}

func TestDecodeV1beta1(t *testing.T) {
	set, problems := decode(t, `
apiVersion: discovery.k8s.io/v1beta1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- addresses: [10.244.1.5]
  conditions: {ready: true}
  topology: {kubernetes.io/hostname: node-a, topology.kubernetes.io/zone: zone-a}
- addresses: [10.244.2.5]
  nodeName: node-b
  topology: {kubernetes.io/hostname: other}
  hints: {forZones: [{name: zone-b}]}
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got := set.SlicesOf("shop", "web")
	if len(got) != 1 {
		t.Fatalf("%d slices", len(got))
	}
	text := func(s string) *string { return &s }
	yes := true
	want := []discoveryv1.Endpoint{
		{Addresses: []string{"10.244.1.5"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}, NodeName: text("node-a"), Zone: text("zone-a")},
		{Addresses: []string{"10.244.2.5"}, NodeName: text("node-b"), Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-b"}}}},
	}
	if diff := cmp.Diff(want, got[0].EndpointSlice.Endpoints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got[0].APIVersion != "discovery.k8s.io/v1" || *got[0].Ports[0].Port != 8080 {
		t.Errorf("converted to %s, ports %v", got[0].APIVersion, got[0].Ports)
	}
}

func TestLookups(t *testing.T) {
	set := &Set{}
	Decode(set, read(t, "kubectl-list.yaml"), "objects.yaml")
	set.Sort()
	if s, ok := set.Service("store", "web"); !ok || s.Spec.Type != corev1.ServiceTypeNodePort || s.File != "objects.yaml" {
		t.Errorf("Service store/web: %v, %+v", ok, s.Evidence)
	}
	if _, ok := set.Service("store", "nothing"); ok {
		t.Error("a Service that is not there was found")
	}
	if n, ok := set.Node("node-1"); !ok || n.Name != "node-1" {
		t.Error("node-1 not found")
	}
	for _, s := range set.SlicesOf("store", "web") {
		if s.Labels[discoveryv1.LabelServiceName] != "web" || s.Namespace != "store" {
			t.Errorf("slice %s/%s is not of store/web", s.Namespace, s.Name)
		}
	}
	if len(set.SlicesOf("store", "web")) == 0 || len(set.SlicesOf("other", "web")) != 0 {
		t.Error("slices of store/web")
	}
}

func TestPodByIP(t *testing.T) {
	pod := func(name, ip, phase string, host bool) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop}\nspec: {hostNetwork: %v}\nstatus: {phase: %s, podIP: %q, podIPs: [{ip: %q}, {ip: \"fd00::%s\"}]}\n", name, host, phase, ip, ip, name)
	}
	set, problems := decode(t, pod("a", "10.244.1.5", "Succeeded", false)+pod("b", "10.244.1.5", "Running", false)+pod("c", "192.168.10.11", "Running", true)+pod("d", "10.244.1.5", "Failed", false))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for addr, want := range map[string]string{"10.244.1.5": "b", "::ffff:10.244.1.5": "b", "fd00::b": "b", "fd00::a": "a", "192.168.10.11": "", "10.244.1.6": ""} {
		got, ok := set.PodByIP(netip.MustParseAddr(addr))
		if ok != (want != "") || ok && got.Name != want {
			t.Errorf("PodByIP(%s): %v, want %q", addr, ok, want)
		}
	}
}

// Kinds that nobody asks for are counted, and the order of the count does not depend on that of the file.
func TestIgnored(t *testing.T) {
	set, _ := decode(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\napiVersion: apps/v1\nkind: Deployment\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n")
	want := []Ignored{{"apps/v1", "Deployment", 1}, {"v1", "Secret", 2}}
	if diff := cmp.Diff(want, set.Ignored); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Aliases that multiply are refused; such as save typing are followed.
func TestAliasBombs(t *testing.T) {
	var nested strings.Builder
	nested.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&nested, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	wide := "a: &a \"" + strings.Repeat("x", 100<<10) + "\"\nb: [" + strings.TrimSuffix(strings.Repeat("*a, ", 20000), ", ") + "]\n"
	for name, text := range map[string]string{"nested": nested.String(), "wide": wide, "self": "a: &a [*a]\n"} {
		set, problems := decode(t, text+"kind: Service\napiVersion: v1\nmetadata: {name: x, namespace: y}\n")
		if len(problems) != 1 || problems[0].Taken || len(set.Services) > 0 {
			t.Errorf("%s: problems %v, objects %v", name, problems, names(set))
		}
	}
}

// Values within values beyond any object's depth end in a problem, not in a stack overflow.
func TestDeepNesting(t *testing.T) {
	for name, text := range map[string]string{
		"JSON arrays":  strings.Repeat("[", 200000),
		"JSON objects": strings.Repeat(`{"a":`, 200000),
		"JSON lists":   strings.Repeat(`{"kind":"List","apiVersion":"v1","items":[`, 2000) + strings.Repeat("]}", 2000),
		"YAML flow":    "a: " + strings.Repeat("[", 9000),
		"YAML dashes":  strings.Repeat("- ", 5000) + "x",
	} {
		if _, problems := decode(t, text); len(problems) == 0 {
			t.Errorf("%s: no problem", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/cases/0*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/svc-clusterip.yaml", "testdata/kubectl-list.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		if asJSON, err := yaml.YAMLToJSON(data); err == nil {
			f.Add(asJSON)
		}
	}
	f.Add([]byte("{\"items\":[{\"kind\":\"List\",\"items\":[null,{}]}]}\n[1,{}]"))
	f.Add([]byte("--- \n...\nitems:\n- a\n- &x b\n- *x\nkind: List"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before []string
		for range 2 {
			set := &Set{}
			problems := Decode(set, data, "f")
			set.Sort()
			last := strings.Count(string(data), "\n") + 1
			seen := names(set)
			for _, p := range problems {
				if p.Line < 1 || p.Line > last {
					t.Errorf("line %d of %d: %v", p.Line, last, p)
				}
				seen = append(seen, p.String())
			}
			if before != nil && !slices.Equal(before, seen) {
				t.Errorf("two runs differ:\n%q\n%q", before, seen)
			}
			before = seen
		}
	})
}
