package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/table"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// How long the soak takes; SVCNET_SOAK says another time (`make soak`: 30 minutes). SVCNET_SOAK_SEED replaces the seed.
const (
	soakTime = 2 * time.Minute
	soakSeed = 20261129
)

// soakServices is how many Services are changed, soakPods how many pods there are at most on each of two nodes.
const (
	soakServices = 10
	soakPods     = 5
)

// lag bounds how long a change may take from before it is written until the kernel goes by it, on a machine that is
// busy with other tests; while the API server is restarted, from when that answers again.
const lag = 6 * time.Second

// TestSoak changes Services and slices at random, kills backends and restarts the API server, and makes connections all the
// while: none may reach a backend that its Service did not have at any moment around it, and where a Service did not change
// around it, it must reach one. In the end nothing has grown: open files, goroutines, memory, rules.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wait sync.WaitGroup
	for d := range 4 {
		wait.Add(1)
		go func() { defer wait.Done(); s.dial(ctx, rand.New(rand.NewPCG(s.seed, uint64(100+d)))) }()
	}
	begun, sampled, restarted := time.Now(), time.Time{}, time.Now()
	for time.Since(begun) < s.takes {
		if time.Since(sampled) > s.takes/24 {
			sampled = time.Now()
			s.sample(t)
		}
		if time.Since(restarted) > 50*time.Second {
			s.restartAPI(t)
			restarted = time.Now()
		}
		s.change(t)
		time.Sleep(time.Duration(50+s.dice.IntN(400)) * time.Millisecond)
		if t.Failed() {
			break
		}
	}
	stop()
	wait.Wait()
	s.sample(t)
	time.Sleep(2 * time.Second)
	s.compareTables(t)
	s.judge(t)
	s.end(t)
}

// soak is a soak under way.
type soak struct {
	*lab.Lab
	n1    *lab.Node
	seed  uint64
	takes time.Duration
	dice  *rand.Rand
	cmd   *exec.Cmd
	done  chan struct{}

	mu sync.Mutex
	// pods are those that live, by name.
	pods map[string]*lab.Pod
	made int
	// services have their past.
	services []*soaked
	// frozen are the times at which the API server was away.
	frozen  []span
	wrong   []string
	counts  map[string]int
	samples []sample
	log     []string
}

// soaked is a Service with all states that it had.
type soaked struct {
	name     string
	number   int
	nodePort bool
	local    bool
	sticky   bool
	udp      bool
	states   []soakState
}

// soakState is what a Service had from one moment on. It was written between two moments.
type soakState struct {
	from, written time.Time
	there         bool
	backends      []string
}

// span is a time.
type span struct{ from, to time.Time }

// sample is what the process holds at one moment.
type sample struct {
	files, goroutines int
	memory            float64
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{seed: soakSeed, takes: soakTime, pods: map[string]*lab.Pod{}, counts: map[string]int{}, done: make(chan struct{})}
	if text := os.Getenv("SVCNET_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 10*time.Second {
			t.Fatalf("SVCNET_SOAK=%s is no time of at least 10s", text)
		}
		s.takes = d
	}
	if text := os.Getenv("SVCNET_SOAK_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SVCNET_SOAK_SEED=%s is no number", text)
		}
		s.seed = n
	}
	s.dice = rand.New(rand.NewPCG(s.seed, 0))
	s.Lab = labtest.Bring(t, lab.Options{Name: fmt.Sprintf("so%d", os.Getpid()), Nodes: 2, NoProxy: true})
	s.n1 = s.Node("n1")
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Apply(ctx, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "soak"}}))
	_, err := s.AddPod(ctx, lab.PodSpec{Name: "client", Namespace: "soak", Node: "n1"})
	must(err)
	for range soakPods {
		s.addPod(t, "n1")
		s.addPod(t, "n2")
	}
	for i := range soakServices {
		x := &soaked{name: fmt.Sprintf("s%d", i), number: i, nodePort: i%3 == 1, local: i%6 == 1, sticky: i%5 == 2, udp: i%4 == 3}
		s.services = append(s.services, x)
		s.write(t, x, s.some())
	}
	s.start(t)
	return s
}

// start starts svcnet proxy on n1.
func (s *soak) start(t *testing.T) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "svcnet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/kubectl-svcnet").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	var said io.ReadCloser
	err := s.n1.Netns().Do(func() error {
		s.cmd = exec.Command(bin, "proxy", "-A", "--apply", "--runtime-folder", filepath.Join(s.n1.Dir(), "run"), "--metrics", "127.0.0.1:9411",
			"--cluster-cidr", "10.244.0.0/16,fd00:244::/32")
		s.cmd.Env = append(s.n1.Env(), "HOME=/nonexistent", "KUBECONFIG="+s.Kubeconfig("admin"))
		var err error
		if said, err = s.cmd.StderrPipe(); err != nil {
			return err
		}
		return s.cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{})
	go func() {
		defer close(s.done)
		lines, once := bufio.NewScanner(said), sync.OnceFunc(func() { close(looked) })
		for lines.Scan() {
			s.mu.Lock()
			s.log = append(s.log, lines.Text())
			s.mu.Unlock()
			if strings.Contains(lines.Text(), "looked at the node") {
				once()
			}
		}
		_ = s.cmd.Wait() // the test looks at the state
	}()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	select {
	case <-looked:
	case <-s.done:
		t.Fatalf("svcnet proxy ends: %v", s.log)
	case <-time.After(2 * time.Minute):
		t.Fatalf("svcnet proxy does not serve: %v", s.log)
	}
	time.Sleep(time.Second)
}

// addPod makes one with an address that none had before.
func (s *soak) addPod(t *testing.T, node string) {
	t.Helper()
	s.made++
	name := fmt.Sprintf("p%d", s.made)
	spec := lab.PodSpec{Name: name, Namespace: "soak", Node: node}
	spec.IPv4 = netip.MustParseAddr(fmt.Sprintf("10.244.%s.%d", node[1:], 20+s.made%230))
	spec.IPv6 = netip.MustParseAddr(fmt.Sprintf("fd00:244:%s::1:%x", node[1:], s.made))
	p, err := s.AddPod(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		proto corev1.Protocol
		port  int
	}{{corev1.ProtocolTCP, 8080}, {corev1.ProtocolUDP, 5353}} {
		if _, err := p.Serve(at.proto, at.port); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	s.pods[name] = p
	s.mu.Unlock()
}

// some are pods at random, sometimes none.
func (s *soak) some() []string {
	names := slices.Sorted(maps.Keys(s.pods))
	s.dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:min(len(names), s.dice.IntN(6))]
}

func (x *soaked) port() corev1.ServicePort {
	p := corev1.ServicePort{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}
	if x.udp {
		p = corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(5353)}
	}
	if x.nodePort {
		p.NodePort = int32(30100 + x.number)
	}
	return p
}

func (x *soaked) clusterIPs() []string {
	return []string{fmt.Sprintf("10.96.9.%d", 1+x.number), fmt.Sprintf("fd00:96::9%02x", 1+x.number)}
}

func (x *soaked) object() corev1.Service {
	both := corev1.IPFamilyPolicyRequireDualStack
	svc := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: x.name, Namespace: "soak"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &both, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			ClusterIP: x.clusterIPs()[0], ClusterIPs: x.clusterIPs(), Ports: []corev1.ServicePort{x.port()},
		},
	}
	if x.nodePort {
		svc.Spec.Type = corev1.ServiceTypeNodePort
	}
	if x.local {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if x.sticky {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(30))}}
	}
	return svc
}

// write gives a Service its backends, and makes it where it is not there.
func (s *soak) write(t *testing.T, x *soaked, backends []string) {
	t.Helper()
	var pods []*lab.Pod
	for _, name := range backends {
		pods = append(pods, s.pods[name])
	}
	p := x.port()
	begun := time.Now()
	// The state counts from before it is written.
	s.mu.Lock()
	x.states = append(x.states, soakState{from: begun, there: true, backends: backends})
	s.mu.Unlock()
	err := s.Apply(t.Context(), x.object(), lab.EndpointSlices("soak", x.name, lab.Ports(fmt.Sprintf("%s=%s:%d", p.Name, p.Protocol, p.TargetPort.IntVal)), lab.Ready(pods...)...))
	if err != nil {
		t.Fatal(err)
	}
	s.settled(x)
}

// settled notes that what was begun is written.
func (s *soak) settled(x *soaked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.states[len(x.states)-1].written = time.Now()
	if n := len(x.states); n > 400 {
		x.states = slices.Clone(x.states[n-200:])
	}
}

// change changes one thing.
func (s *soak) change(t *testing.T) {
	t.Helper()
	x := s.services[s.dice.IntN(len(s.services))]
	switch n := s.dice.IntN(100); {
	case n < 60:
		s.write(t, x, s.some())
	case n < 70:
		begun := time.Now()
		s.mu.Lock()
		x.states = append(x.states, soakState{from: begun})
		s.mu.Unlock()
		if err := s.Delete(t.Context(), "Service", "soak", x.name); err != nil && !strings.Contains(err.Error(), "not found") {
			t.Fatal(err)
		}
		s.settled(x)
		if s.dice.IntN(2) == 0 {
			s.write(t, x, s.some())
		}
	case n < 80:
		s.killPod(t)
	default:
		// What is gone comes back.
		for _, x := range s.services {
			if !x.states[len(x.states)-1].there {
				s.write(t, x, s.some())
				return
			}
		}
		s.write(t, x, s.some())
	}
}

// killPod takes a pod away without a word; its Services learn of it a moment later, and another one comes.
func (s *soak) killPod(t *testing.T) {
	t.Helper()
	names := slices.Sorted(maps.Keys(s.pods))
	name := names[s.dice.IntN(len(names))]
	p := s.pods[name]
	// From now on nobody can be sure of an answer of those that have it.
	s.mu.Lock()
	for _, x := range s.services {
		if last := x.states[len(x.states)-1]; slices.Contains(last.backends, name) {
			last.from, last.written = time.Now(), time.Time{}
			x.states = append(x.states, last)
		}
	}
	s.mu.Unlock()
	node := p.Node.Name
	if err := p.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(s.dice.IntN(300)) * time.Millisecond)
	s.mu.Lock()
	delete(s.pods, name)
	s.mu.Unlock()
	for _, x := range s.services {
		if last := x.states[len(x.states)-1]; slices.Contains(last.backends, name) {
			s.write(t, x, slices.DeleteFunc(slices.Clone(last.backends), func(b string) bool { return b == name }))
		}
	}
	s.addPod(t, node)
}

func (s *soak) restartAPI(t *testing.T) {
	t.Helper()
	begun := time.Now()
	s.mu.Lock()
	s.frozen = append(s.frozen, span{begun, begun.Add(time.Hour)})
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := s.RestartAPIServer(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	// Watches are opened again after a pause that grows with what failed.
	s.mu.Lock()
	s.frozen[len(s.frozen)-1].to = time.Now().Add(40 * time.Second)
	s.counts["API server restarted"]++
	s.mu.Unlock()
}

// dial makes connections and judges them.
func (s *soak) dial(ctx context.Context, dice *rand.Rand) {
	for ctx.Err() == nil {
		x := s.services[dice.IntN(len(s.services))]
		p := x.port()
		family := dice.IntN(2)
		to := netip.AddrPortFrom(netip.MustParseAddr(x.clusterIPs()[family]), uint16(p.Port))
		var from lab.Place = s.n1
		way := "node"
		switch n := dice.IntN(3); {
		case n == 0 && x.nodePort:
			from, way = s.Client, "outside"
			to = netip.AddrPortFrom([]netip.Addr{s.n1.IPv4, s.n1.IPv6}[family], uint16(p.NodePort))
		case n == 1:
			s.mu.Lock()
			names := slices.Sorted(maps.Keys(s.pods))
			var at *lab.Pod
			if len(names) > 0 {
				at = s.pods[names[dice.IntN(len(names))]]
			}
			s.mu.Unlock()
			if at != nil && at.Node == s.n1 {
				from, way = at, "pod"
			}
		}
		begun := time.Now()
		a, err := s.Dial(ctx, from, p.Protocol, to, lab.DialOptions{Timeout: 700 * time.Millisecond})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if way == "pod" {
				continue // it was killed
			}
			s.complain("%s from %s: %v", x.name, way, err)
			continue
		}
		s.meet(x, way, begun, time.Now(), a)
		time.Sleep(time.Duration(5+dice.IntN(20)) * time.Millisecond)
	}
}

func (s *soak) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// meet judges what one connection met.
func (s *soak) meet(x *soaked, way string, begun, ended time.Time, a lab.Answer) {
	s.mu.Lock()
	since := begun.Add(-lag)
	calm := true
	for _, f := range s.frozen {
		if f.to.After(since) && f.from.Before(ended) {
			since, calm = minTime(since, f.from.Add(-lag)), false
		}
	}
	allowed := map[string]bool{}
	states := 0
	var last soakState
	for i := range x.states {
		st := &x.states[i]
		over := ended.Add(time.Hour)
		if i+1 < len(x.states) {
			// The state goes on until the next one is in the kernel.
			next := x.states[i+1].written
			if next.IsZero() {
				next = ended
			}
			over = next.Add(lag)
		}
		if st.from.After(ended) || over.Before(since) {
			continue
		}
		states++
		last = *st
		for _, b := range st.backends {
			allowed[b] = true
		}
	}
	s.counts[string(a.Outcome)+" "+way]++
	s.mu.Unlock()
	if a.Outcome == lab.Answered && !allowed[a.Pod] {
		s.complain("%s from %s: pod %s answers, which is none of its backends %v", x.name, way, a.Pod, slices.Sorted(maps.Keys(allowed)))
	}
	if a.Outcome == lab.Answered || states != 1 || !calm || !last.there || last.written.IsZero() || ended.Sub(last.written) < lag || len(last.backends) == 0 {
		return
	}
	if way == "outside" && x.local {
		return // this node may have none
	}
	if ended.Sub(begun) > 600*time.Millisecond && a.Outcome == lab.TimedOut && busy() {
		return // the machine has other things to do
	}
	s.mu.Lock()
	s.counts["expected to be answered, and not"]++
	s.mu.Unlock()
	s.complain("%s from %s: %s, and its backends are %v since %s", x.name, way, a, last.backends, last.written.UTC().Format("15:04:05.000"))
}

// busy tells whether the machine has far more to do than it can.
func busy() bool {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	load, _ := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	return load > 12
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

// sample looks at the process.
func (s *soak) sample(t *testing.T) {
	t.Helper()
	pid := s.cmd.Process.Pid
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatalf("svcnet proxy is gone: %v: %v", err, s.log)
	}
	x := sample{files: len(files)}
	text, err := s.n1.Get(t.Context(), "http://127.0.0.1:9411/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if m := goroutines.FindSubmatch(text); m != nil {
		x.goroutines, _ = strconv.Atoi(string(m[1]))
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(statm))[1])
	x.memory = float64(pages*os.Getpagesize()) / 1e6
	s.samples = append(s.samples, x)
}

// compareTables compares what is in the kernel with tables that are made for the objects of now alone.
func (s *soak) compareTables(t *testing.T) {
	t.Helper()
	o := proxy.NewObjects(nil, "n1")
	for _, kind := range []struct {
		path string
		list func([]byte) ([]any, error)
	}{
		{"/api/v1/services", decodeList[corev1.Service]}, {"/apis/discovery.k8s.io/v1/endpointslices", decodeList[discoveryv1.EndpointSlice]}, {"/api/v1/nodes", decodeList[corev1.Node]},
	} {
		body, err := s.Request(t.Context(), http.MethodGet, kind.path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		all, err := kind.list(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			if err := o.Add(x); err != nil {
				t.Fatal(err)
			}
		}
	}
	var addrs []netip.Addr
	if err := s.n1.Netns().Do(func() (err error) { addrs, err = proxy.NodeAddrs(); return err }); err != nil {
		t.Fatal(err)
	}
	server := proxy.NewServer(proxy.Options{
		Objects: o, Writer: nobody{}, Addrs: addrs,
		Proxy: traits.Proxy{
			NodeName: "n1", LocalMode: "ClusterCIDR", MasqueradeMark: 0x4000,
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		},
	})
	server.Compute()
	for _, want := range server.Tables() {
		var diff string
		for end := time.Now().Add(lag + 40*time.Second); time.Now().Before(end); time.Sleep(time.Second) {
			listed, err := s.n1.Run(t.Context(), "", "nft", "list", "table", string(want.Family), want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if diff = cmp.Diff(unordered(t, want.Print()), unordered(t, listed)); diff == "" {
				break
			}
		}
		if diff != "" {
			t.Errorf("table %s is not what the objects ask for: %s", want, diff)
		}
	}
}

// unordered is a listing without what is of one moment: the clients that affinity remembers, and which backend has which
// number.
func unordered(t *testing.T, text string) string {
	t.Helper()
	rs, err := nft.ParseText(normal(t, text), "listing")
	if err != nil {
		t.Fatal(err)
	}
	for _, tb := range rs.Tables {
		for _, set := range tb.Sets {
			if set.Dynamic || set.HasTimeout {
				set.Entries, set.Dynamic = nil, true
			}
			if n := len(set.Key); n == 0 || set.Key[n-1].Type != nft.TypeInteger {
				continue
			}
			for i := range set.Entries {
				e := &set.Entries[i]
				// Backends in the order of their addresses, whatever their numbers.
				e.Start = append(slices.Clone(e.Start[:len(e.Start)-4]), 0, 0, 0, 0)
			}
			slices.SortFunc(set.Entries, func(a, b nft.Entry) int {
				return strings.Compare(string(a.Start)+string(a.Data), string(b.Start)+string(b.Data))
			})
		}
	}
	return rs.String()
}

// nobody takes no transaction.
type nobody struct{}

func (nobody) Write(*table.Transaction) error { return nil }
func (nobody) Has(nft.Family) (bool, error)   { return true, nil }
func (nobody) Remove(...nft.Family) error     { return nil }

func decodeList[T any](body []byte) ([]any, error) {
	var list struct{ Items []*T }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	var out []any
	for _, x := range list.Items {
		out = append(out, x)
	}
	return out, nil
}

// judge tells what was wrong, and what has grown.
func (s *soak) judge(t *testing.T) {
	t.Helper()
	connections := 0
	for k, n := range s.counts {
		if strings.Contains(k, " ") && !strings.HasPrefix(k, "API") && !strings.HasPrefix(k, "expected") {
			connections += n
		}
	}
	t.Logf("%s, seed %d: %d connections: %v", s.takes, s.seed, connections, s.counts)
	for _, w := range s.wrong {
		t.Error(w)
	}
	if connections < int(s.takes.Seconds()) {
		t.Errorf("only %d connections", connections)
	}
	n := len(s.samples)
	if n < 4 {
		t.Fatalf("only %d samples", n)
	}
	// The first quarter fills caches.
	early, late := s.samples[n/4:n/2+1], s.samples[n-n/4-1:]
	least := func(of []sample, f func(sample) float64) float64 {
		out := f(of[0])
		for _, x := range of {
			out = min(out, f(x))
		}
		return out
	}
	for _, x := range []struct {
		what        string
		of          func(sample) float64
		share, more float64
	}{
		{"open files", func(x sample) float64 { return float64(x.files) }, 1, 3},
		{"goroutines", func(x sample) float64 { return float64(x.goroutines) }, 1, 6},
		{"memory in MB", func(x sample) float64 { return x.memory }, 1.15, 6},
	} {
		a, b := least(early, x.of), least(late, x.of)
		t.Logf("%s: %.0f early, %.0f late", x.what, a, b)
		if b > a*x.share+x.more {
			t.Errorf("%s grew from %.0f to %.0f", x.what, a, b)
		}
	}
}

// end ends the proxy: nothing stays.
func (s *soak) end(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the proxy does not end")
	}
	rules, err := s.n1.Run(t.Context(), "", "nft", "list", "tables")
	if err != nil || strings.Contains(rules, "svcnet") {
		t.Errorf("tables stay: %s %v", rules, err)
	}
	if t.Failed() {
		t.Logf("svcnet proxy said:\n%s", strings.Join(s.log[max(0, len(s.log)-60):], "\n"))
	}
}
