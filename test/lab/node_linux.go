package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// A Node is a network namespace with a kube-proxy, and a Node object.
type Node struct {
	Name                     string
	IPv4, IPv6               netip.Addr
	PodCIDRIPv4, PodCIDRIPv6 netip.Prefix

	lab *Lab
	ns  *Namespace

	mu      sync.Mutex
	proxy   *process
	kubelet *process               // nil: the node has none
	program string                 // kube-proxy's path when it is not the control plane's version
	mode    string                 // of kube-proxy as it was started last
	change  []func(map[string]any) // of the configuration of kube-proxy, in order
	taken   map[netip.Addr]bool    // addresses of pods
	last    [2]netip.Addr          // given out last, by family
}

// Netns makes a node a Place.
func (n *Node) Netns() *Namespace { return n.ns }

func (n *Node) String() string { return n.Name }

// Dir holds the node's kube-proxy.yaml, its log, and bin, the folder with the node's iptables.
func (n *Node) Dir() string { return filepath.Join(n.lab.Dir, n.Name) }

// systemPath is where programs of the machine are looked for.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A Backend says which iptables a node has.
type Backend string

// The two backends. Rules of the one are not seen by the other.
const (
	NFT    Backend = "nft"
	Legacy Backend = "legacy"
)

// program is the multi-call program behind all six commands.
func (b Backend) program() (string, error) {
	if b != NFT && b != Legacy {
		return "", fmt.Errorf("there is no backend %q of iptables: %s or %s", b, NFT, Legacy)
	}
	path := "/usr/sbin/xtables-" + string(b) + "-multi"
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the iptables of backend %s: %w; on Debian: apt-get install iptables", b, err)
	}
	return path, nil
}

// Backend is the iptables that the node has.
func (n *Node) Backend() Backend {
	if b, ok := n.lab.options.NodeBackend[n.Name]; ok {
		return b
	}
	return n.lab.options.Backend
}

// writeFolder makes the node's folder. kube-proxy, and everybody else, finds iptables by PATH alone.
func (n *Node) writeFolder() error {
	bin := filepath.Join(n.Dir(), "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return fmt.Errorf("make the folder of node %s: %w", n.Name, err)
	}
	program, err := n.Backend().program()
	if err != nil {
		return err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("give node %s its iptables: %w", n.Name, err)
		}
	}
	return nil
}

// Path is the PATH of programs on the node: its own iptables first.
func (n *Node) Path() string { return filepath.Join(n.Dir(), "bin") + ":" + systemPath }

// Env is the environment of programs on the node, as NAME=value: PATH with the node's iptables first, KUBECONFIG
// of admin, and a lock of iptables that it does not share with other nodes.
func (n *Node) Env() []string {
	return environment(n.lab.Dir, n.Dir())
}

// Run runs a command on the node with the node's Env, "iptables-save -c", and returns its standard output.
func (n *Node) Run(ctx context.Context, stdin string, argv ...string) (string, error) {
	path := filepath.Join(n.Dir(), "bin", argv[0])
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(argv[0]); err != nil {
			return "", fmt.Errorf("run %s on node %s: %w", argv[0], n.Name, err)
		}
	}
	// Links of a multi-call program tell it which command it is.
	return n.ns.runWith(ctx, n.Env(), stdin, append([]string{path}, argv[1:]...)...)
}

// Get asks a server on the node itself, "http://127.0.0.1:10249/metrics", and returns the body.
func (n *Node) Get(ctx context.Context, url string) ([]byte, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return n.ns.dialStream(ctx, address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s on node %s: %w", url, n.Name, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get %s on node %s: %w", url, n.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("get %s on node %s: %w", url, n.Name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return body, fmt.Errorf("get %s on node %s: %s", url, n.Name, resp.Status)
	}
	return body, nil
}

// object is the Node object, with the addresses that kube-proxy waits for.
func (n *Node) object() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": n.Name, "labels": map[string]any{
			"kubernetes.io/hostname": n.Name, "kubernetes.io/os": "linux",
		}},
		"spec": map[string]any{
			"podCIDR":  n.PodCIDRIPv4.String(),
			"podCIDRs": []any{n.PodCIDRIPv4.String(), n.PodCIDRIPv6.String()},
		},
		"status": map[string]any{
			"addresses": []any{
				map[string]any{"type": "InternalIP", "address": n.IPv4.String()},
				map[string]any{"type": "InternalIP", "address": n.IPv6.String()},
				map[string]any{"type": "Hostname", "address": n.Name},
			},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the lab says so"}},
		},
	}
}

// gateways are the addresses of cni0.
func (n *Node) gateways() (v4, v6 netip.Addr) {
	return n.PodCIDRIPv4.Addr().Next(), n.PodCIDRIPv6.Addr().Next()
}

// takeAddress reserves an address for a pod: the wanted one, or the next free one of the range.
func (n *Node) takeAddress(wanted netip.Addr, cidr netip.Prefix) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if wanted.IsValid() {
		if n.taken[wanted] || !cidr.Contains(wanted) {
			return netip.Addr{}, fmt.Errorf("address %s is taken, or not of %s, the range of node %s", wanted, cidr, n.Name)
		}
		n.taken[wanted] = true
		return wanted, nil
	}
	family := 0
	if cidr.Addr().Is6() {
		family = 1
	}
	// In turn, as CNI plugins do it: an address that was free a moment ago has connections that remember it.
	// .1 is cni0, and .255 of an IPv4 range its broadcast address.
	a := n.last[family]
	for range 253 {
		if a = a.Next(); !cidr.Contains(a) || !cidr.Contains(a.Next()) {
			a = cidr.Addr().Next().Next()
		}
		if !n.taken[a] {
			n.taken[a], n.last[family] = true, a
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("node %s has no free address left in %s", n.Name, cidr)
}

func (n *Node) freeAddresses(addrs ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		delete(n.taken, a)
	}
}
