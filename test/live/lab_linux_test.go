package live

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/test/lab"
)

// program is the program as users get it, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "svcnet-live")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "svcnet")
	out, err := exec.Command("go", "build", "-o", bin, "../../cmd/kubectl-svcnet").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

func svcnet(t *testing.T) string {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// A stage is a lab with the scenario on it.
type stage struct {
	*lab.Lab
	n1, n2, n3 *lab.Node
	pods       map[string]*lab.Pod
	// byAddr finds the place that has an address.
	byAddr map[netip.Addr]lab.Place
}

// set puts the scenario on a lab. Its nodes n1 and n3 get a kube-proxy, n2 hands everything on to n1.
func set(t *testing.T, l *lab.Lab) *stage {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{Lab: l, n1: l.Node("n1"), n2: l.Node("n2"), n3: l.Node("n3"), pods: map[string]*lab.Pod{}, byAddr: map[netip.Addr]lab.Place{}}
	for i, zone := range []string{"west", "east", "west"} {
		must(l.Patch(ctx, "Node", "", fmt.Sprintf("n%d", i+1), "", fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":%q}}}`, zone)))
	}
	must(l.Apply(ctx, corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "store"}}))
	for _, p := range pods {
		spec := lab.PodSpec{Name: p.name, Namespace: "store", Node: p.node, HostNetwork: p.host}
		if !p.host {
			spec.IPv4, spec.IPv6 = netip.MustParseAddr(p.four), netip.MustParseAddr(p.six)
		}
		made, err := l.AddPod(ctx, spec)
		must(err)
		s.pods[p.name] = made
		if !p.host {
			s.byAddr[spec.IPv4], s.byAddr[spec.IPv6] = made, made
		}
		for _, at := range []struct {
			proto corev1.Protocol
			port  int
		}{{corev1.ProtocolTCP, 8080}, {corev1.ProtocolTCP, 9090}, {corev1.ProtocolUDP, 5353}} {
			_, err := made.Serve(at.proto, at.port)
			must(err)
		}
	}
	for _, n := range []*lab.Node{s.n1, s.n2, s.n3} {
		s.byAddr[n.IPv4], s.byAddr[n.IPv6] = n, n
	}
	for _, r := range append(lab.ServiceRanges(), lab.ExternalRanges()...) {
		via := s.n1.IPv4
		if r.Addr().Is6() {
			via = s.n1.IPv6
		}
		must(s.n2.Netns().IP(ctx, fmt.Sprintf("route replace %s via %s", r, via)))
	}
	var objects []any
	for _, sc := range scenes() {
		objects = append(objects, sc.svc)
		for _, sl := range sc.slices {
			objects = append(objects, sl)
		}
	}
	must(l.Apply(ctx, objects...))
	for _, n := range []*lab.Node{s.n1, s.n3} {
		must(n.StartProxy(ctx))
	}
	must(l.WaitSynced(ctx, s.n1, s.n3))
	return s
}

// run runs svcnet on a node and returns what it printed, and its exit code.
func (s *stage) run(t *testing.T, n *lab.Node, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return s.runAs(t, n, "admin", args...)
}

// runAs is run with the credentials of a user of the API; "" for none at all.
func (s *stage) runAs(t *testing.T, n *lab.Node, user string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	err := n.Netns().Do(func() error {
		c := exec.CommandContext(t.Context(), svcnet(t), args...)
		c.Stdout, c.Stderr = &out, &errs
		c.Env = append(n.Env(), "HOME=/nonexistent")
		if user != "" {
			c.Env = append(c.Env, "KUBECONFIG="+s.Kubeconfig(user))
		}
		err := c.Run()
		if c.ProcessState != nil {
			code = c.ProcessState.ExitCode()
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatalf("svcnet %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), code
}
