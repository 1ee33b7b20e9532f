package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kubelets makes the lab's nodes real ones, after Up: each gets a containerd and a kubelet in mount, PID and UTS
// namespaces of its own, so that a pod there sees that node alone; a controller manager makes pods of Deployments and
// slices of Services, and a scheduler places them. Each node has these images. kube-proxy starts inside the nodes
// afterwards: bring the lab up with NoProxy.
//
// It needs containerd, runc, busybox-static and containernetworking-plugins, and cgroups of version 1 or both.
func (l *Lab) Kubelets(ctx context.Context, images ...Image) error {
	root, cache, err := places(ctx)
	if err != nil {
		return err
	}
	built, _, err := kubeletTools.build(ctx, root, cache)
	if err != nil {
		return err
	}
	if err := l.startControllers(built); err != nil {
		return err
	}
	archives, err := l.writeImages(append(images, Busybox(pauseImage, "/bin/sleep", "2147483647")))
	if err != nil {
		return err
	}
	for _, n := range l.Nodes {
		if err := n.startKubelet(filepath.Join(built, "kubelet"), archives); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		if err := n.waitReady(ctx); err != nil {
			return err
		}
		if err := n.StartProxy(ctx); err != nil {
			return err
		}
	}
	return l.WaitSynced(ctx)
}

const pauseImage = "docker.io/library/pause:lab"

// startControllers starts what makes pods and slices.
func (l *Lab) startControllers(built string) error {
	env := []string{"PATH=" + systemPath, "HOME=" + l.Dir}
	start := func(name string, args ...string) error {
		argv := append([]string{filepath.Join(built, name), "--kubeconfig=" + l.Kubeconfig("admin"), "--leader-elect=false", "--secure-port=0"}, args...)
		if name == "kube-scheduler" {
			// It insists on a port.
			argv[3] = "--secure-port=10259"
			argv = append(argv, "--cert-dir="+filepath.Join(l.Dir, "scheduler"))
		}
		return l.keep(l.start(l.ControlPlane.ns, name, filepath.Join(l.Dir, name+".log"), env, argv...))
	}
	return errors.Join(
		start("kube-controller-manager", // The node lifecycle controller takes the taint away that new nodes have; a slow kubelet is not a dead one.
			"--controllers=deployment-controller,replicaset-controller,endpointslice-controller,garbage-collector-controller,node-lifecycle-controller",
			"--node-monitor-grace-period=10m"),
		start("kube-scheduler"))
}

// writeImages makes the archives that every node imports.
func (l *Lab) writeImages(images []Image) (folder string, err error) {
	folder = filepath.Join(l.Dir, "images")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	for i, image := range images {
		if err := image.write(filepath.Join(folder, strconv.Itoa(i)+".tar")); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// nodeScript is the first process of a node. The machine's files stay visible; what a node writes lies in its folder, in
// a fresh /run, or in its own namespaces. $1 is the folder, $2 that of the images, the rest runs the kubelet.
const nodeScript = `
set -eu
node=$1 images=$2
shift 2
hostname "$(basename "$node")"
# A sysfs of this network namespace, with the machine's cgroups in it.
mkdir -p "$node/cgroup" "$node/log"
mount --rbind /sys/fs/cgroup "$node/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$node/cgroup" /sys/fs/cgroup
umount -l "$node/cgroup"
mount -t tmpfs tmpfs /run
mount --bind "$node/log" /var/log
# The socket for device plugins lies there, whatever --root-dir says, and a second kubelet that listens at it ends.
mkdir -p /var/lib/kubelet
mount -t tmpfs tmpfs /var/lib/kubelet
# Only now: what is unmounted at one place would go at the other too.
mount --make-rshared /
containerd --config "$node/containerd.toml" >>"$node/containerd.log" 2>&1 &
until ctr -a /run/containerd/containerd.sock version >/dev/null 2>&1; do sleep 0.2; done
for image in "$images"/*.tar; do
	ctr -a /run/containerd/containerd.sock -n k8s.io images import "$image" >>"$node/containerd.log"
done
exec "$@"
`

// startKubelet starts the node's containerd and kubelet.
func (n *Node) startKubelet(kubelet, images string) error {
	fail := func(err error) error { return fmt.Errorf("start the kubelet of node %s: %w", n.Name, err) }
	group := "svcnet-" + n.lab.Name + "-" + n.Name
	n.lab.behind = append(n.lab.behind, func() error { return removeCgroups(group) })
	if err := makeCgroups(group); err != nil {
		return fail(err)
	}
	dir := n.Dir()
	for name, text := range map[string]string{
		"node.sh":             nodeScript,
		"containerd.toml":     containerdConfig(dir),
		"cni/10-lab.conflist": n.cniConfig(),
		"kubelet.yaml":        kubeletConfig(group),
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return fail(err)
		}
	}
	p, err := n.lab.start(n.ns, "kubelet of node "+n.Name, filepath.Join(dir, "kubelet.log"), n.Env(),
		"/usr/bin/unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
		"/bin/sh", filepath.Join(dir, "node.sh"), dir, images,
		kubelet, "--config="+filepath.Join(dir, "kubelet.yaml"), "--kubeconfig="+n.lab.Kubeconfig("admin"),
		"--root-dir="+filepath.Join(dir, "kubelet"), "--cert-dir="+filepath.Join(dir, "pki"),
		"--hostname-override="+n.Name, "--node-ip="+n.IPv4.String(), "--v=2")
	if err := n.lab.keep(p, err); err != nil {
		return fail(err)
	}
	n.kubelet = p
	return nil
}

// init is the node's first process: the child of the one that made its namespaces.
func (n *Node) init() (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", n.kubelet.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("find the first process of node %s: %w", n.Name, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(children)))
}

// Inside runs a command in the node's namespaces, all of them, as somebody who is logged in there.
func (n *Node) Inside(ctx context.Context, argv ...string) (string, error) {
	pid, err := n.init()
	if err != nil {
		return "", err
	}
	return n.ns.runWith(ctx, n.Env(), "", append([]string{"/usr/bin/nsenter", "-t", strconv.Itoa(pid), "-m", "-u", "-p", "-n", "--"}, argv...)...)
}

// waitReady waits until the node's kubelet says that it is ready, and has kube-proxy start inside of the node.
func (n *Node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for {
		if !n.kubelet.running() {
			return n.kubelet.failure()
		}
		var node corev1.Node
		body, err := n.lab.Request(ctx, http.MethodGet, "/api/v1/nodes/"+n.Name, "", nil)
		if err == nil {
			err = json.Unmarshal(body, &node)
		}
		// The lab says that nodes are ready before their kubelets do.
		if err == nil && node.Status.NodeInfo.KubeletVersion != "" {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					return n.wrapProxy()
				}
			}
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("start the kubelet of node %s: not ready after %v: %w; %s", n.Name, ready, errors.Join(ctx.Err(), err), logTail(n.kubelet.log))
		}
	}
}

// wrapProxy makes the next kube-proxy one that runs inside of the node; it ends with what started it.
func (n *Node) wrapProxy() error {
	pid, err := n.init()
	if err != nil {
		return err
	}
	file := filepath.Join(n.Dir(), "kube-proxy-inside")
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter -t %d -m -u -p -- setpriv --pdeathsig KILL %s \"$@\"\n", pid, n.lab.Paths.KubeProxy)
	n.program = file
	return os.WriteFile(file, []byte(text), 0o700)
}

// cgroupRoot has the hierarchies of version 1, and of version 2 under the name unified.
const cgroupRoot = "/sys/fs/cgroup"

// makeCgroups makes the root of a node's pods in every hierarchy. A cpuset begins with none and takes no process.
func makeCgroups(name string) error {
	hierarchies, err := filepath.Glob(cgroupRoot + "/*/cgroup.procs")
	if err != nil || len(hierarchies) == 0 {
		return fmt.Errorf("make cgroup %s: %s has no hierarchies of version 1", name, cgroupRoot)
	}
	for _, h := range hierarchies {
		dir := filepath.Join(filepath.Dir(h), name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup %s: %w", name, err)
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(filepath.Dir(h), f))
			if err != nil || filepath.Base(filepath.Dir(h)) != "cpuset" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, f), all, 0o644); err != nil {
				return fmt.Errorf("make cgroup %s: %w", name, err)
			}
		}
	}
	return nil
}

// removeCgroups removes a tree of cgroups from the leaves, once the kernel has done away with their processes.
func removeCgroups(name string) error {
	roots, err := filepath.Glob(filepath.Join(cgroupRoot, "*", name))
	if err != nil {
		return err
	}
	var last error
	for range 50 {
		last = nil
		for _, root := range roots {
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for i := len(dirs) - 1; i >= 0; i-- {
				if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
					last = fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
				}
			}
		}
		if last == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return last
}

func containerdConfig(dir string) string {
	return fmt.Sprintf(`version = 2
root = %[1]q
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[2]q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = %[3]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "/usr/sbin/runc"
Root = "/run/runc"
`, filepath.Join(dir, "containerd"), pauseImage, filepath.Join(dir, "cni"))
}

// cniConfig joins pods to the cni0 that the node has.
func (n *Node) cniConfig() string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": %q}},
 {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`, n.PodCIDRIPv4, filepath.Join(n.Dir(), "cni-data"))
}

func kubeletConfig(group string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: 1Mi}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
podLogsDir: /var/log/pods
`, group)
}
