package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// Nodes in the two modes that are history or elsewhere; README.md there says how they came to be.
const (
	oldModesDir  = "testdata/oldmodes"
	userspaceDir = oldModesDir + "/userspace"
	l2bridgeDir  = oldModesDir + "/windows-l2bridge"
	overlayDir   = oldModesDir + "/windows-overlay"
)

// edit changes one file of a node: text, or the objects of a JSON list.
type edit struct {
	file string
	old  string // a regular expression; none makes the file anew
	new  string
	list func([]object) []object
}

type object = map[string]any

// replace changes text by a regular expression.
func replace(file, old, with string) edit { return edit{file: file, old: old, new: with} }

// write makes a file.
func write(file, text string) edit { return edit{file: file, new: text} }

// objectOf changes the one object of a JSON list whose ID begins so.
func objectOf(file, id string, change func(object)) edit {
	return edit{file: file, old: id, list: func(all []object) []object {
		for _, o := range all {
			if strings.HasPrefix(strings.ToLower(o["ID"].(string)), id) {
				change(o)
			}
		}
		return all
	}}
}

// without deletes the objects of a JSON list whose ID begins so.
func without(file, id string) edit {
	return edit{file: file, old: id, list: func(all []object) []object {
		return slices.DeleteFunc(all, func(o object) bool { return strings.HasPrefix(strings.ToLower(o["ID"].(string)), id) })
	}}
}

// webPolicy begins the ID of the policy of store/web on the Windows node.
const webPolicy = "699f2a93"

// another adds a changed copy of the object that is the policy of store/web.
func another(change func(object)) edit {
	return edit{file: "hns-loadbalancers.json", old: webPolicy, list: func(all []object) []object {
		for _, o := range all {
			if strings.HasPrefix(strings.ToLower(o["ID"].(string)), webPolicy) {
				o = maps.Clone(o)
				o["ID"] = "0bad0bad-0000-4000-8000-000000000001"
				change(o)
				return append(all, o)
			}
		}
		return all
	}}
}

// edited is a node with changes; every one of them must find something to change.
func edited(t *testing.T, dir string, edits ...edit) *snapshot.Snapshot {
	t.Helper()
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range edits {
			if e.file != f.Name() {
				continue
			}
			changed := e.apply(t, text)
			if bytes.Equal(changed, text) {
				t.Fatalf("%s has nothing like %q to change", e.file, e.old)
			}
			text = changed
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range edits {
		if e.old == "" && e.list == nil {
			if err := os.WriteFile(filepath.Join(to, e.file), []byte(e.new), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return load(t, "", to)
}

func (e *edit) apply(t *testing.T, text []byte) []byte {
	t.Helper()
	if e.list == nil {
		return regexp.MustCompile("(?m)"+e.old).ReplaceAll(text, []byte(e.new))
	}
	read := func() (list []object) {
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if changed := e.list(read()); !cmp.Equal(read(), changed) {
		out, err := json.MarshalIndent(changed, "", "    ")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	return text
}

// withoutFile is a node without one of its files.
func withoutFile(t *testing.T, dir, name string) *snapshot.Snapshot {
	t.Helper()
	s := load(t, "", dir)
	before := len(s.Evidence)
	s.Evidence = slices.DeleteFunc(s.Evidence, func(e snapshot.Evidence) bool { return filepath.Base(e.File) == name })
	if len(s.Evidence) == before {
		t.Fatalf("%s has no file %s", dir, name)
	}
	return s
}

// found are the findings as "severity id: object", each once.
func found(r *report.Report) []string {
	out := []string{}
	for i := range r.Findings {
		f := &r.Findings[i]
		line := f.Severity + " " + f.ID
		if f.Object.Namespace != "" {
			line += ": " + f.Object.Namespace + "/" + f.Object.Name
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// broken is one thing wrong with a node and what an audit finds of it, and nothing else.
type broken struct {
	name  string
	edits []edit
	want  []string
}

func (b *broken) check(t *testing.T, dir string) {
	t.Run(b.name, func(t *testing.T) {
		s := edited(t, dir, b.edits...)
		r := audit(t, s)
		if d := cmp.Diff(b.want, found(r)); d != "" {
			t.Errorf("-want +got\n%s", d)
			for i := range r.Findings {
				t.Logf("%s: %s", r.Findings[i].ID, r.Findings[i].Message)
			}
		}
		sameByItself(t, b.name, s)
	})
}

// TestOldModesHealthy: nothing is wrong with the nodes as they were, and the mode is known.
func TestOldModesHealthy(t *testing.T) {
	for dir, mode := range map[string]string{userspaceDir: "userspace", l2bridgeDir: "kernelspace", overlayDir: "kernelspace"} {
		s := load(t, "", dir)
		r := audit(t, s)
		if got := found(r); len(got) > 0 || r.Proxy.Mode != mode {
			t.Errorf("%s in %s mode: %v", dir, r.Proxy.Mode, got)
		}
		sameByItself(t, dir, s)
	}
}

// TestUserspaceBroken breaks the node in userspace mode in one way at a time.
func TestUserspaceBroken(t *testing.T) {
	const rules = "iptables-save.txt"
	for _, b := range []broken{
		{"a portal is missing",
			[]edit{replace(rules, `^.* -A KUBE-PORTALS-(CONTAINER|HOST) -d 10\.96\.20\.10/32 .*\n`, "")},
			[]string{"error missing-service-rule: store/web"}},
		{"a portal is missing for the node's own connections",
			[]edit{replace(rules, `^.* -A KUBE-PORTALS-HOST -d 10\.96\.20\.10/32 .*\n`, "")},
			[]string{"error missing-service-rule: store/web"}},
		{"a node port is missing",
			[]edit{replace(rules, `^.* -A KUBE-NODEPORT-(CONTAINER|HOST) .*--dport 30443 .*\n`, "")},
			[]string{"error missing-service-rule: store/checkout"}},
		{"all portals are gone, and what leads to them",
			[]edit{replace(rules, `^.*KUBE-(PORTALS|NODEPORT).*\n`, ""), write("config.conf", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: userspace\n")},
			[]string{"critical missing-service-rule"}},
		{"a portal for a Service that is not there",
			[]edit{replace(rules, `^(.* -A KUBE-PORTALS-CONTAINER -d )10\.96\.20\.14/32( .*)store/legacy(.*)\n`, "$0${1}10.96.20.99/32${2}store/gone:http${3}\n")},
			[]string{"warning stale-service-rule: store/gone"}},
		{"nothing listens where a portal leads",
			[]edit{replace("ss.txt", `^.*:38915 .*\n`, "")},
			[]string{"error nothing-listens: store/cart"}},
		{"nothing listens for UDP",
			[]edit{replace("ss.txt", `^udp .*:45377 .*\n`, "")},
			[]string{"error nothing-listens: infra/dns"}},
		{"the jump for packets that come in is gone",
			[]edit{replace(rules, `^.* -A PREROUTING .*KUBE-PORTALS-CONTAINER\n`, "")},
			[]string{"critical missing-service-rule", "error kube-jump-missing"}},
		{"the jump for the node's own packets is gone",
			[]edit{replace(rules, `^.* -A OUTPUT .*KUBE-PORTALS-HOST\n`, "")},
			[]string{"critical missing-service-rule", "error kube-jump-missing"}},
		{"somebody else's redirection comes first",
			[]edit{replace(rules, `^(.* -A PREROUTING .*KUBE-PORTALS-CONTAINER)\n`, "[0:0] -A PREROUTING -p tcp -m tcp --dport 9000 -j REDIRECT --to-ports 15001\n$1\n")},
			[]string{"error foreign-dnat-before-kube-services: store/cart"}},
		{"somebody else drops what was redirected",
			[]edit{replace(rules, `^(.* -A INPUT .*KUBE-NODEPORT-NON-LOCAL)\n`, "[0:0] -A INPUT -p tcp -m tcp --dport 38915 -j DROP\n$1\n")},
			[]string{"error frontend-unreachable: store/cart"}},
		{"a portal leads to another Service's socket",
			[]edit{replace(rules, `^(.* -A KUBE-PORTALS-CONTAINER -d 10\.96\.20\.12/32 .*)--to-ports 38915\n`, "$1--to-ports 44175\n")},
			[]string{"error wrong-translation: store/cart"}},
		// What is behind the sockets only the process knows.
		{"other endpoints", []edit{replace("objects.yaml", `10\.244\.2\.11`, "10.244.2.99")}, []string{}},
		{"no endpoint is ready", []edit{replace("objects.yaml", `ready: true`, "ready: false")}, []string{}},
	} {
		b.check(t, userspaceDir)
	}
}

const kernelspaceConfig = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: kernelspace\n"

// port changes the port mapping of a load balancer.
func port(field string, value any) func(object) {
	return func(o object) {
		mapping := maps.Clone(o["PortMappings"].([]any)[0].(object))
		mapping[field] = value
		o["PortMappings"] = []any{mapping}
	}
}

// backends changes the endpoints of a load balancer.
func backends(change func([]any) []any) func(object) {
	return func(o object) { o["HostComputeEndpoints"] = change(slices.Clone(o["HostComputeEndpoints"].([]any))) }
}

// TestKernelspaceBroken breaks the Windows node in one way at a time.
func TestKernelspaceBroken(t *testing.T) {
	const (
		balancers, endpoints = "hns-loadbalancers.json", "hns-endpoints.json"
		web, webNodePort     = webPolicy, "fbd707c2"
		cart, checkout       = "a22b0a47", "60cd7e91"
		checkoutOutside      = "2e72292f"
		remoteWeb, localWeb  = "7eedd703-0d5e-490e-bfd9-11b619f6a5f4", "4536625b-93d3-49a4-901c-d79d2cc4122e"
		localCheckout        = "5f8cc39f-d58f-4f54-8e56-1ac57d878053"
		remoteCheckout       = "57346ecc-399d-43ea-954e-d2d123a155cb"
	)
	drop := func(id string) func(object) {
		return backends(func(all []any) []any { return slices.DeleteFunc(all, func(e any) bool { return e == id }) })
	}
	add := func(id string) func(object) { return backends(func(all []any) []any { return append(all, id) }) }
	for _, b := range []broken{
		{"the policy of a cluster IP is missing", []edit{without(balancers, web)}, []string{"error missing-service-rule: store/web"}},
		{"that of a node port", []edit{without(balancers, webNodePort)}, []string{"error missing-service-rule: store/web"}},
		{"HNS lost all", []edit{{file: balancers, list: func([]object) []object { return []object{} }}, write("config.conf", kernelspaceConfig)}, []string{"critical missing-service-rule"}},
		{"an endpoint of another Service", []edit{objectOf(balancers, web, add(localCheckout))}, []string{"error stale-endpoint-rule: store/web"}},
		{"an endpoint is missing", []edit{objectOf(balancers, web, drop(remoteWeb))}, []string{"error missing-endpoint-rule: store/web"}},
		{"the endpoint of this node is missing", []edit{objectOf(balancers, web, drop(localWeb))}, []string{"error missing-endpoint-rule: store/web"}},
		{"another port", []edit{objectOf(balancers, web, port("InternalPort", 9999))}, []string{"error wrong-translation: store/web"}},
		{"the pods moved to another port", []edit{replace("objects.yaml", `([pP]ort: )8443`, "${1}9443")}, []string{"error wrong-translation: store/checkout"}},
		{"an endpoint that HNS does not have", []edit{without(endpoints, remoteCheckout)}, []string{"error hns-endpoint-unknown: store/checkout"}},
		{"HNS took all endpoints out of a policy", []edit{objectOf(balancers, web, backends(func([]any) []any { return []any{} }))}, []string{"error hns-endpoint-unknown: store/web"}},
		{"two policies that are alike", []edit{another(func(object) {})}, []string{"warning hns-policy-duplicate: store/web"}},
		{"two policies that differ", []edit{another(drop(remoteWeb))}, []string{"warning hns-policy-duplicate: store/web"}},
		{"a policy for what no Service has", []edit{another(func(o object) { o["FrontendVIPs"] = []any{"10.96.20.99"} })}, []string{"warning stale-service-rule"}},
		{"a policy for a port that the Service does not have", []edit{another(port("ExternalPort", 81))}, []string{"warning stale-service-rule"}},
		{"affinity is not kept", []edit{objectOf(balancers, cart, port("DistributionType", 0))}, []string{"warning affinity-mismatch: store/cart"}},
		{"affinity that nobody asked for", []edit{objectOf(balancers, web, port("DistributionType", 2))}, []string{"warning affinity-mismatch: store/web"}},
		{"externalTrafficPolicy Local is not kept to", []edit{objectOf(balancers, checkoutOutside, add(remoteCheckout))}, []string{"error excluded-endpoint-used: store/checkout"}},
		{"a pod is not ready any more", []edit{replace("objects.yaml", `(- 10\.244\.2\.11\n    conditions:\n      ready: )true`, "${1}false")}, []string{"error not-ready-endpoint-used: store/web", "info endpoints-differ-from-slices: store/web"}},
		{"a pod is gone", []edit{replace("objects.yaml", `10\.244\.2\.11\b`, "10.244.2.99")}, []string{"error missing-endpoint-rule: store/web", "error stale-endpoint-rule: store/web"}},
	} {
		b.check(t, l2bridgeDir)
	}
}

// TestPolicyNotApplied: only version 1 of HNS's schema shows whether a policy is in force.
func TestPolicyNotApplied(t *testing.T) {
	const web = "1c6e7dd1"
	for _, b := range []broken{
		{"a policy that HNS has not applied",
			[]edit{objectOf("hns-policylist.json", web, func(o object) { o["State"] = 3 })}, []string{"error hns-policy-not-applied: store/web"}},
		{"an endpoint is missing",
			[]edit{objectOf("hns-policylist.json", web, func(o object) { o["References"] = o["References"].([]any)[1:] })}, []string{"error missing-endpoint-rule: store/web"}},
		{"the policy of a cluster IP is missing", []edit{without("hns-policylist.json", web)}, []string{"error missing-service-rule: store/web"}},
	} {
		b.check(t, overlayDir)
	}
}

// What HNS did not show is not known: nothing is found, nothing passes, and one reason says what to capture.
func TestHNSNotRead(t *testing.T) {
	table, err := os.ReadFile("../../explain/hns/testdata/hnsdiag-list-all.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		s      *snapshot.Snapshot
		reason string
	}{
		{"no endpoints", withoutFile(t, l2bridgeDir, "hns-endpoints.json"), "the endpoints of HNS were not read"},
		{"the table has no ports", edited(t, l2bridgeDir, replace("hns-loadbalancers.json", `(?s).*`, string(table))), "show no address or no port"},
		{"cut off", edited(t, l2bridgeDir, replace("hns-loadbalancers.json", `(?s)(5cc5cb14-.*)`, "")), "hns-loadbalancers.json"},
		{"cut off endpoints", edited(t, l2bridgeDir, replace("hns-endpoints.json", `(?s)(298463c3-.*)`, "")), "hns-endpoints.json"},
		{"too shallow", edited(t, overlayDir, replace("hns-policylist.json", `(?s)"Policies": \[\s*\{[^{}]*\}\s*\]`, `"Policies": "System.Object[]"`)), "ConvertTo-Json -Depth 10"},
		{"none, and no mode", edited(t, l2bridgeDir, edit{file: "hns-loadbalancers.json", list: func([]object) []object { return []object{} }}), "HNS holds no load balancer"},
		{"no load balancers, but the mode is known", func() *snapshot.Snapshot {
			s := edited(t, l2bridgeDir, write("config.conf", kernelspaceConfig))
			s.Evidence = slices.DeleteFunc(s.Evidence, func(e snapshot.Evidence) bool { return filepath.Base(e.File) == "hns-loadbalancers.json" })
			return s
		}(), "the load balancers of HNS were not read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := audit(t, tt.s)
			reason := slices.IndexFunc(r.Unknown, func(u report.Unknown) bool {
				return u.ID == "missing-service-rule" && strings.Contains(compact(t, u), tt.reason)
			})
			if got := found(r); len(got) > 0 || reason < 0 || r.Services.OK > 0 {
				t.Errorf("findings %v, %d Services ok, mode %q, unknown %s", got, r.Services.OK, r.Proxy.Mode, compact(t, r.Unknown))
			}
		})
	}
}

// TestOldModesGolden compares what the program prints about the nodes with what it printed before.
func TestOldModesGolden(t *testing.T) {
	for dir, prefix := range map[string]string{userspaceDir: "userspace", l2bridgeDir: "l2bridge", overlayDir: "overlay"} {
		for _, name := range []string{"web", "checkout", "legacy"} {
			for _, format := range []string{"json", "tree"} {
				t.Run(prefix+"-"+name+"."+format, func(t *testing.T) {
					r := run(t, "trace", "svc/"+name, "-n", "store", "-o", format, "-f", dir)
					if r.code != 0 || r.stderr != "" {
						t.Errorf("exit %d, standard error %q", r.code, r.stderr)
					}
					got := r.stdout
					if format == "json" {
						valid(t, got)
						got = indented(t, got)
					}
					golden(t, prefix+"-"+name+"."+format, got)
				})
			}
		}
	}
}

// TestSeedUserspaceGolden: a listing from a document, which lacks everything else.
func TestSeedUserspaceGolden(t *testing.T) {
	for _, name := range []string{"my-nginx-nodeport", "my-nginx-loadbalancer", "my-nginx-cluster"} {
		r := run(t, "trace", "svc/"+name, "-f", seed("userspace-L-v-n.txt"), "-o", "tree")
		golden(t, "seed-userspace-"+name+".tree", r.stdout)
	}
}

// TestOldModesStatus: status says the mode, and counts what is programmed.
func TestOldModesStatus(t *testing.T) {
	for dir, want := range map[string]string{userspaceDir: "userspace", l2bridgeDir: "kernelspace", overlayDir: "kernelspace"} {
		r := run(t, "status", "-f", dir)
		if !strings.Contains(r.stdout, want+" mode") || !strings.Contains(r.stdout, "7 of 7 service ports are programmed") {
			t.Errorf("%s: %s", dir, r.stdout)
		}
	}
}
