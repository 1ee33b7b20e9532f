package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// ProxyLog is the log of the node's kube-proxy, over all its starts. ProxyConfig is its configuration file.
func (n *Node) ProxyLog() string { return filepath.Join(n.Dir(), "kube-proxy.log") }

// ProxyConfig is the path of the configuration that kube-proxy was started with last.
func (n *Node) ProxyConfig() string { return filepath.Join(n.Dir(), "kube-proxy.yaml") }

// ConfigureProxy changes the KubeProxyConfiguration for the next StartProxy, on top of earlier changes. Sections
// such as config["iptables"] may be missing: Section makes them.
func (n *Node) ConfigureProxy(change func(config map[string]any)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change = append(n.change, change)
}

// Section returns a section of a configuration, made if it was missing: Section(config, "iptables")["masqueradeAll"] = true.
func Section(config map[string]any, name string) map[string]any {
	s, ok := config[name].(map[string]any)
	if !ok {
		s = map[string]any{}
		config[name] = s
	}
	return s
}

// configuration is what a kubeadm node has, as far as a namespace can.
func (n *Node) configuration() map[string]any {
	config := map[string]any{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             n.lab.options.Mode,
		"clusterCIDR":      ClusterCIDRs,
		"hostnameOverride": n.Name,
		"clientConnection": map[string]any{"kubeconfig": n.lab.Kubeconfig("proxy")},
		// The sysctl behind it is the machine's.
		"conntrack": map[string]any{"maxPerCore": 0},
	}
	if f := n.lab.options.ProxyConfig; f != nil {
		f(n.Name, config)
	}
	for _, f := range n.change {
		f(config)
	}
	return config
}

// StartProxy starts the node's kube-proxy and does not wait for its rules: WaitSynced does.
func (n *Node) StartProxy(_ context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy != nil && n.proxy.running() {
		return fmt.Errorf("start kube-proxy on node %s: it runs, with pid %d", n.Name, n.proxy.cmd.Process.Pid)
	}
	config := n.configuration()
	mode, ok := config["mode"].(string)
	if _, known := findMode(mode); !ok || !known {
		return fmt.Errorf("start kube-proxy on node %s: mode %v: iptables, nftables or ipvs", n.Name, config["mode"])
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("start kube-proxy on node %s: %w", n.Name, err)
	}
	if err := os.WriteFile(n.ProxyConfig(), text, 0o600); err != nil {
		return fmt.Errorf("start kube-proxy on node %s: %w", n.Name, err)
	}
	program, err := n.linkProxy()
	if err != nil {
		return fmt.Errorf("start kube-proxy on node %s: %w", n.Name, err)
	}
	p, err := n.lab.start(n.ns, "kube-proxy on node "+n.Name, n.ProxyLog(), n.Env(), program, "--config="+n.ProxyConfig(), "--v=2")
	if err != nil {
		return err
	}
	n.proxy, n.mode = p, mode
	return n.lab.keep(p, nil)
}

// linkProxy puts kube-proxy among the node's programs: what lists its arguments names the node's folder and not the
// place where it happened to be built.
func (n *Node) linkProxy() (string, error) {
	built := n.program
	if built == "" {
		built = n.lab.Paths.KubeProxy
	}
	link := filepath.Join(n.Dir(), "bin", "kube-proxy")
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return link, os.Symlink(built, link)
}

// StopProxy ends the node's kube-proxy. Its rules stay, as they do on a real node.
func (n *Node) StopProxy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return nil
	}
	p := n.proxy
	n.proxy = nil
	err := p.stop()
	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()
	n.lab.processes = slices.DeleteFunc(n.lab.processes, func(o *process) bool { return o == p })
	return err
}

// SignalProxy sends a signal to the node's kube-proxy: syscall.SIGSTOP makes one that hangs, SIGCONT wakes it.
func (n *Node) SignalProxy(sig os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return errors.New("send a signal to kube-proxy on node " + n.Name + ": it was not started")
	}
	return n.proxy.signal(sig)
}

// ProxyRunning tells whether the node's kube-proxy was started and has not ended.
func (n *Node) ProxyRunning() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxy != nil && n.proxy.running()
}

// ProxyPID is the pid of the node's kube-proxy, 0 when it does not run.
func (n *Node) ProxyPID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil || !n.proxy.running() {
		return 0
	}
	return n.proxy.cmd.Process.Pid
}

// proxyFailure says how kube-proxy ended, nil while it runs.
func (n *Node) proxyFailure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return fmt.Errorf("kube-proxy on node %s was not started", n.Name)
	}
	if n.proxy.running() {
		return nil
	}
	return n.proxy.failure()
}
