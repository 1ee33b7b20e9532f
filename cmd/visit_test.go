package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/plugin"
)

// clusterOf is an API server that lists and watches, and counts the lists of each path.
type clusterOf struct {
	mu    sync.Mutex
	lists map[string]int
	gone  bool

	server *httptest.Server
}

func (c *clusterOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	gone := c.gone
	if r.URL.Query().Get("watch") == "" {
		c.lists[r.URL.Path]++
	}
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	kinds := map[string]string{"nodes": "NodeList", "services": "ServiceList", "endpointslices": "EndpointSliceList", "pods": "PodList"}
	kind := kinds[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	version := "v1"
	if kind == "EndpointSliceList" {
		version = "discovery.k8s.io/v1"
	}
	switch {
	case gone:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Query().Get("watch") == "":
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"10"},"items":[]}`, kind, version)
	case r.URL.Query().Get("sendInitialEvents") == "true":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"no initial events here"}`)
	default:
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// podOn is a session of a test's.
type podOn struct {
	node   string
	closed bool
	// ended is true once the pod is gone, wrong why it reads nothing.
	ended bool
	wrong error
}

func (p *podOn) Collect(ctx context.Context, _ []byte) (*snapshot.Snapshot, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case p.closed:
		return nil, errors.New("it is closed")
	case p.ended:
		return nil, errors.New("somebody deleted the pod")
	case p.wrong != nil:
		return nil, p.wrong
	}
	return &snapshot.Snapshot{Node: p.node}, nil
}

func (p *podOn) Close(context.Context) error { p.closed = true; return nil }

// visiting is a visit whose pods are a test's.
func visiting(t *testing.T, nodes ...string) (v *visit, api *clusterOf, pods *[]*podOn) {
	t.Helper()
	api = &clusterOf{lists: map[string]int{}}
	api.server = httptest.NewServer(api)
	t.Cleanup(func() { api.server.CloseClientConnections(); api.server.Close() })
	r := &reach{app: &app{}, api: &collectors.API{Config: &rest.Config{Host: api.server.URL}}, pods: plugin.Options{Timeout: time.Minute}}
	for _, n := range nodes {
		r.nodes = append(r.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	v = newVisit(t.Context(), r)
	pods = &[]*podOn{}
	v.open = func(ctx context.Context, node *corev1.Node, number int) (session, error) {
		if number != len(*pods) {
			t.Errorf("pod %d has number %d", len(*pods), number)
		}
		p := &podOn{node: node.Name}
		*pods = append(*pods, p)
		return p, ctx.Err()
	}
	return v, api, pods
}

// open are the pods that are there.
func open(pods []*podOn) (out []string) {
	for i, p := range pods {
		if !p.closed {
			out = append(out, fmt.Sprintf("%d on %s", i, p.node))
		}
	}
	return out
}

// TestVisit holds which pods are there while nodes are looked at, and that none is afterwards.
func TestVisit(t *testing.T) {
	v, api, pods := visiting(t, "n1", "n2")
	read := func(node, want string) {
		t.Helper()
		s, err := v.read(t.Context(), node)
		if err != nil || s.Node != node {
			t.Fatalf("read %s: %v", node, err)
		}
		if got := strings.Join(open(*pods), ", "); got != want {
			t.Errorf("%s is read, and there are the pods %s, want %s", node, got, want)
		}
		var files []string
		for _, e := range s.Evidence {
			files = append(files, e.File)
		}
		if slices.Sort(files); !slices.Equal(files, []string{"endpointslices.json", "nodes.json", "pods.json", "services.json"}) {
			t.Errorf("read %s: objects are %v", node, files)
		}
	}
	read("n1", "0 on n1")
	read("n1", "0 on n1")
	read("n2", "1 on n2") // another node is looked at
	(*pods)[1].ended = true
	if _, err := v.read(t.Context(), "n2"); err == nil || err.Error() != "somebody deleted the pod" || len(open(*pods)) > 0 {
		t.Errorf("its pod is gone: %v, and there are the pods %v", err, open(*pods))
	}
	read("n2", "2 on n2") // another one is made
	v.opened = v.opened.Add(-podStays)
	read("n2", "3 on n2") // it is going to end by itself
	if _, err := v.read(t.Context(), "n3"); err == nil || err.Error() != "read node n3: it is none of those that were asked for" {
		t.Errorf("n3: %v", err)
	}
	if n := api.lists["/api/v1/services"]; n != 1 {
		t.Errorf("Services were listed %d times, want once", n)
	}
	if n := api.lists["/api/v1/pods"]; n != 2 {
		t.Errorf("pods were listed %d times, want once for each node", n)
	}
	if err := v.leave(); err != nil || len(open(*pods)) > 0 {
		t.Errorf("left with %v, and there are the pods %v", err, open(*pods))
	}
	if _, err := v.read(t.Context(), "n1"); !errors.Is(err, context.Canceled) || len(*pods) != 4 {
		t.Errorf("read afterwards: %v, %d pods were made", err, len(*pods))
	}
	v.reach.app.undo.wait() // nothing is left to undo
}

// TestVisitFails holds that a node that cannot be read gets no pod after the other, and none stays.
func TestVisitFails(t *testing.T) {
	v, _, pods := visiting(t, "n1")
	opened := v.open
	wrong := errors.New("read node n1: no iptables")
	v.open = func(ctx context.Context, node *corev1.Node, number int) (session, error) {
		s, err := opened(ctx, node, number)
		(*pods)[len(*pods)-1].wrong = wrong
		return s, err
	}
	for range 3 {
		if _, err := v.read(t.Context(), ""); !errors.Is(err, wrong) {
			t.Fatalf("read: %v", err)
		}
	}
	if len(*pods) != 1 || len(open(*pods)) != 0 {
		t.Errorf("%d pods were made, and there is %v", len(*pods), open(*pods))
	}
	v.failedAt = v.failedAt.Add(-failedPod)
	wrong = nil
	if s, err := v.read(t.Context(), ""); err != nil || s.Node != "n1" {
		t.Errorf("read later: %v", err)
	}
	// One that does not answer is left alone; one that is interrupted too, until it is left.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.read(over, ""); !errors.Is(err, context.Canceled) || len(open(*pods)) != 1 {
		t.Errorf("interrupted: %v, and there is %v", err, open(*pods))
	}
	if err := v.leave(); err != nil || len(open(*pods)) > 0 {
		t.Errorf("left with %v, and there is %v", err, open(*pods))
	}
	v.reach.app.undo.wait()
}

// TestVisitEnds holds that no pod is made once the program ends.
func TestVisitEnds(t *testing.T) {
	v, _, pods := visiting(t, "n1")
	v.reach.app.undo.wait()
	if _, err := v.read(t.Context(), ""); !errors.Is(err, context.Canceled) || len(*pods) > 0 {
		t.Errorf("read: %v, and %d pods were made", err, len(*pods))
	}
}

// TestKnownSaysWhatDoesNotAnswer holds that objects stay when the server is gone, with a word about it.
func TestKnownSaysWhatDoesNotAnswer(t *testing.T) {
	v, api, _ := visiting(t, "n1")
	o, err := v.follow("n1")
	if err != nil {
		t.Fatal(err)
	}
	all, err := known(t.Context(), o)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d pieces: %v", len(all), err)
	}
	api.mu.Lock()
	api.gone = true
	api.mu.Unlock()
	api.server.CloseClientConnections() // watches end, and are not answered any more
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if all, err = known(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if len(all) == 5 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d pieces, want one more", len(all))
		}
	}
	if e := all[4]; e.File != "api" || e.Status != snapshot.Failed || !strings.HasSuffix(e.Error, "; objects are those of the last answer") {
		t.Errorf("it says %+v", e)
	}
}
