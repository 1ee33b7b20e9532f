package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// paper is a kernel that writes down what it is given.
type paper struct {
	mu      sync.Mutex
	written []*table.Transaction
	// refuse is how many transactions it does not take.
	refuse int
	gone   map[nft.Family]bool
	told   chan struct{}
}

func newPaper() *paper { return &paper{gone: map[nft.Family]bool{}, told: make(chan struct{}, 1000)} }

func (p *paper) Write(tx *table.Transaction) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.told <- struct{}{} }()
	if p.refuse > 0 {
		p.refuse--
		return errors.New("no memory")
	}
	if tx.Whole {
		p.gone[tx.Table.Family] = false
	}
	p.written = append(p.written, tx)
	return nil
}

func (p *paper) Has(family nft.Family) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone[family], nil
}

func (p *paper) Remove(...nft.Family) error { return nil }

// count counts the transactions of a family, and those that make it anew.
func (p *paper) count(family nft.Family) (all, whole int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tx := range p.written {
		if tx.Table.Family != family {
			continue
		}
		all++
		if tx.Whole {
			whole++
		}
	}
	return all, whole
}

func service(name string, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", ResourceVersion: "1"},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(name, of string, version int, addrs ...string) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: "ns", ResourceVersion: fmt.Sprint(version), Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}},
	}
	for _, a := range addrs {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("n1")})
	}
	return sl
}

// running is a server at work.
type running struct {
	*Server
	objects *Objects
	kernel  *paper
	stop    func()

	mu   sync.Mutex
	said []string
}

func serve(t *testing.T, objects *Objects, kernel *paper) *running {
	t.Helper()
	r := &running{objects: objects, kernel: kernel}
	r.Server = NewServer(Options{
		Objects: objects, Writer: kernel, Proxy: traits.Proxy{NodeName: "n1"}, Addrs: []netip.Addr{netip.MustParseAddr("172.30.0.11")},
		Log: func(format string, args ...any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.said = append(r.said, fmt.Sprintf(format, args...))
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	r.stop = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// until waits for something.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

func (r *running) told(words string) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.said, func(s string) bool { return strings.Contains(s, words) })
	}
}

// backends are those of a Service as the server last rendered them, once it is stopped.
func (r *running) backends(name string) []string {
	r.stop()
	var out []string
	for _, p := range r.Ports(UDPService{nft.IP, table.Service{Namespace: "ns", Name: name}}) {
		for _, b := range p.Any {
			out = append(out, b.String())
		}
	}
	return out
}

func add(t *testing.T, o *Objects, all ...any) {
	t.Helper()
	for _, x := range all {
		if err := o.Add(x); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServerFollowsObjects(t *testing.T) {
	o, k := NewObjects(nil, "n1"), newPaper()
	add(t, o, service("a", "10.96.0.1"), slice("a-1", "a", 1, "10.244.0.1"))
	r := serve(t, o, k)
	until(t, "the table is made", func() bool { _, whole := k.count(nft.IP); return whole == 1 })
	if all, _ := k.count(nft.IP6); all != 0 {
		t.Error("a table of IPv6 is made, and nobody has IPv6")
	}
	add(t, o, slice("a-2", "a", 1, "10.244.0.2"))
	until(t, "the change is written", func() bool { all, _ := k.count(nft.IP); return all >= 2 })
	if err := o.Delete(slice("a-1", "a", 1)); err != nil {
		t.Fatal(err)
	}
	until(t, "the change is written, and what it left is gone", func() bool { all, _ := k.count(nft.IP); return all >= 4 })
	if got := r.backends("a"); !slices.Equal(got, []string{"10.244.0.2:8080"}) {
		t.Errorf("backends %v", got)
	}
}

func TestServerTriesAgain(t *testing.T) {
	o, k := NewObjects(nil, "n1"), newPaper()
	k.refuse = 1
	add(t, o, service("a", "10.96.0.1"), slice("a-1", "a", 1, "10.244.0.1"))
	r := serve(t, o, k)
	until(t, "it is told", r.told("does not take a change"))
	until(t, "the table is made", func() bool { _, whole := k.count(nft.IP); return whole == 1 })
	k.mu.Lock()
	k.refuse = 1
	k.mu.Unlock()
	add(t, o, slice("a-2", "a", 1, "10.244.0.2"))
	until(t, "the table is made anew", func() bool { _, whole := k.count(nft.IP); return whole == 2 })
}

func TestServerNoticesLoss(t *testing.T) {
	o, k := NewObjects(nil, "n1"), newPaper()
	add(t, o, service("a", "10.96.0.1"), slice("a-1", "a", 1, "10.244.0.1"))
	r := serve(t, o, k)
	until(t, "the table is made", func() bool { _, whole := k.count(nft.IP); return whole == 1 })
	k.mu.Lock()
	k.gone[nft.IP] = true
	k.mu.Unlock()
	until(t, "it is told", r.told("somebody deleted table ip svcnet"))
	until(t, "the table is made anew", func() bool { _, whole := k.count(nft.IP); return whole == 2 })
}

func TestObjectsSurviveALostWatch(t *testing.T) {
	o := NewObjects(nil, "n1")
	add(t, o, service("a", "10.96.0.1"), service("b", "10.96.0.2"), slice("a-1", "a", 1, "10.244.0.1"), slice("b-1", "b", 1, "10.244.0.2"))
	o.Take()
	// Meanwhile b went, a slice of a changed its Service, and c came.
	o.replaceServices([]*corev1.Service{service("a", "10.96.0.1"), service("c", "10.96.0.3")})
	o.replaceSlices([]*discoveryv1.EndpointSlice{slice("a-1", "c", 2, "10.244.0.1")})
	changed, _ := o.Take()
	var names []string
	for _, s := range changed {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("changed: %v", names)
	}
	if svc, _ := o.Of(table.Service{Namespace: "ns", Name: "b"}); svc != nil {
		t.Error("b is there")
	}
	if _, of := o.Of(table.Service{Namespace: "ns", Name: "a"}); len(of) != 0 {
		t.Errorf("a has %d slices", len(of))
	}
	if _, of := o.Of(table.Service{Namespace: "ns", Name: "c"}); len(of) != 1 {
		t.Errorf("c has %d slices", len(of))
	}
	// The same list again is no news.
	o.replaceServices([]*corev1.Service{service("a", "10.96.0.1"), service("c", "10.96.0.3")})
	o.replaceSlices([]*discoveryv1.EndpointSlice{slice("a-1", "c", 2, "10.244.0.1")})
	if changed, _ := o.Take(); len(changed) != 0 {
		t.Errorf("changed without a change: %v", changed)
	}
}

func TestObjectsOfSomeServices(t *testing.T) {
	o := NewObjects([]table.Service{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "z"}}, "n1")
	add(t, o, service("a", "10.96.0.1"), service("b", "10.96.0.2"), slice("b-1", "b", 1, "10.244.0.2"))
	if all := o.All(); len(all) != 1 || all[0].Name != "a" {
		t.Errorf("Services %v", all)
	}
	if m := o.Missing(); len(m) != 1 || m[0].Name != "z" {
		t.Errorf("missing %v", m)
	}
}

func TestHealthChecks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h := NewHealthChecks([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, t.Logf)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { h.Run(ctx); close(done) }()
	ask := func() (int, answer) {
		t.Helper()
		got, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.Unmarshal(body, &a); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(a.LocalEndpoints); got.Header.Get("X-Load-Balancing-Endpoint-Weight") != want {
			t.Errorf("weight %q and not %s", got.Header.Get("X-Load-Balancing-Endpoint-Weight"), want)
		}
		return got.StatusCode, a
	}
	of := table.Service{Namespace: "ns", Name: "a"}
	h.Update(of, &table.Port{HealthCheck: port, Ready: 2})
	if code, a := ask(); code != http.StatusOK || a.LocalEndpoints != 2 || a.Service.Name != "a" || !a.ServiceProxyHealthy {
		t.Errorf("%d %+v", code, a)
	}
	h.Update(of, &table.Port{HealthCheck: port})
	if code, _ := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("without backends: %d", code)
	}
	h.Update(of, nil)
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)); err == nil {
		t.Error("a Service that is gone is answered for")
	}
	h.Update(of, &table.Port{HealthCheck: port, Ready: 1})
	stop()
	<-done
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)); err == nil {
		t.Error("it answers behind its end")
	}
}
