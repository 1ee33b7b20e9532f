package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what lab is wanted. The zero value is three nodes with kube-proxy in iptables mode on the nft
// backend, under the name "lab".
type Options struct {
	// Name of the lab and prefix of its namespaces; "lab" when empty. Two labs of one name cannot be up at once:
	// tests put their pid in.
	Name string
	// Nodes is how many there are, 3 when 0, at most 99.
	Nodes int
	// Mode of kube-proxy: "iptables" (when empty), "nftables", or "ipvs" where the kernel has it.
	Mode string
	// Backend is the iptables that the nodes have; NFT when empty. NodeBackend names the nodes that differ.
	Backend     Backend
	NodeBackend map[string]Backend
	// ProxyConfig changes the KubeProxyConfiguration of a node, as decoded YAML, before its kube-proxy starts.
	ProxyConfig func(node string, config map[string]any)
	// NoHairpin leaves hairpin mode off at the ports of pods: a pod then cannot reach itself through a Service.
	NoHairpin bool
	// NoProxy leaves kube-proxy off on all nodes. Node.StartProxy starts it later.
	NoProxy bool
}

// A Lab is a cluster that is up. Its methods may be called from several goroutines.
type Lab struct {
	Name string
	// Dir holds kubeconfigs, the configuration and the logs of all programs. It goes with the lab.
	Dir   string
	Paths Paths
	// Nodes in order: n1, n2, ….
	Nodes []*Node
	// Client stands outside of the cluster. ControlPlane is where the API server runs.
	Client       *Client
	ControlPlane *ControlPlane

	options Options
	state   *State
	api     *http.Client
	// apiServer is among processes. behind is what Down does once they have ended.
	apiServer *process
	behind    []func() error
	tokens    map[string]string // by user

	mu        sync.Mutex
	processes []*process
	spaces    []*Namespace
	pods      map[*Pod]bool

	syncing  sync.Mutex // one WaitSynced at a time
	sentinel int

	ports    atomic.Uint32 // source ports of Many
	down     sync.Once
	downDone error
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Up brings a lab up and returns when every kube-proxy has written its rules. That takes some ten seconds once the
// binaries are there. When it fails nothing is left. The caller takes the lab down with Down.
func Up(ctx context.Context, o Options) (*Lab, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("bring lab %s up: network namespaces need root, this is uid %d", o.Name, os.Geteuid())
	}
	paths, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	state, err := newState(o.Name)
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: o.Name, Dir: filepath.Dir(state.path), Paths: paths, options: o, state: state, pods: map[*Pod]bool{}}
	if err := l.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bring lab %s up: %w", o.Name, err), l.Down())
	}
	return l, nil
}

func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = "lab"
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Mode == "" {
		o.Mode = "iptables"
	}
	if o.Backend == "" {
		o.Backend = NFT
	}
	if !validName.MatchString(o.Name) {
		return fmt.Errorf("a lab cannot be named %q: at most 20 of a-z, 0-9 and - in between", o.Name)
	}
	if o.Nodes < 1 || o.Nodes > 99 {
		return fmt.Errorf("a lab cannot have %d nodes: 1 to 99", o.Nodes)
	}
	if _, ok := findMode(o.Mode); !ok {
		return fmt.Errorf("a lab cannot have kube-proxy in mode %q: iptables, nftables or ipvs", o.Mode)
	}
	for _, b := range append([]Backend{o.Backend}, values(o.NodeBackend)...) {
		if _, err := b.program(); err != nil {
			return err
		}
	}
	return nil
}

func values(m map[string]Backend) []Backend {
	var out []Backend
	for _, b := range m {
		out = append(out, b)
	}
	return out
}

// up makes everything in the order of what waits longest: the API server takes seconds, and the nodes' networks
// are ready before it is.
func (l *Lab) up(ctx context.Context) error {
	for _, program := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w; on Debian: apt-get install iproute2 iptables", err)
		}
	}
	if err := l.addControlPlane(ctx); err != nil {
		return err
	}
	if err := l.startControlPlane(); err != nil {
		return err
	}
	if err := l.addClient(ctx); err != nil {
		return err
	}
	for i := 1; i <= l.options.Nodes; i++ {
		if err := l.addNode(ctx, i); err != nil {
			return err
		}
	}
	if err := l.joinNodes(ctx); err != nil {
		return err
	}
	if err := l.waitControlPlane(ctx); err != nil {
		return err
	}
	for _, n := range l.Nodes {
		if err := l.Apply(ctx, n.object()); err != nil {
			return err
		}
	}
	if err := l.addSentinel(ctx); err != nil {
		return err
	}
	if l.options.NoProxy {
		return nil
	}
	for _, n := range l.Nodes {
		if err := n.StartProxy(ctx); err != nil {
			return err
		}
	}
	return l.WaitSynced(ctx)
}

// Node returns the node of that name, nil if there is none.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// addNamespace makes one of the lab's namespaces, noted first: what is noted is cleaned up.
func (l *Lab) addNamespace(ctx context.Context, suffix string) (*Namespace, error) {
	name := l.Name + "-" + suffix
	if _, err := os.Lstat("/run/netns/" + name); err == nil {
		return nil, fmt.Errorf("add network namespace %s: it is there, and not of this lab", name)
	}
	if err := l.state.addNamespace(name); err != nil {
		return nil, err
	}
	ns, err := addNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaces = append(l.spaces, ns)
	return ns, nil
}

// Down ends everything that the lab started and removes everything that it made. Calling it again does nothing.
func (l *Lab) Down() error {
	l.down.Do(func() { l.downDone = l.takeDown() })
	return l.downDone
}

func (l *Lab) takeDown() error {
	l.mu.Lock()
	pods, processes, spaces := l.pods, l.processes, l.spaces
	l.pods, l.processes, l.spaces = nil, nil, nil
	l.mu.Unlock()
	for p := range pods {
		p.closeServers()
	}
	if l.api != nil {
		l.api.CloseIdleConnections()
	}
	var errs []error
	// etcd was started first and ends last: without it the API server takes longer to end.
	if len(processes) > 0 {
		errs = append(stopAll(processes[1:]), processes[0].stop())
	}
	for _, f := range l.behind {
		errs = append(errs, f())
	}
	for _, ns := range spaces {
		errs = append(errs, ns.remove())
	}
	return errors.Join(append(errs, l.state.clean())...)
}

// stopAll ends programs, all at once.
func stopAll(processes []*process) []error {
	errs := make([]error, len(processes))
	var wait sync.WaitGroup
	for i, p := range processes {
		wait.Go(func() { errs[i] = p.stop() })
	}
	wait.Wait()
	return errs
}

// ready is how long the parts of a lab may take to come up. It is long because a machine under load is slow, and a guest
// of package uml even more so; it costs nothing on others.
const ready = 8 * time.Minute
