package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/terminal/pty"
)

// interactive is `kubectl svcnet tui` on a terminal.
type interactive struct {
	*pty.Terminal
	*pty.Process
	c *cluster
}

// tui starts the interactive view on the workstation; wrapped are words before the command.
func (c *cluster) tui(wrapped []string, args ...string) *interactive {
	c.t.Helper()
	tt := pty.Open(c.t)
	tt.Patience = time.Minute
	cmd := c.command(c.t.Context(), c.t.TempDir(), slices.Concat([]string{"tui"}, args, ways["copy"], []string{patience})...)
	if len(wrapped) > 0 {
		program, err := exec.LookPath(wrapped[0])
		if err != nil {
			c.t.Fatal(err)
		}
		cmd.Path, cmd.Args = program, append(wrapped, cmd.Args...)
	}
	return &interactive{tt, tt.Process(cmd).Begin(), c}
}

// shows waits until all texts are on the screen.
func (i *interactive) shows(texts ...string) []string {
	i.c.t.Helper()
	return i.See(fmt.Sprintf("%q", texts), func(lines []string) bool {
		all := strings.Join(lines, "\n")
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	})
}

// hides waits until a text is not on the screen any more.
func (i *interactive) hides(text string) {
	i.c.t.Helper()
	i.See("no "+text, func(lines []string) bool { return !strings.Contains(strings.Join(lines, "\n"), text) })
}

// quits ends it with q, and holds that nothing is left of it.
func (i *interactive) quits() {
	i.c.t.Helper()
	i.Press("q")
	i.ended(0)
	i.c.noPods()
}

// ended holds that it ended, and that the terminal is as it was.
func (i *interactive) ended(code int) {
	t := i.c.t
	t.Helper()
	if got := i.Code(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	i.Wait(0, pty.LeavesScreen)
	i.Sane()
	if left := i.Left(); left != "" {
		t.Errorf("it leaves %q on the terminal", left)
	}
}

// there are the pods of svcnet that nobody deleted.
func (c *cluster) there() ([]corev1.Pod, error) {
	pods, err := c.pods()
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}

// clear deletes what a test that failed left behind.
func (c *cluster) clear() *cluster {
	c.t.Helper()
	if pods, err := c.pods(); err != nil || len(pods) > 0 {
		c.t.Logf("%d pods were left (%v): %s", len(pods), err, c.run("cleanup").stdout)
		c.noPods()
	}
	return c
}

// onlyPod is the one that is there, other than the named ones.
func (c *cluster) onlyPod(but ...string) *corev1.Pod {
	c.t.Helper()
	var pod corev1.Pod
	c.eventually("a pod of svcnet", func() error {
		pods, err := c.there()
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return slices.Contains(but, p.Name) })
		if len(pods) != 1 {
			return fmt.Errorf("there are %d", len(pods))
		}
		pod = pods[0]
		return nil
	})
	return &pod
}

// endpointRules are the rules of nat that lead to backends of default/web.
var endpointRules = regexp.MustCompile(`(?m)^-A (KUBE-SVC-\S+ .*default/web -> .* -j KUBE-SEP-\S+)$`)

// dropped takes the rule of a backend of default/web away on a node, until it is given back.
func (c *cluster) dropped(n *lab.Node) (back func()) {
	t := c.t
	t.Helper()
	saved, err := n.Run(t.Context(), "", "iptables-save", "-t", "nat")
	if err != nil {
		t.Fatal(err)
	}
	rule := endpointRules.FindString(saved)
	if rule == "" {
		t.Fatalf("no rule of a backend on %s:\n%s", n.Name, saved)
	}
	if _, err := n.Run(t.Context(), "*nat\n-D"+strings.TrimPrefix(rule, "-A")+"\nCOMMIT\n", "iptables-restore", "--noflush"); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if _, err := n.Run(t.Context(), saved, "iptables-restore"); err != nil {
			t.Error(err)
		}
	})
}

// firstRow is the line of the first Service.
const firstRow = 3

// tuiNode looks at one node while things happen to it, and to the pod.
func (c *cluster) tuiNode() {
	t := c.t
	i := c.tui(nil, "--node", "n1")
	i.shows("default/web", "1 Services (", "n1", "no findings", "live, ")
	if i.Now() == i.Modes {
		t.Error("the modes of the terminal did not change: nothing is tested")
	}
	pod := c.onlyPod()
	bounded(t.Errorf, pod)
	// It goes on reading: objects, and rules.
	const late = "apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: default}\nspec: {ports: [{port: 81, targetPort: 8080}], selector: {app: web}}\n"
	if err := c.Apply(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	i.shows("default/late")
	if err := c.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := c.dropped(c.Node("n1"))
	defer back()
	lines := i.shows("missing-endpoint-rule", "1 error")
	if !strings.Contains(lines[firstRow], "✗ default/web ") {
		t.Errorf("the first row is not the one with the finding:\n%s", strings.Join(lines, "\n"))
	}
	i.Press("g\r") // the cursor is on what was the first row before
	lines = i.shows("› default/web:80", "KUBE-SERVICES", "KUBE-SVC-", "missing-endpoint-rule")
	t.Log(strings.Join(lines, "\n"))
	back()
	i.hides("missing-endpoint-rule")
	i.Press("q")
	i.shows("1 Services (", "no findings")
	if now := c.onlyPod(); now.Name != pod.Name {
		t.Errorf("the pod was %s, and is %s", pod.Name, now.Name)
	}

	// Somebody deletes the pod. Why a reading failed stands at the end of Status.
	i.Press("4")
	i.shows("healthy and programmed")
	i.Press("G")
	i.shows("again  ", "every 2s")
	cmd := c.command(t.Context(), t.TempDir())
	cmd.Args = append(cmd.Args[:3:3], "kubectl", "delete", "pod", "-n", pod.Namespace, pod.Name, "--wait=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines = i.shows("✗ read failed, this is ", "✗ read node n1: read it: somebody delete")
	t.Log(strings.Join(lines, "\n"))
	i.Press("1")
	second := c.onlyPod(pod.Name)
	if second.Spec.NodeName != "n1" {
		t.Errorf("the second pod is on %s", second.Spec.NodeName)
	}
	if err := c.Delete(t.Context(), "Service", "default", "late"); err != nil {
		t.Fatal(err)
	}
	i.hides("default/late")
	i.shows("default/web", "no findings", "live, ")
	i.quits()
}

// bounded holds that a pod ends by itself.
func bounded(wrong func(string, ...any), p *corev1.Pod) {
	if d := p.Spec.ActiveDeadlineSeconds; d == nil || *d <= 0 || time.Duration(*d)*time.Second > 20*time.Minute {
		wrong("pod %s has no deadline that ends it soon: %v", p.Name, d)
	}
}

// tuiEnds ends it in every way that is not a key.
func (c *cluster) tuiEnds() {
	t := c.t
	ends := []struct {
		name    string
		wrapped []string
		// early ends it while the pod is made.
		early bool
		end   func(i *interactive)
		stays bool
	}{
		{"q, early", nil, true, func(i *interactive) { i.Press("q"); i.ended(0) }, false},
		{"SIGTERM, early", nil, true, func(i *interactive) { i.Signal(syscall.SIGTERM); i.ended(130) }, false},
		{"SIGTERM", nil, false, func(i *interactive) { i.Signal(syscall.SIGTERM); i.ended(130) }, false},
		{"SIGHUP", nil, false, func(i *interactive) { i.Signal(syscall.SIGHUP); i.ended(130) }, false},
		{"closed", nil, false, func(i *interactive) { i.Close(); i.Code() }, false},
		{"closed, hangup is ignored", []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}, false, func(i *interactive) { i.Close(); i.Code() }, false},
		{"SIGKILL", nil, false, func(i *interactive) { i.Signal(os.Kill); i.Code() }, true},
	}
	// All of them run at the same time, each with a pod that is told apart by being new.
	var known []string
	run := make([]*interactive, len(ends))
	pods := make([]*corev1.Pod, len(ends))
	gone := func(k int) error {
		left, err := c.pods()
		if err == nil && slices.ContainsFunc(left, func(p corev1.Pod) bool { return p.Name == pods[k].Name }) {
			err = errors.New("it is there")
		}
		return err
	}
	for k, e := range ends {
		run[k] = c.tui(e.wrapped, "--node", c.Nodes[k%len(c.Nodes)].Name)
		pods[k] = c.onlyPod(known...)
		bounded(t.Errorf, pods[k])
		known = append(known, pods[k].Name)
		if e.early {
			e.end(run[k])
		}
	}
	for k, e := range ends {
		if !e.early {
			run[k].shows("default/web", "live, ")
		}
	}
	for k, e := range ends {
		if !e.early {
			e.end(run[k])
		}
		if !e.stays {
			c.eventually("the end of the pod of "+e.name, func() error { return gone(k) })
		}
	}
	last := len(ends) - 1
	if err := gone(last); err == nil {
		t.Fatal("who was killed deleted the pod: nothing is tested")
	}
	if r := c.run("cleanup"); r.code != 0 || !strings.Contains(r.stdout, pods[last].Name+" deleted") {
		t.Errorf("cleanup: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	c.noPods()
}

// census counts pods that are there at the same time, as often as it can.
type census struct {
	c    *cluster
	stop chan struct{}
	over sync.WaitGroup
	most []string
	err  error
}

func (c *cluster) census() *census {
	n := &census{c: c, stop: make(chan struct{})}
	n.over.Go(func() {
		for {
			pods, err := c.there()
			if err != nil {
				n.err = err
				return
			}
			if len(pods) > len(n.most) {
				n.most = nil
				for _, p := range pods {
					n.most = append(n.most, p.Name+" on "+p.Spec.NodeName)
				}
			}
			select {
			case <-n.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return n
}

// end holds that there were never more.
func (n *census) end(most int) {
	n.c.t.Helper()
	close(n.stop)
	n.over.Wait()
	if n.err != nil || len(n.most) > most {
		n.c.t.Errorf("%d pods at the same time, want %d at most: %v (%v)", len(n.most), most, n.most, n.err)
	}
}

// tuiNodes compares all nodes, before and after one is damaged, and looks at one after the other.
func (c *cluster) tuiNodes() {
	t := c.t
	all := c.census()
	i := c.tui(nil, "--all-nodes")
	i.shows("3 Nodes (3)", "▸ 3 nodes alike: n1, n2, n3")
	// The others show the first of them.
	few := c.census()
	i.Press("1")
	i.shows("default/web", "n1  ", "live, ")
	if p := c.onlyPod(); p.Spec.NodeName != "n1" {
		t.Errorf("n1 is shown, and the pod is on %s", p.Spec.NodeName)
	}
	few.end(1)

	back := c.dropped(c.Node("n2"))
	defer back()
	i.Press("3")
	i.shows("▸ 3 nodes alike: n1, n2, n3")
	i.Press("r")
	lines := i.shows("▸ 2 nodes alike: n1, n3", "differs: ", "n2 differs")
	t.Log(strings.Join(lines, "\n"))
	first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "✗ n2") })
	others := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "2 nodes alike") })
	if first < 0 || others < first {
		t.Errorf("n2 differs, and is not the first one:\n%s", strings.Join(lines, "\n"))
	}
	all.end(len(c.Nodes) + 1)

	few = c.census()
	i.Press("g\r")
	i.See("the Services of n2", func(lines []string) bool {
		return strings.HasPrefix(lines[0], "svcnet  n2  ") && strings.Contains(lines[firstRow], "missing-endpoint-rule")
	})
	if p := c.onlyPod(); p.Spec.NodeName != "n2" {
		t.Errorf("n2 is shown, and the pod is on %s", p.Spec.NodeName)
	}
	few.end(1)
	back()
	i.shows("no findings")
	i.quits()
}
