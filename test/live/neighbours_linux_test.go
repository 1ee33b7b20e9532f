package live

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
)

// sixObjects are a Service of IPv6 with two endpoints on the bridge of TestNeighbourDiscovery.
const sixObjects = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: "fd00:244:1::/64"}, status: {addresses: [{type: InternalIP, address: "fd00:30::11"}]}}
- apiVersion: v1
  kind: Service
  metadata: {namespace: default, name: six}
  spec: {type: ClusterIP, clusterIP: "fd00:96::6", clusterIPs: ["fd00:96::6"], ipFamilies: [IPv6], ipFamilyPolicy: SingleStack, ports: [{port: 80, protocol: TCP}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: default, name: six-1, labels: {kubernetes.io/service-name: six}}
  addressType: IPv6
  ports: [{name: "", port: 80, protocol: TCP}]
  endpoints:
  - {addresses: ["fd00:244:1::a"], nodeName: n1, conditions: {ready: true}}
  - {addresses: ["fd00:244:1::b"], nodeName: n1, conditions: {ready: true}}
`

// TestNeighbourDiscovery: whether a node finds its pods, and pods of a bridge each other, after the neighbour cache was
// emptied, beside neighbour-discovery-dropped.
func TestNeighbourDiscovery(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	accept := func(chain string, types ...int) string {
		out := "-A " + chain + " -p udp -j ACCEPT"
		for _, n := range types {
			out += fmt.Sprintf("\n-A %s -p ipv6-icmp -m icmp6 --icmpv6-type %d -j ACCEPT", chain, n)
		}
		return out
	}
	for _, c := range []struct {
		name, policies, rules string
		bridge                int
		// pods and node tell whether pods find each other, and they and the node each other.
		pods, node bool
	}{
		{"no rules", "", "", 1, true, true},
		{"INPUT", ":INPUT DROP", accept("INPUT"), 1, true, false},
		{"INPUT with discovery", ":INPUT DROP", accept("INPUT", 135, 136), 1, true, true},
		{"INPUT that takes answers", ":INPUT DROP", accept("INPUT", 136), 1, true, false},
		{"FORWARD", ":FORWARD DROP", accept("FORWARD"), 1, false, true},
		{"FORWARD past the bridge", ":FORWARD DROP", accept("FORWARD"), 0, true, true},
		{"FORWARD with discovery", ":FORWARD DROP", accept("FORWARD", 135, 136), 1, true, true},
		{"FORWARD that takes questions", ":FORWARD DROP", accept("FORWARD", 135), 1, false, true},
		{"FORWARD for connections", ":FORWARD DROP", accept("FORWARD") + "\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", 1, false, true},
		{"OUTPUT", "", "-A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j DROP", 1, true, false},
		{"what is not tracked", "", "-A FORWARD -m conntrack --ctstate UNTRACKED -j REJECT", 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the goroutine
				if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
					t.Errorf("make a network namespace: %v", err)
					return
				}
				sh := func(script string) (string, error) {
					out, err := exec.Command("sh", "-c", script).CombinedOutput()
					return string(out), err
				}
				must := func(script string) {
					if out, err := sh("set -e\n" + script); err != nil {
						t.Errorf("%s: %v: %s", script, err, out)
					}
				}
				must(fmt.Sprintf(`mount --make-rprivate /; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /run; mkdir -p /run/netns
ip link set lo up; ip link add cni0 type bridge; ip link set cni0 up; ip addr add fd00:244:1::1/64 dev cni0 nodad
sysctl -qw net.ipv6.conf.all.forwarding=1 net.bridge.bridge-nf-call-ip6tables=%d
for p in a b; do ip netns add $p; ip link add pod-$p type veth peer name eth0 netns $p; ip link set pod-$p master cni0 up
ip -n $p link set lo up; ip -n $p link set eth0 up; ip -n $p addr add fd00:244:1::$p/64 dev eth0 nodad; done
ip6tables-nft-restore <<'END'
*filter
%s
%s
COMMIT
END
`, c.bridge, c.policies, c.rules))
				defer must("ip netns del a; ip netns del b")
				if t.Failed() {
					return
				}
				// found sends a datagram behind an emptied cache, until the new ports forward, and tells whether the
				// neighbour's link address was found.
				found := func(in, dev, addr string) bool {
					_, err := sh(fmt.Sprintf(`for try in 1 2 3; do %[1]s ip neigh flush dev %[2]s; %[1]s bash -c 'echo >/dev/udp/%[3]s/9'
for wait in 1 2 3 4 5; do sleep 0.1; %[1]s ip neigh show %[3]s dev %[2]s | grep -q lladdr && exit 0; done; done; exit 1`, in, dev, addr))
					return err == nil
				}
				const podA, podB = "ip netns exec a", "ip netns exec b"
				if got := found(podA, "eth0", "fd00:244:1::b") && found(podB, "eth0", "fd00:244:1::a"); got != c.pods {
					t.Errorf("the kernel: pods find each other: %t, want %t", got, c.pods)
				}
				if got := found("", "cni0", "fd00:244:1::a") && found(podA, "eth0", "fd00:244:1::1"); got != c.node {
					t.Errorf("the kernel: the node and its pods find each other: %t, want %t", got, c.node)
				}
				s, err := collectors.Collect(t.Context(), collectors.Options{Node: "n1", Silent: true})
				if err != nil {
					t.Error(err)
					return
				}
				objects, err := snapshot.LoadFS(fstest.MapFS{"objects.yaml": &fstest.MapFile{Data: []byte(sixObjects)}}, "objects")
				if err != nil {
					t.Error(err)
					return
				}
				s.Evidence = append(s.Evidence, objects.Evidence...)
				s.Arrange()
				r, err := explain.Audit(s, explain.AuditOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				pods, node := true, true
				for _, f := range r.Findings {
					if f.ID == "neighbour-discovery-dropped" {
						pods = pods && !strings.Contains(f.Message, "pods ask") && !strings.Contains(f.Message, "pods answer")
						node = node && !strings.Contains(f.Message, "node")
					}
				}
				if pods != c.pods || node != c.node {
					t.Errorf("the audit: pods find each other: %t, want %t; the node and they: %t, want %t\n%v", pods, c.pods, node, c.node, r.Unknown)
				}
			}()
			<-done
		})
	}
}
