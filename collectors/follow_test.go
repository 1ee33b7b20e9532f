package collectors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// watched is an API server that lists and watches: what a test sends goes to the watches of that path.
type watched struct {
	mu      sync.Mutex
	lists   map[string]string
	streams map[string]chan string
	queries []string
	denied  string // a path that nobody may read
	gone    bool
}

func (w *watched) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	list, stream, gone, denied := w.lists[r.URL.Path], w.streams[r.URL.Path], w.gone, w.denied == r.URL.Path
	w.queries = append(w.queries, r.URL.Path+"?"+r.URL.Query().Get("fieldSelector"))
	w.mu.Unlock()
	out.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case gone:
		out.WriteHeader(http.StatusServiceUnavailable)
	case denied:
		out.WriteHeader(http.StatusForbidden)
		fmt.Fprint(out, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"nobody may"}`)
	case q.Get("watch") == "":
		fmt.Fprint(out, list)
	case q.Get("sendInitialEvents") == "true":
		out.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(out, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"no initial events here"}`)
	default:
		out.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case event, ok := <-stream:
				if !ok {
					return
				}
				fmt.Fprintln(out, event)
				out.(http.Flusher).Flush()
			}
		}
	}
}

const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
)

func listAs(kind, version string, items ...string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"10"},"items":[%s]}`, kind, version, strings.Join(items, ","))
}

func webSlice(version, triggered string) string {
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"web-1","namespace":"store","resourceVersion":%q,`+
		`"labels":{"kubernetes.io/service-name":"web"},"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":%q},`+
		`"managedFields":[{"manager":"m","operation":"Update","time":"2026-07-01T12:00:03Z"}]},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`, version, triggered)
}

func newWatched() *watched {
	w := &watched{lists: map[string]string{
		"/api/v1/nodes": listAs("NodeList", "v1", `{"metadata":{"name":"n2","resourceVersion":"1"}}`, `{"metadata":{"name":"n1","resourceVersion":"2"}}`),
		"/api/v1/pods":  listAs("PodList", "v1"),
		servicesPath:    listAs("ServiceList", "v1", `{"metadata":{"name":"web","namespace":"store","resourceVersion":"3"},"spec":{"clusterIP":"10.96.0.1"}}`),
		slicesPath:      listAs("EndpointSliceList", "discovery.k8s.io/v1", webSlice("4", "2026-07-01T12:00:00Z")),
	}, streams: map[string]chan string{}}
	for path := range w.lists {
		w.streams[path] = make(chan string, 8)
	}
	return w
}

// following follows such a server.
func following(t *testing.T, w *watched, node string) (*Objects, chan Change, chan error) {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	changes, answers := make(chan Change, 64), make(chan error, 1024)
	o, err := Follow(t.Context(), &API{Config: &rest.Config{Host: server.URL}, From: "the kubeconfig"}, node, func(c Change) { changes <- c }, func(err error) { answers <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Known(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o, changes, answers
}

// next is the next change.
func next(t *testing.T, changes chan Change) Change {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case <-time.After(time.Minute):
		t.Fatal("no change was told")
		return Change{}
	}
}

// TestFollow holds what is kept and told of objects that change.
func TestFollow(t *testing.T) {
	w := newWatched()
	o, changes, _ := following(t, w, "n1")
	names := func() string {
		var out []string
		for _, e := range o.Evidence() {
			if !e.Status.Answers() {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
			var items struct {
				Items []struct{ Metadata struct{ Name string } }
			}
			if e.Status == snapshot.OK && json.Unmarshal(e.Data, &items) != nil {
				t.Errorf("%s: %s", e.File, e.Data)
			}
			for _, i := range items.Items {
				out = append(out, i.Metadata.Name)
			}
			if strings.Contains(string(e.Data), "managedFields") {
				t.Errorf("%s says who wrote which field", e.File)
			}
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "n1 n2 web-1 web" {
		t.Errorf("objects %s", got)
	}
	if !slices.Contains(w.queries, "/api/v1/pods?spec.nodeName=n1") {
		t.Errorf("pods are asked for as %q", w.queries)
	}
	send := func(path, kind, object string) {
		w.streams[path] <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object)
	}
	// A trigger that stands there from before is not that of this change.
	send(slicesPath, "MODIFIED", webSlice("11", "2026-07-01T12:00:00Z"))
	c := next(t, changes)
	if c.Kind != "EndpointSlice" || c.Namespace != "store" || c.Name != "web-1" || c.Service != "web" || c.What != "updated" || c.ResourceVersion != "11" ||
		!c.Triggered.IsZero() || !c.Written.Equal(time.Date(2026, 7, 1, 12, 0, 3, 0, time.UTC)) || time.Since(c.At).Abs() > time.Minute {
		t.Errorf("change %+v", c)
	}
	send(slicesPath, "MODIFIED", webSlice("12", "2026-07-01T12:00:02.5Z"))
	if c := next(t, changes); !c.Triggered.Equal(time.Date(2026, 7, 1, 12, 0, 2, 5e8, time.UTC)) {
		t.Errorf("change %+v", c)
	}
	send("/api/v1/nodes", "ADDED", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n3","resourceVersion":"13"}}`)
	send(servicesPath, "ADDED", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"dns","namespace":"infra","resourceVersion":"14"}}`)
	if c := next(t, changes); c.Kind != "Service" || c.Service != "dns" || c.What != "added" {
		t.Errorf("change %+v", c)
	}
	send(slicesPath, "DELETED", webSlice("15", "2026-07-01T12:00:02.5Z"))
	if c := next(t, changes); c.What != "deleted" || !c.Triggered.IsZero() || c.Service != "web" {
		t.Errorf("change %+v", c)
	}
	deadline := time.Now().Add(time.Minute)
	for got := names(); got != "n1 n2 n3 dns web"; got = names() {
		if time.Now().After(deadline) {
			t.Fatalf("objects %s", got)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReplace holds that a list after a time without watch tells what happened meanwhile, and nothing else.
func TestReplace(t *testing.T) {
	var told []string
	f := &followed{kind: kinds[1], object: &discoveryv1.EndpointSlice{}, kept: map[string]keptObject{}, known: make(chan struct{})}
	f.owner = &Objects{now: time.Now, changed: func(c Change) { told = append(told, c.What+" "+c.Name+" of "+c.Service) }}
	made := func(name, version string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		s.Name, s.Namespace, s.ResourceVersion = name, "store", version
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
		return s
	}
	for _, list := range [][]any{{made("a", "1"), made("b", "1"), made("c", "1")}, {made("a", "1"), made("b", "2"), made("d", "3")}} {
		if err := f.Replace(list, ""); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(told)
	if got, want := fmt.Sprint(told), "[added d of web deleted c of web updated b of web]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	// The same again is no change.
	told = nil
	if err := f.Update(made("b", "2")); err != nil || told != nil {
		t.Errorf("%v, told %s", err, told)
	}
	if err := f.Delete(&corev1.Service{}); err != nil || told != nil {
		t.Errorf("%v, told %s of an object that was not there", err, told)
	}
}

// TestFollowDenied holds the evidence of a kind that may not be read, and of one that is not asked for.
func TestFollowDenied(t *testing.T) {
	w := newWatched()
	w.denied = servicesPath
	o, _, answers := following(t, w, "")
	status := map[string]snapshot.Status{}
	for _, e := range o.Evidence() {
		status[e.File] = e.Status
		if e.File == "services.json" && !strings.Contains(e.Error, "read services with the kubeconfig: nobody may (ask for the right to list them") {
			t.Errorf("services: %s", e.Error)
		}
	}
	want := map[string]snapshot.Status{"nodes.json": snapshot.OK, "endpointslices.json": snapshot.OK, "services.json": snapshot.Denied, "pods.json": snapshot.NotCollected}
	for file, s := range want {
		if status[file] != s {
			t.Errorf("%s is %s, want %s", file, status[file], s)
		}
	}
	if err := <-answers; err == nil && o.Err() == nil {
		t.Error("nobody was told")
	}
}

// TestFollowGone holds that objects stay when the server is gone, and that this is told.
func TestFollowGone(t *testing.T) {
	w := newWatched()
	o, changes, answers := following(t, w, "n1")
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	for path, s := range w.streams {
		close(s)
		w.mu.Lock()
		w.streams[path] = make(chan string)
		w.mu.Unlock()
	}
	wait := func(failing bool) {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for {
			select {
			case err := <-answers:
				if (err != nil) == failing {
					return
				}
			case <-deadline:
				t.Fatalf("failing %v was not told", failing)
			}
		}
	}
	wait(true)
	for _, e := range o.Evidence() {
		if !e.Status.Answers() {
			t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
		}
	}
	w.mu.Lock()
	w.gone = false
	w.lists[slicesPath] = listAs("EndpointSliceList", "discovery.k8s.io/v1", webSlice("20", "2026-07-01T12:01:00Z"))
	w.mu.Unlock()
	for o.Err() != nil {
		wait(false)
	}
	_ = changes
}
