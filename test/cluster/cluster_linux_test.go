package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

const (
	busybox = "docker.io/library/busybox:lab"
	svcnet  = "docker.io/library/svcnet:lab"
)

// web is a Deployment of three pods, one on each node, and a Service with a node port.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - {name: web, image: "docker.io/library/busybox:lab", imagePullPolicy: Never, command: [httpd, -f, -p, "8080"]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// cluster is a lab with real kubelets, and svcnet as a kubectl plugin on a workstation outside of it.
type cluster struct {
	*lab.Lab
	t       *testing.T
	program string // on PATH as kubectl-svcnet
}

// bring brings the cluster up, with the Service.
func bring(t *testing.T) *cluster {
	for _, program := range []string{"containerd", "runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: hack/test-tools installs it", err)
		}
	}
	c := &cluster{t: t, program: filepath.Join(t.TempDir(), "kubectl-svcnet")}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", c.program, "../../cmd/kubectl-svcnet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build svcnet: %v\n%s", err, out)
	}
	c.Lab = labtest.Bring(t, lab.Options{Name: fmt.Sprintf("c%d", os.Getpid()), NoProxy: true})
	if err := c.Kubelets(t.Context(), lab.Busybox(busybox), lab.Image{
		Name: svcnet, Files: map[string]string{"kubectl-svcnet": c.program}, Entrypoint: []string{"/kubectl-svcnet"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	c.eventually("three ready endpoints", func() error {
		var slices discoveryv1.EndpointSliceList
		if err := c.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dweb", &slices); err != nil {
			return err
		}
		ready := 0
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != 3 {
			return fmt.Errorf("%d", ready)
		}
		return nil
	})
	if err := c.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) get(path string, into any) error {
	body, err := c.Request(c.t.Context(), http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// eventually waits for a condition on a machine that may be slow.
func (c *cluster) eventually(what string, try func() error) {
	c.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// pods are the plugin's, wherever they are.
func (c *cluster) pods() ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.get("/api/v1/pods?labelSelector=app.kubernetes.io/managed-by%3Dkubectl-svcnet", &list)
	return list.Items, err
}

// noPods waits until the pods that were told to go are gone.
func (c *cluster) noPods() {
	c.t.Helper()
	c.eventually("no pods of svcnet", func() error {
		pods, err := c.pods()
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods, %s is %s", len(pods), pods[0].Name, pods[0].Status.Phase)
		}
		return err
	})
}

// result is what a run of the plugin gave.
type result struct {
	stdout, stderr string
	code           int
}

// command is the plugin on the workstation: kubectl's user has a kubeconfig, and no rules of any node.
func (c *cluster) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	netns := "/run/netns/" + c.Client.Netns().Name
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns, "--", c.program}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Dir(c.program) + ":" + os.Getenv("PATH"), "HOME=" + dir, "KUBECONFIG=" + c.Kubeconfig("admin")}
	return cmd
}

func (c *cluster) run(args ...string) result { return c.runIn(c.t.TempDir(), args...) }

func (c *cluster) runIn(dir string, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := c.command(ctx, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ways are how svcnet gets into the pods.
var ways = map[string][]string{
	"image": {"--image=" + svcnet},
	"copy":  {"--image=" + busybox, "--copy-binary"},
}

// patience for a slow machine.
const patience = "--timeout=8m"

func TestCluster(t *testing.T) {
	c := bring(t)
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { c.at(t).questions(append(way, patience)) })
	}
	t.Run("pod", func(t *testing.T) { c.at(t).inPod() })
	t.Run("must-gather", func(t *testing.T) { c.at(t).gather() })
	t.Run("damage", func(t *testing.T) { c.at(t).damage() })
	t.Run("busy", func(t *testing.T) { c.at(t).busy() })
	t.Run("interrupted", func(t *testing.T) { c.at(t).interrupted() })
	t.Run("killed", func(t *testing.T) { c.at(t).killed() })
	t.Run("API server restarts", func(t *testing.T) { c.at(t).restart() })
	t.Run("privileges", func(t *testing.T) { c.at(t).privileges() })
	t.Run("kubectl", func(t *testing.T) { c.at(t).kubectl() })
	t.Run("tui", func(t *testing.T) {
		t.Run("node", func(t *testing.T) { c.at(t).clear().tuiNode() })
		t.Run("ends", func(t *testing.T) { c.at(t).clear().tuiEnds() })
		t.Run("nodes", func(t *testing.T) { c.at(t).clear().tuiNodes() })
	})
}

func (c *cluster) at(t *testing.T) *cluster {
	own := *c
	own.t = t
	return &own
}

// questions asks everything of every node.
func (c *cluster) questions(way []string) {
	t := c.t
	// Without a node named: those with backends, which are all three.
	r := c.run(append([]string{"trace", "svc/web", "-o", "json"}, way...)...)
	var traces report.TraceList
	if err := json.Unmarshal([]byte(r.stdout), &traces); err != nil || r.code != 0 {
		t.Fatalf("trace: exit %d, %v: %s\n%s", r.code, err, r.stderr, r.stdout)
	}
	var nodes []string
	for _, item := range traces.Items {
		nodes = append(nodes, item.Node)
		backends := 0
		for _, p := range item.Paths {
			backends = max(backends, len(p.Backends))
		}
		// All nodes are alike: the first says it for the others.
		if (backends != 3 && item.Like != "n1") || len(item.Findings) != 0 {
			t.Errorf("trace on %s: %d backends and findings %v", item.Node, backends, item.Findings)
		}
	}
	if want := []string{"n1", "n2", "n3"}; !slices.Equal(nodes, want) || len(traces.Unread) != 0 {
		t.Errorf("traced %v (not read: %v), want %v", nodes, traces.Unread, want)
	}
	if r.stderr != "" {
		t.Errorf("trace says beside its document: %s", r.stderr)
	}

	r = c.run(append([]string{"audit", "-A", "--all-nodes", "-o", "json"}, way...)...)
	var audit report.Reports
	if err := json.Unmarshal([]byte(r.stdout), &audit); err != nil || len(audit.Items) != 3 || len(audit.Unread) != 0 || r.code != 0 {
		t.Errorf("audit: exit %d, %v, %d nodes: %s\n%s", r.code, err, len(audit.Items), r.stderr, r.stdout)
	}

	dir := t.TempDir()
	r = c.runIn(dir, append([]string{"collect", "--all-nodes"}, way...)...)
	bundles, err := filepath.Glob(filepath.Join(dir, "svcnet-n?-*.tar.gz"))
	if err != nil || len(bundles) != 3 || r.code != 0 {
		t.Fatalf("collect: exit %d, %v, bundles %v: %s", r.code, err, bundles, r.stderr)
	}
	for _, b := range bundles {
		s, err := snapshot.Load([]string{b}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Evidence {
			if !e.Status.Answers() && e.Status != snapshot.Unsupported && e.Format != snapshot.ProxyLog {
				t.Errorf("%s of %s: %s: %s", e.File, s.Node, e.Status, e.Error)
			}
		}
	}
	c.noPods()
}

// damage flushes a chain on one node, which then is the odd one out.
func (c *cluster) damage() {
	t := c.t
	n2 := c.Node("n2")
	saved, err := n2.Run(t.Context(), "", "iptables-save", "-t", "nat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n2.Run(t.Context(), "", "iptables", "-t", "nat", "-F", "KUBE-SERVICES"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := n2.Run(t.Context(), saved, "iptables-restore"); err != nil {
			t.Fatal(err)
		}
	}()
	args := append([]string{"audit", "-A", "--all-nodes", patience}, ways["image"]...)
	r := c.run(append(args, "-o", "json")...)
	var audit report.Reports
	if err := json.Unmarshal([]byte(r.stdout), &audit); err != nil || r.code != 3 {
		t.Fatalf("exit %d, %v: %s", r.code, err, r.stderr)
	}
	for _, item := range audit.Items {
		if (len(item.Findings) > 0) != (item.Node == "n2") {
			t.Errorf("%s has %d findings", item.Node, len(item.Findings))
		}
	}
	text := c.run(args...)
	t.Log(text.stdout)
	if !strings.Contains(text.stdout, "n1 and n3, alike") {
		t.Errorf("the two nodes that are alike are not told together:\n%s", text.stdout)
	}
	c.noPods()
}

// started starts a run and waits until it has a pod that runs.
func (c *cluster) started(args ...string) (*exec.Cmd, *bytes.Buffer) {
	c.t.Helper()
	cmd := c.command(c.t.Context(), c.t.TempDir(), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("a pod of svcnet", func() error {
		pods, err := c.pods()
		if err == nil && len(pods) == 0 {
			err = errors.New("none yet")
		}
		return err
	})
	return cmd, &said
}

func (c *cluster) interrupted() {
	cmd, said := c.started(append([]string{"audit", "--all-nodes", patience}, ways["copy"]...)...)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		c.t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		c.t.Errorf("exit %d: %s", code, said)
	}
	c.noPods()
}

// killed leaves pods, which end by themselves and are deleted by the next run or by cleanup.
func (c *cluster) killed() {
	t := c.t
	cmd, _ := c.started(append([]string{"audit", "--all-nodes", "--timeout=1s"}, ways["copy"]...)...)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	pods, err := c.pods()
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v: nobody deleted them", len(pods), err)
	}
	c.eventually("the deadline of pods", func() error {
		pods, err := c.pods()
		for _, p := range pods {
			if p.Status.Phase != corev1.PodFailed {
				err = fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		return err
	})
	r := c.run("cleanup")
	if r.code != 0 || !strings.Contains(r.stdout, pods[0].Name+" deleted") {
		t.Errorf("cleanup: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	c.noPods()
}

// restart takes the API server away in the middle. Every node is answered for all the same. There may be something to
// find: the server takes itself out of its own Service when it ends, and lets kube-proxy in late when it starts.
func (c *cluster) restart() {
	t := c.t
	cmd, said := c.started(append([]string{"audit", "--all-nodes", "-o", "json", "--fail-on", "never", patience}, ways["copy"]...)...)
	if err := c.RestartAPIServer(t.Context(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	var audit report.Reports
	if err := json.NewDecoder(said).Decode(&audit); err != nil || len(audit.Items) != 3 || len(audit.Unread) != 0 {
		t.Errorf("%v: %d nodes, not read %v", err, len(audit.Items), audit.Unread)
	}
	c.noPods()
}

// inPod reads the network namespace of a backend's pod through the short-lived pod on its node.
func (c *cluster) inPod() {
	t := c.t
	var pods corev1.PodList
	if err := c.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", &pods); err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods (%v)", len(pods.Items), err)
	}
	pod := pods.Items[0]
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	r := c.run("collect", "--node", pod.Spec.NodeName, "--pod", "default/"+pod.Name, "-o", file, "--no-report", "--image="+svcnet, patience)
	s, err := snapshot.Load([]string{file}, nil)
	if err != nil {
		t.Fatalf("collect: exit %d, %v: %s", r.code, err, r.stderr)
	}
	for _, source := range []string{"ip-addr.txt", "ip-route.txt", "ss.txt"} {
		i := slices.IndexFunc(s.Evidence, func(e snapshot.Evidence) bool { return e.File == snapshot.PodDir("default/"+pod.Name)+source })
		if i < 0 || s.Evidence[i].Status != snapshot.OK {
			t.Errorf("%s of the pod was not read: exit %d: %s", source, r.code, r.stderr)
			for _, e := range s.Evidence {
				t.Logf("%s: %s %s", e.File, e.Status, e.Error)
			}
		} else if source == "ip-addr.txt" && !strings.Contains(string(s.Evidence[i].Data), pod.Status.PodIP) {
			t.Errorf("%s is not in the namespace that was read:\n%s", pod.Status.PodIP, s.Evidence[i].Data)
		}
	}
	c.noPods()
}

// gather runs what the image for must-gather runs, as a pod does that may make pods.
func (c *cluster) gather() {
	t := c.t
	dir := t.TempDir()
	cmd := c.command(t.Context(), dir)
	script, err := filepath.Abs("../../deploy/must-gather/gather")
	if err != nil {
		t.Fatal(err)
	}
	cmd = &exec.Cmd{Path: cmd.Path, Args: append(cmd.Args[:2:2], "--", "sh", script), Env: append(cmd.Env, "MUST_GATHER_DIR="+dir, "SVCNET_IMAGE="+svcnet)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gather: %v\n%s", err, out)
	}
	bundles, err := filepath.Glob(filepath.Join(dir, "nodes", "svcnet-n?-*.tar.gz"))
	if err != nil || len(bundles) != 3 {
		said, _ := os.ReadFile(filepath.Join(dir, "nodes.txt.stderr"))
		t.Errorf("bundles %v (%v)\n%s", bundles, err, said)
	}
	var audit report.Reports
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(text, &audit)
	}
	if err != nil || len(audit.Items) != 3 || audit.Summary.Error+audit.Summary.Critical > 0 {
		t.Errorf("report.json: %v, %d nodes: %s", err, len(audit.Items), text)
	}
	c.noPods()
}

// busy audits while the endpoints of a Service change all the time: whatever is behind at one look is not at the next.
func (c *cluster) busy() {
	t := c.t
	if err := c.Apply(t.Context(), "apiVersion: v1\nkind: Service\nmetadata: {name: busy, namespace: default}\nspec: {ports: [{port: 80}]}\n"); err != nil {
		t.Fatal(err)
	}
	changes, changed := 0, make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			changes++
			slice := fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: busy-1, namespace: default, labels: {kubernetes.io/service-name: busy}}\n"+
				"addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.250.%d.%d]}]\n", changes/250, 1+changes%250)
			if err := c.Apply(ctx, slice); err != nil && ctx.Err() == nil {
				changed <- err
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		changed <- nil
	}()
	r := c.run(append([]string{"audit", "-A", "--all-nodes", "-o", "json", patience}, ways["image"]...)...)
	stop()
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes", changes)
	if r.code != 0 {
		t.Errorf("exit %d: %s\n%s", r.code, r.stderr, r.stdout)
	}
	for _, kind := range []string{"services", "endpointslices"} {
		path := map[string]string{"services": "/api/v1/namespaces/default/services/busy", "endpointslices": "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/busy-1"}[kind]
		if _, err := c.Request(t.Context(), http.MethodDelete, path, "", nil); err != nil {
			t.Error(err)
		}
	}
	c.noPods()
}

// kubectl finds the plugin, and it says how it is called.
func (c *cluster) kubectl() {
	t := c.t
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip(err)
	}
	run := func(argv ...string) string {
		cmd := c.command(t.Context(), t.TempDir())
		cmd = &exec.Cmd{Path: cmd.Path, Args: append(cmd.Args[:3:3], argv...), Env: cmd.Env}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", argv, err, out)
		}
		return string(out)
	}
	if help := run("kubectl", "svcnet", "trace", "--help"); !strings.Contains(help, "kubectl svcnet trace svc/web") {
		t.Errorf("help names another program:\n%s", help)
	}
	run(c.program, "completion", "--install-kubectl")
	for _, words := range [][]string{{"trace", "--via", "node"}, {"aud"}, {"explain", "service-without-"}} {
		want := map[string]string{"trace": "nodeport", "aud": "audit", "explain": "service-without-endpoints"}[words[0]]
		if out := run(append([]string{"kubectl", "__complete", "svcnet"}, words...)...); !strings.Contains(out, want) {
			t.Errorf("kubectl completes %q as %s", words, out)
		}
	}
}
