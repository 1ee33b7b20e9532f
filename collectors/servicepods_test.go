package collectors

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// emptyServices is an API server whose Services and slices are given; pods answers for lists of pods in a namespace.
func emptyServices(t *testing.T, services, endpoints []string, pods http.HandlerFunc) []snapshot.Evidence {
	t.Helper()
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/services":
			fmt.Fprint(w, page(kindAt(r.URL.Path), "", services...))
		case "/apis/discovery.k8s.io/v1/endpointslices":
			fmt.Fprint(w, page(kindAt(r.URL.Path), "", endpoints...))
		case "/api/v1/nodes", "/api/v1/pods":
			well(w, r)
		default:
			pods(w, r)
		}
	})
	var out []snapshot.Evidence
	for _, e := range readAPI(t.Context(), a, ofNode1) {
		if strings.HasPrefix(e.File, servicePodsFile) {
			out = append(out, e)
		}
	}
	return out
}

func service(name, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":{"clusterIP":"10.0.0.1",%s}}`, name, spec)
}

func slice(service, endpoints string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s-1","namespace":"shop","labels":{"kubernetes.io/service-name":%[1]q}},"addressType":"IPv4","endpoints":[%[2]s]}`, service, endpoints)
}

// TestServicePods: the pods of a Service are asked for where it selects some and has no ready endpoint, and that there
// are none is an answer which a bundle keeps.
func TestServicePods(t *testing.T) {
	const selector = `"selector":{"tier":"front","app":"web"}`
	var asked []string
	got := emptyServices(t, []string{
		service("none", selector), service("unready", selector), service("ready", selector), service("unsaid", selector),
		service("by-hand", `"type":"ClusterIP"`), service("name", `"type":"ExternalName",`+selector),
		strings.Replace(service("headless", selector), "10.0.0.1", "None", 1),
	}, []string{
		slice("unready", `{"addresses":["10.1.0.1"],"conditions":{"ready":false}}`),
		slice("ready", `{"addresses":["10.1.0.1"],"conditions":{"ready":false}},{"addresses":["10.1.0.2"],"conditions":{"ready":true}}`),
		slice("unsaid", `{"addresses":["10.1.0.3"],"conditions":{}}`),
	}, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, r.URL.Path+"?"+q.Get("labelSelector"))
		k := kind{list: "PodList", version: "v1"}
		if len(asked) == 1 {
			fmt.Fprint(w, page(k, ""))
			return
		}
		fmt.Fprint(w, page(k, "", `{"metadata":{"name":"web-1","namespace":"shop","managedFields":[{}]}}`))
	})
	const want = "/api/v1/namespaces/shop/pods?app=web,tier=front"
	if diff := cmp.Diff([]string{want, want}, asked); diff != "" {
		t.Errorf("requests:\n%s", diff)
	}
	if len(got) != 2 || got[0].File != "service-pods/shop/none.json" || got[1].File != "service-pods/shop/unready.json" {
		t.Fatalf("%+v", got)
	}
	if text := string(got[1].Data); !strings.Contains(text, "\n"+`{"metadata":{"name":"web-1","namespace":"shop"}}`+"\n") {
		t.Errorf("not a pod a line, without managedFields: %s", text)
	}
	s := snapshot.Snapshot{Node: "n1", Evidence: got}
	var b bytes.Buffer
	if err := s.WriteBundle(&b); err != nil {
		t.Fatal(err)
	}
	for i, e := range got {
		if e.Status != snapshot.OK {
			t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
		}
		// Loose files are known by their content.
		if f, _, _, why := snapshot.Recognise(e.File, e.Data); f != snapshot.Objects {
			t.Errorf("piece %d is taken for %q: %s", i, f, why)
		}
	}
}

// TestServicePodsRefused: what refuses one list refuses all, and is said once.
func TestServicePodsRefused(t *testing.T) {
	asked := 0
	got := emptyServices(t, []string{service("a", `"selector":{"a":"b"}`), service("b", `"selector":{"a":"b"}`)}, nil,
		func(w http.ResponseWriter, _ *http.Request) {
			asked++
			refusal(w, http.StatusForbidden, "Forbidden", "pods is forbidden")
		})
	if asked != 1 || len(got) != 1 || got[0].File != servicePodsFile || got[0].Status != snapshot.Denied || !strings.Contains(got[0].Error, "read pods of Services without ready endpoints with the kubeconfig: pods is forbidden") {
		t.Errorf("%d requests: %+v", asked, got)
	}
}

// TestManyServicePods: beyond a number of Services the rest is named as not looked at.
func TestManyServicePods(t *testing.T) {
	var services []string
	for i := range maxServicePods + 3 {
		services = append(services, service(fmt.Sprintf("s%03d", i), `"selector":{"a":"b"}`))
	}
	asked := 0
	got := emptyServices(t, services, nil, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fmt.Fprint(w, page(kind{list: "PodList", version: "v1"}, ""))
	})
	last := got[len(got)-1]
	if asked != maxServicePods || len(got) != maxServicePods+1 || last.Status != snapshot.NotCollected || !strings.Contains(last.Error, "there are 103, and those of the first 100 were read") {
		t.Errorf("%d requests, %d pieces, the last is %+v", asked, len(got), last)
	}
}
