// Command beside measures svcnet's fallback proxy beside kube-proxy in nftables and in iptables mode, on the same objects
// of a real API server, one after the other in each round: the time from the start of the program until Services answer,
// the time from a change of an EndpointSlice until the kernel goes by it, and what both cost in CPU time and memory.
// Whether a Service is served is asked by connections, which all three have to answer.
//
//	go run ./test/proxy/cmd/beside [-services 10000] [-endpoints 5] [-rounds 5] [-changes 15]
//
// It needs root, and builds the lab's programs the first time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcnet/svcnet/test/lab"
)

// options are what is measured.
type options struct {
	services, endpoints, rounds, changes int
	program                              string
	only                                 string
}

func main() {
	var o options
	flag.IntVar(&o.services, "services", 10000, "number of Services")
	flag.IntVar(&o.endpoints, "endpoints", 5, "endpoints of each")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of which the median counts")
	flag.IntVar(&o.changes, "changes", 15, "changes of a slice in each round")
	flag.StringVar(&o.program, "program", "", "svcnet to measure; built when not given")
	flag.StringVar(&o.only, "only", "", "measure only the proxies whose names contain this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// namespace of all objects.
const namespace = "beside"

// samples is how many Services are dialled to see whether all are served: the first, the last and some between.
const samples = 20

// scene is the cluster under measurement.
type scene struct {
	options
	*lab.Lab
	n1   *lab.Node
	a, b []*lab.Pod
	// sampled are the numbers of Services whose backends are real.
	sampled []int
}

func run(ctx context.Context, o options) error {
	if o.program == "" {
		dir, err := os.MkdirTemp("", "svcnet-beside")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.program = filepath.Join(dir, "svcnet")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.program, "./cmd/kubectl-svcnet").CombinedOutput(); err != nil {
			return fmt.Errorf("build svcnet: %w: %s", err, out)
		}
	}
	l, err := lab.Up(ctx, lab.Options{Name: fmt.Sprintf("be%d", os.Getpid()), Nodes: 1, NoProxy: true})
	if err != nil {
		return err
	}
	defer func() { _ = l.Down() }()
	s := &scene{options: o, Lab: l, n1: l.Node("n1")}
	if err := s.fill(ctx); err != nil {
		return err
	}
	subjects := []subject{
		{"svcnet", s.startSvcnet},
		{"kube-proxy nftables", func(ctx context.Context) (*running, error) { return s.startKubeProxy(ctx, "nftables") }},
		{"kube-proxy iptables", func(ctx context.Context) (*running, error) { return s.startKubeProxy(ctx, "iptables") }},
	}
	results := map[string][]result{}
	for round := range o.rounds {
		for _, x := range subjects {
			if !strings.Contains(x.name, o.only) {
				continue
			}
			r, err := s.measure(ctx, x)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, x.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d, %-20s from nothing %6.2f s (CPU %6.2f s), change %6.1f ms (CPU %6.1f ms), memory %.0f MB, at most %.0f MB\n",
				round+1, x.name, r.programmed.Seconds(), r.cpu.Seconds(), ms(r.change), ms(r.changeCPU), r.memory, r.peak)
			results[x.name] = append(results[x.name], r)
		}
	}
	fmt.Printf("%d Services with %d endpoints, %d rounds: median (least to most)\n\n", o.services, o.endpoints, o.rounds)
	fmt.Println("| | from nothing | its CPU | a change | its CPU | memory | at most |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, x := range subjects {
		rs := results[x.name]
		if len(rs) == 0 {
			continue
		}
		of := func(f func(result) float64) string {
			var v []float64
			for _, r := range rs {
				v = append(v, f(r))
			}
			slices.Sort(v)
			return fmt.Sprintf("%.3g (%.3g to %.3g)", v[len(v)/2], v[0], v[len(v)-1])
		}
		fmt.Printf("| %s | %s s | %s s | %s ms | %s ms | %s MB | %s MB |\n", x.name,
			of(func(r result) float64 { return r.programmed.Seconds() }), of(func(r result) float64 { return r.cpu.Seconds() }),
			of(func(r result) float64 { return ms(r.change) }), of(func(r result) float64 { return ms(r.changeCPU) }),
			of(func(r result) float64 { return r.memory }), of(func(r result) float64 { return r.peak }))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fill makes the objects.
func (s *scene) fill(ctx context.Context) error {
	if err := s.Apply(ctx, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	for name, group := range map[string]*[]*lab.Pod{"a": &s.a, "b": &s.b} {
		for i := range s.endpoints {
			made, err := s.AddPod(ctx, lab.PodSpec{Name: fmt.Sprintf("%s%d", name, i), Namespace: namespace, Node: "n1"})
			if err != nil {
				return err
			}
			if _, err := made.Serve(corev1.ProtocolTCP, 8080); err != nil {
				return err
			}
			*group = append(*group, made)
		}
	}
	for i := range samples {
		s.sampled = append(s.sampled, i*(s.services-1)/(samples-1))
	}
	s.sampled = slices.Compact(s.sampled)
	begun := time.Now()
	work := make(chan int)
	failed := make(chan error, 16)
	var wait sync.WaitGroup
	for range 16 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range work {
				err := s.create(ctx, "/api/v1/namespaces/"+namespace+"/services", s.service(i))
				if err == nil {
					err = s.create(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices", s.slice(i, s.a))
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	var err error
	for i := 0; i < s.services && err == nil; i++ {
		select {
		case work <- i:
		case err = <-failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	close(work)
	wait.Wait()
	fmt.Fprintf(os.Stderr, "%d Services made in %s\n", s.services, time.Since(begun).Round(time.Second))
	return err
}

// create makes an object without asking first whether it is there, which is what takes long.
func (s *scene) create(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("make an object: %w", err)
	}
	for try := 0; ; try++ {
		_, err = s.Request(ctx, http.MethodPost, path, "application/json", body)
		var refused *lab.APIError
		switch {
		case err == nil, errors.As(err, &refused) && refused.Code == http.StatusConflict: // an earlier try did it
			return nil
		case try == 5 || ctx.Err() != nil || errors.As(err, &refused) && refused.Code < http.StatusInternalServerError:
			return err
		}
		time.Sleep(time.Second) // the machine is busy
	}
}

func clusterIP(i int) string { return fmt.Sprintf("10.96.%d.%d", 64+i/250, 1+i%250) }

func (s *scene) service(i int) corev1.Service {
	one := corev1.IPFamilyPolicySingleStack
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i), Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP(i), IPFamilyPolicy: &one, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// slice is that of a Service: pods where it is a sampled one, else addresses of nobody.
func (s *scene) slice(i int, pods []*lab.Pod) discoveryv1.EndpointSlice {
	sl := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("s-%d-x", i), Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s-%d", i)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	node := "n1"
	for j := range s.endpoints {
		n := i*s.endpoints + j
		if slices.Contains(s.sampled, i) {
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{pods[j].IPv4.String()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
			continue
		}
		other := fmt.Sprintf("n%d", 2+n%200)
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", 16+n/240%240, 2+n%240)}, NodeName: &other, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return sl
}

// subject is a proxy that is measured.
type subject struct {
	name  string
	start func(ctx context.Context) (*running, error)
}

// running is one that runs.
type running struct {
	pid  int
	stop func() error
}

// result is one round of one proxy.
type result struct {
	programmed, cpu, change, changeCPU time.Duration
	memory, peak                       float64 // MB
}

func (s *scene) measure(ctx context.Context, x subject) (r result, err error) {
	if err := s.flush(ctx); err != nil {
		return r, err
	}
	begun := time.Now()
	p, err := x.start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	m := meter(p.pid)
	defer m.end()
	for _, i := range s.sampled {
		if err := s.until(ctx, i, s.a); err != nil {
			return r, fmt.Errorf("wait for Service %d: %w", i, err)
		}
	}
	r.programmed, r.cpu = time.Since(begun), m.cpu()
	// What it still does with what it was told at the beginning is not part of a change.
	if err := m.quiet(ctx); err != nil {
		return r, err
	}
	before := m.cpu()
	var changes []time.Duration
	pods := s.b
	for n := range s.changes {
		i := s.sampled[n%len(s.sampled)]
		time.Sleep(1500 * time.Millisecond) // kube-proxy waits a second between two syncs
		begun := time.Now()
		if err := s.Apply(ctx, s.slice(i, pods)); err != nil {
			return r, err
		}
		if err := s.until(ctx, i, pods); err != nil {
			return r, fmt.Errorf("wait for a change of Service %d: %w", i, err)
		}
		changes = append(changes, time.Since(begun))
		if n%len(s.sampled) == len(s.sampled)-1 {
			if pods[0] == s.a[0] {
				pods = s.b
			} else {
				pods = s.a
			}
		}
	}
	time.Sleep(time.Second)
	slices.Sort(changes)
	r.change, r.changeCPU = changes[len(changes)/2], (m.cpu()-before)/time.Duration(len(changes))
	r.memory, r.peak = m.rss(), m.most()
	for i := range s.sampled {
		if err := s.Apply(ctx, s.slice(s.sampled[i], s.a)); err != nil {
			return r, err
		}
	}
	return r, nil
}

// patience bounds the wait for one proxy.
const patience = 5 * time.Minute

// until dials a Service until one of some pods answers.
func (s *scene) until(ctx context.Context, i int, pods []*lab.Pod) error {
	to := netip.AddrPortFrom(netip.MustParseAddr(clusterIP(i)), 80)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		a, err := s.Dial(ctx, s.n1, corev1.ProtocolTCP, to, lab.DialOptions{Timeout: 250 * time.Millisecond})
		if err != nil {
			return err
		}
		if a.Outcome == lab.Answered && slices.ContainsFunc(pods, func(p *lab.Pod) bool { return p.Name == a.Pod }) {
			return nil
		}
		if a.Outcome != lab.Answered {
			time.Sleep(2 * time.Millisecond)
		}
	}
	return fmt.Errorf("no answer of pod %s or its like within %s", pods[0].Name, patience)
}

// flush takes all rules of the node away.
func (s *scene) flush(ctx context.Context) error {
	_, err := s.n1.Run(ctx, "", "nft", "flush", "ruleset")
	return err
}

func (s *scene) startKubeProxy(ctx context.Context, mode string) (*running, error) {
	s.n1.ConfigureProxy(func(config map[string]any) { config["mode"] = mode })
	if err := s.n1.StartProxy(ctx); err != nil {
		return nil, err
	}
	return &running{s.n1.ProxyPID(), s.n1.StopProxy}, nil
}

func (s *scene) startSvcnet(ctx context.Context) (*running, error) {
	var c *exec.Cmd
	said, err := os.Create(filepath.Join(s.n1.Dir(), "svcnet-proxy.log"))
	if err != nil {
		return nil, err
	}
	err = s.n1.Netns().Do(func() error {
		c = exec.CommandContext(ctx, s.program, "proxy", "-A", "--apply", "--runtime-folder", filepath.Join(s.n1.Dir(), "run"), "--cluster-cidr", "10.244.0.0/16,fd00:244::/32")
		c.Env = append(s.n1.Env(), "HOME=/nonexistent", "KUBECONFIG="+s.Kubeconfig("admin"))
		c.Stderr = said
		return c.Start()
	})
	if err != nil {
		return nil, errors.Join(err, said.Close())
	}
	return &running{c.Process.Pid, func() error {
		_ = c.Process.Signal(syscall.SIGTERM)
		err := c.Wait()
		if c.ProcessState.ExitCode() == 130 {
			err = nil
		}
		return errors.Join(err, said.Close())
	}}, nil
}

// metered watches a process and those that it starts.
type metered struct {
	pid  int
	done chan struct{}

	mu  sync.Mutex
	top float64
}

func meter(pid int) *metered {
	m := &metered{pid: pid, done: make(chan struct{})}
	go func() {
		for {
			select {
			case <-m.done:
				return
			case <-time.After(50 * time.Millisecond):
				now := 0.0
				for _, p := range family(pid) {
					now += rss(p)
				}
				m.mu.Lock()
				m.top = max(m.top, now)
				m.mu.Unlock()
			}
		}
	}()
	return m
}

func (m *metered) end() { close(m.done) }

func (m *metered) most() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.top
}

func (m *metered) rss() float64 { return rss(m.pid) }

// cpu is what the process took, with programs that it ran and waited for.
func (m *metered) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// quiet waits until the process does next to nothing.
func (m *metered) quiet(ctx context.Context) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		before := m.cpu()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
		if m.cpu()-before <= 40*time.Millisecond {
			return nil
		}
	}
	return fmt.Errorf("the process is not quiet after %s", patience)
}

// rss is a process's resident memory in MB.
func rss(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages*os.Getpagesize()) / 1e6
}

// family are a process and its children.
func family(pid int) []int {
	out := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		data, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, family(n)...)
			}
		}
	}
	return out
}
