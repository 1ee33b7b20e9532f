package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A PodSpec says what pod is wanted.
type PodSpec struct {
	Name      string
	Namespace string // "default" when empty
	Node      string // "n1"
	Labels    map[string]string
	// HostNetwork pods live in the network of their node and have its addresses.
	HostNetwork bool
	// IPv4 and IPv6 of the node's ranges; the next free ones when not given.
	IPv4, IPv6 netip.Addr
}

// A Pod is a network namespace behind its node's cni0, or its node's own, and a Pod object that is Running and
// Ready. It has no process: servers are opened in it.
type Pod struct {
	Name, Namespace string
	Node            *Node
	IPv4, IPv6      netip.Addr
	HostNetwork     bool

	lab  *Lab
	ns   *Namespace
	port string // of cni0

	mu      sync.Mutex
	servers []*Server
}

// Netns makes a pod a Place.
func (p *Pod) Netns() *Namespace { return p.ns }

func (p *Pod) String() string { return p.Name }

// AddPod makes a pod. One without a server refuses connections, as a real one does.
func (l *Lab) AddPod(ctx context.Context, spec PodSpec) (*Pod, error) {
	if spec.Namespace == "" {
		spec.Namespace = "default"
	}
	n := l.Node(spec.Node)
	if n == nil {
		return nil, fmt.Errorf("add pod %s: there is no node %q", spec.Name, spec.Node)
	}
	p := &Pod{Name: spec.Name, Namespace: spec.Namespace, Node: n, HostNetwork: spec.HostNetwork, lab: l}
	err := p.join(ctx, spec)
	if err == nil {
		err = l.Apply(ctx, p.object(spec.Labels))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add pod %s: %w", p.Name, err), p.leave(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[p] = true
	return p, nil
}

// join puts the pod on its node's network.
func (p *Pod) join(ctx context.Context, spec PodSpec) error {
	n := p.Node
	if p.HostNetwork {
		p.ns, p.IPv4, p.IPv6 = n.ns, n.IPv4, n.IPv6
		return nil
	}
	var err error
	if p.IPv4, err = n.takeAddress(spec.IPv4, n.PodCIDRIPv4); err != nil {
		return err
	}
	if p.IPv6, err = n.takeAddress(spec.IPv6, n.PodCIDRIPv6); err != nil {
		return err
	}
	name := "pod-" + p.Name
	if p.Namespace != "default" {
		name = "pod-" + p.Namespace + "-" + p.Name
	}
	if p.ns, err = p.lab.addNamespace(ctx, name); err != nil {
		return err
	}
	// Named for the address: interface names are short, and pods' are not.
	b := p.IPv4.As4()
	p.port = fmt.Sprintf("veth%d", b[3])
	hairpin := "on"
	if p.lab.options.NoHairpin {
		hairpin = "off"
	}
	err = n.ns.IP(ctx,
		// The hardware address follows from the IP address too, or the neighbours of a pod that was replaced
		// would send to the old one for some seconds.
		fmt.Sprintf("link add %s type veth peer name eth0 address 0a:58:%02x:%02x:%02x:%02x netns %s", p.port, b[0], b[1], b[2], b[3], p.ns.Name),
		fmt.Sprintf("link set %s master cni0 up", p.port),
		fmt.Sprintf("link set %s type bridge_slave hairpin %s", p.port, hairpin))
	if err != nil {
		return err
	}
	gateway4, gateway6 := n.gateways()
	return p.ns.IP(ctx,
		fmt.Sprintf("addr add %s/24 dev eth0", p.IPv4),
		fmt.Sprintf("addr add %s/64 dev eth0 nodad", p.IPv6),
		"link set eth0 up",
		fmt.Sprintf("route add default via %s", gateway4),
		fmt.Sprintf("route add default via %s", gateway6))
}

// SetHairpin turns hairpin mode of the pod's port on or off.
func (p *Pod) SetHairpin(ctx context.Context, on bool) error {
	if p.HostNetwork {
		return fmt.Errorf("set hairpin mode of pod %s: it is on the network of its node and has no port", p.Name)
	}
	hairpin := "off"
	if on {
		hairpin = "on"
	}
	return p.Node.ns.IP(ctx, fmt.Sprintf("link set %s type bridge_slave hairpin %s", p.port, hairpin))
}

// Interface is the pod's port of cni0 on its node, empty for a pod on the host's network.
func (p *Pod) Interface() string { return p.port }

// Addr is the pod's address of a family.
func (p *Pod) Addr(ipv6 bool) netip.Addr {
	if ipv6 {
		return p.IPv6
	}
	return p.IPv4
}

// object is the Pod object, as the kubelet would leave it.
func (p *Pod) object(labels map[string]string) map[string]any {
	set := map[string]any{}
	for k, v := range labels {
		set[k] = v
	}
	const image = "registry.k8s.io/pause:3.10"
	now := time.Now().UTC().Format(time.RFC3339)
	yes := func(t string) map[string]any { return map[string]any{"type": t, "status": "True"} }
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "labels": set},
		"spec": map[string]any{
			"nodeName": p.Node.Name, "hostNetwork": p.HostNetwork,
			"containers": []any{map[string]any{"name": "pause", "image": image}},
		},
		"status": map[string]any{
			"phase":  "Running",
			"podIP":  p.IPv4.String(),
			"podIPs": []any{map[string]any{"ip": p.IPv4.String()}, map[string]any{"ip": p.IPv6.String()}},
			"hostIP": p.Node.IPv4.String(),
			"hostIPs": []any{
				map[string]any{"ip": p.Node.IPv4.String()}, map[string]any{"ip": p.Node.IPv6.String()}},
			"startTime": now,
			"containerStatuses": []any{map[string]any{
				"name": "pause", "image": image, "imageID": image, "restartCount": 0, "ready": true, "started": true,
				"state": map[string]any{"running": map[string]any{"startedAt": now}}}},
			"conditions": []any{yes("PodReadyToStartContainers"), yes("Initialized"), yes("Ready"), yes("ContainersReady"), yes("PodScheduled")},
		},
	}
}

// Remove ends the pod's servers and takes the pod away: object, namespace, addresses. EndpointSlices stay as they
// are, so a backend that is gone can be staged.
func (p *Pod) Remove(ctx context.Context) error {
	p.lab.mu.Lock()
	delete(p.lab.pods, p)
	p.lab.mu.Unlock()
	err := p.lab.Delete(ctx, "Pod", p.Namespace, p.Name)
	if err = errors.Join(err, p.leave(ctx)); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Name, err)
	}
	return nil
}

func (p *Pod) leave(ctx context.Context) error {
	p.closeServers()
	if p.HostNetwork {
		return nil
	}
	p.Node.freeAddresses(p.IPv4, p.IPv6)
	if p.ns == nil {
		return nil
	}
	var errs []error
	// A namespace goes when the last of its sockets went; the port must not wait for that, or the next pod could
	// not have the address.
	if p.port != "" {
		if _, err := p.ns.Run(ctx, "", "ip", "link", "del", "eth0"); err != nil {
			errs = append(errs, err)
		}
	}
	l := p.lab
	l.mu.Lock()
	l.spaces = slices.DeleteFunc(l.spaces, func(ns *Namespace) bool { return ns == p.ns })
	l.mu.Unlock()
	return errors.Join(append(errs, p.ns.remove(), l.state.dropNamespace(p.ns.Name))...)
}

func (p *Pod) closeServers() {
	p.mu.Lock()
	servers := p.servers
	p.servers = nil
	p.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
}
