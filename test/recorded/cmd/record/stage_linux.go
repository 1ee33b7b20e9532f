package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/test/lab"
)

// A stage is a lab with the objects on it, and no kube-proxy yet.
type stage struct {
	lab  *lab.Lab
	node *lab.Node // the one that is recorded
	pods map[string]*lab.Pod
	// svcnet is the program that collects, temp a folder for what is in between.
	svcnet, temp string
}

func newStage(ctx context.Context, svcnet, temp string, inGuest bool) (*stage, error) {
	o := lab.Options{Name: "recorded", Nodes: len(zones), NoProxy: true}
	if inGuest {
		o.Backend = lab.Legacy // its kernel has no translation by nftables
	}
	l, err := lab.Up(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &stage{lab: l, node: l.Node(recordedNode), pods: map[string]*lab.Pod{}, svcnet: svcnet, temp: temp}
	if err := s.set(ctx); err != nil {
		return nil, errors.Join(err, l.Down())
	}
	return s, nil
}

// set writes the objects and makes the pods.
func (s *stage) set(ctx context.Context) error {
	if err := s.removeSentinel(ctx); err != nil {
		return err
	}
	for i, zone := range zones {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":%q}}}`, zone)
		if err := s.lab.Patch(ctx, "Node", "", s.lab.Nodes[i].Name, "", patch); err != nil {
			return err
		}
	}
	err := s.lab.Apply(ctx, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
	if err != nil {
		return err
	}
	if err := s.addPods(ctx); err != nil {
		return err
	}
	for i := range scenes {
		service, err := scenes[i].service(i + 1)
		if err != nil {
			return err
		}
		slices, err := scenes[i].slices(s.pods)
		if err != nil {
			return err
		}
		if err := s.lab.Apply(ctx, service, slices); err != nil {
			return err
		}
	}
	return nil
}

// removeSentinel takes the lab's own Service away: nothing serves it.
func (s *stage) removeSentinel(ctx context.Context) error {
	for _, o := range [][2]string{{"Service", "sentinel"}, {"EndpointSlice", "sentinel-ipv4"}, {"EndpointSlice", "sentinel-ipv6"}} {
		if err := s.lab.Delete(ctx, o[0], "svcnet-lab", o[1]); err != nil {
			return err
		}
	}
	return nil
}

// remove takes a Service and its slices away.
func (s *stage) remove(ctx context.Context, service string) error {
	if err := s.lab.Delete(ctx, "Service", namespace, service); err != nil {
		return err
	}
	i := numberOf(service) - 1
	slices, err := scenes[i].slices(s.pods)
	if err != nil {
		return err
	}
	for _, slice := range slices {
		if err := s.lab.Delete(ctx, "EndpointSlice", namespace, slice.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) addPods(ctx context.Context) error {
	for _, p := range places {
		pod, err := s.lab.AddPod(ctx, p.spec())
		if err != nil {
			return err
		}
		s.pods[p.name] = pod
		for _, at := range []struct {
			protocol corev1.Protocol
			port     int
		}{{corev1.ProtocolTCP, 8080}, {corev1.ProtocolTCP, 9090}, {corev1.ProtocolUDP, 5353}} {
			if _, err := pod.Serve(at.protocol, at.port); err != nil {
				return err
			}
		}
	}
	return nil
}

// record starts a kube-proxy on the node, has it used a little, and collects.
func (s *stage) record(ctx context.Context, p lab.Proxy, mode, folder string) error {
	if err := s.clear(ctx, mode); err != nil {
		return err
	}
	s.node.UseProxy(p.Path)
	s.node.ConfigureProxy(func(config map[string]any) {
		config["mode"] = mode
		delete(config, "featureGates")
		if minor := minorOf(p.Version); mode == "nftables" && (minor == "1.29" || minor == "1.30") {
			config["featureGates"] = map[string]any{"NFTablesProxyMode": true} // alpha
		}
	})
	if err := s.node.StartProxy(ctx); err != nil {
		return err
	}
	if err := s.waitProgrammed(ctx, mode); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	bundle := filepath.Join(s.temp, mode+minorOf(p.Version)+".tar.gz")
	// The host name is the machine's, and a node's is mostly its own.
	named := []string{"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, recordedNode}
	if _, err := s.node.Run(ctx, "", append(named, s.svcnet, "collect", "--no-report", "-o", bundle)...); err != nil {
		return err
	}
	if err := s.node.StopProxy(); err != nil {
		return err
	}
	return unpack(ctx, bundle, folder)
}

// clear takes away what the version before left on the node: rules, connections, and its log.
func (s *stage) clear(ctx context.Context, mode string) error {
	rules := s.clearRules
	if mode == modeIPVS {
		rules = s.clearServers
	}
	if err := rules(ctx); err != nil {
		return err
	}
	if _, err := s.node.Run(ctx, "", "conntrack", "-F"); err != nil {
		return err
	}
	if err := os.Remove(s.node.ProxyLog()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *stage) clearRules(ctx context.Context) error {
	_, err := s.node.Run(ctx, "", "nft", "flush", "ruleset")
	return err
}

// clearServers takes away what IPVS mode leaves: virtual servers, their addresses, rules, and the sets that these ask.
func (s *stage) clearServers(ctx context.Context) error {
	const flush = 17 // IPVS_CMD_FLUSH of linux/ip_vs.h
	err := s.node.Netns().Do(func() error {
		family, err := netlink.GenlFamilyGet("IPVS")
		if err != nil {
			return err
		}
		request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
		request.AddData(&nl.Genlmsg{Command: flush, Version: 1})
		_, err = request.Execute(unix.NETLINK_GENERIC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove virtual servers: %w", err)
	}
	const empty = "*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\nCOMMIT\n"
	for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
		if _, err := s.node.Run(ctx, empty, restore); err != nil {
			return err
		}
	}
	if _, err := s.node.Run(ctx, "", "ipset", "destroy"); err != nil {
		return err
	}
	// There is none yet before the first version.
	if _, err := s.node.Run(ctx, "", "ip", "link", "show", "kube-ipvs0"); err != nil {
		return nil
	}
	_, err = s.node.Run(ctx, "", "ip", "link", "del", "kube-ipvs0")
	return err
}

// programmed is in the rules of both families once kube-proxy has written them, by mode. What it writes first is
// everything.
var programmed = map[string]struct {
	commands [][]string
	text     string
}{
	"iptables": {[][]string{{"iptables-save", "-t", "nat"}, {"ip6tables-save", "-t", "nat"}}, `--comment "store/web:http cluster IP"`},
	// Rules come last.
	"ipvs":     {[][]string{{"iptables-save", "-t", "nat"}, {"ip6tables-save", "-t", "nat"}}, "-A KUBE-SERVICES -m set --match-set KUBE-"},
	"nftables": {[][]string{{"nft", "list", "table", "ip", "kube-proxy"}, {"nft", "list", "table", "ip6", "kube-proxy"}}, "-store/web/tcp/http {"},
}

// patience is how long kube-proxy may take to write its rules after it was started. It waits up to 30 s for its Node, and
// in a guest each of the hundreds of entries of sets takes it a moment.
const patience = 5 * time.Minute

func (s *stage) waitProgrammed(ctx context.Context, mode string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, command := range programmed[mode].commands {
		if err := s.until(ctx, strings.Join(command, " ")+" shows the rules of kube-proxy", func() error {
			rules, err := s.node.Run(ctx, "", command...)
			if err == nil && !strings.Contains(rules, programmed[mode].text) {
				err = errors.New("they are not there")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return s.until(ctx, "kube-proxy says that it is healthy", func() error {
		_, err := s.node.Get(ctx, "http://127.0.0.1:10256/healthz")
		return err
	})
}

// until asks again and again.
func (s *stage) until(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(s.node.ProxyLog()) // it goes with the lab
			return fmt.Errorf("wait until %s: %w; the log of kube-proxy ends:\n%s", what, err, said[max(0, len(said)-4000):])
		case <-tick.C:
		}
	}
}

// connect makes a few connections, so that the node has such: over a cluster IP, node port and load balancer, by TCP
// and UDP, in both families, and one that sticks.
func (s *stage) connect(ctx context.Context) error {
	client := s.pods["client-1"]
	for _, c := range []struct {
		from     lab.Place
		protocol corev1.Protocol
		service  string
		to       string // with %d for the Service's number
	}{
		{client, corev1.ProtocolTCP, "web", "10.96.1.%d:80"},
		{client, corev1.ProtocolTCP, "web", "[fd00:96::10%d]:80"},
		{client, corev1.ProtocolUDP, "dns", "10.96.1.%d:53"},
		{client, corev1.ProtocolTCP, "sticky", "10.96.1.%d:80"},
		{s.lab.Client, corev1.ProtocolTCP, "node-port", "172.30.0.11:31%d0"},
		{s.lab.Client, corev1.ProtocolTCP, "balancer-local", "198.51.100.%d:80"},
	} {
		to, err := netip.ParseAddrPort(fmt.Sprintf(c.to, numberOf(c.service)))
		if err != nil {
			return err
		}
		answer, err := s.lab.Dial(ctx, c.from, c.protocol, to, lab.DialOptions{})
		if err != nil {
			return err
		}
		if answer.Outcome != lab.Answered {
			return fmt.Errorf("connect from %s to %s of Service %s: %s", c.from, to, c.service, answer.Outcome)
		}
	}
	return nil
}

// numberOf is the place of a Service among the scenes, from 1.
func numberOf(service string) int {
	for i := range scenes {
		if scenes[i].name == service {
			return i + 1
		}
	}
	return 0
}

// unpack puts a bundle into the folder, in the place of an earlier one.
func unpack(ctx context.Context, bundle, folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if said, err := exec.CommandContext(ctx, "tar", "xzf", bundle, "--no-same-owner", "-C", folder).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", bundle, err, said)
	}
	return nil
}
