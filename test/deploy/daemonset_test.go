package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/cmd"
)

// daemonset is deploy/daemonset.yaml, decoded.
type daemonset struct {
	namespace corev1.Namespace
	account   corev1.ServiceAccount
	role      rbacv1.ClusterRole
	binding   rbacv1.ClusterRoleBinding
	set       appsv1.DaemonSet
}

// readDaemonset decodes each document strictly into its type: a field that is misspelt is an error.
func readDaemonset(t *testing.T) daemonset {
	t.Helper()
	data, err := os.ReadFile("../../deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d daemonset
	into := map[string]any{
		"v1 Namespace": &d.namespace, "v1 ServiceAccount": &d.account, "apps/v1 DaemonSet": &d.set,
		"rbac.authorization.k8s.io/v1 ClusterRole": &d.role, "rbac.authorization.k8s.io/v1 ClusterRoleBinding": &d.binding,
	}
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		kind := head.APIVersion + " " + head.Kind
		if into[kind] == nil {
			t.Fatalf("a %s twice, or one that nobody expects", kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into[kind]); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		delete(into, kind)
	}
	if len(into) > 0 {
		t.Fatalf("missing: %v", into)
	}
	return d
}

// TestDaemonset holds what the manifest's parts say of each other, and that it asks for no more than it needs.
func TestDaemonset(t *testing.T) {
	d := readDaemonset(t)
	pod := &d.set.Spec.Template.Spec
	c := &pod.Containers[0]
	if d.namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Error("the namespace refuses the pods")
	}
	for what, ns := range map[string]string{"account": d.account.Namespace, "daemonset": d.set.Namespace, "binding": d.binding.Subjects[0].Namespace} {
		if ns != d.namespace.Name {
			t.Errorf("the %s is in namespace %q", what, ns)
		}
	}
	if pod.ServiceAccountName != d.account.Name || d.binding.Subjects[0].Name != d.account.Name || d.binding.RoleRef.Name != d.role.Name || d.binding.RoleRef.Kind != "ClusterRole" {
		t.Error("account, binding and role are not of one another")
	}
	for k, v := range d.set.Spec.Selector.MatchLabels {
		if d.set.Spec.Template.Labels[k] != v {
			t.Errorf("the selector does not find the pods: %s", k)
		}
	}
	for _, r := range d.role.Rules {
		for _, v := range r.Verbs {
			if v != "list" && v != "watch" {
				t.Errorf("verb %s on %v", v, r.Resources)
			}
		}
		if len(r.ResourceNames)+len(r.NonResourceURLs) > 0 || slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "secrets") {
			t.Errorf("rule %+v", r)
		}
	}
	s := c.SecurityContext
	if s.Privileged != nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || slices.Contains(s.Capabilities.Add, "SYS_ADMIN") {
		t.Errorf("security context %+v", s)
	}
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Volumes) != 1 || !c.VolumeMounts[0].ReadOnly || pod.Volumes[0].HostPath.Path != "/" {
		t.Error("more of the host, or less, than its network and its root to read")
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || len(pod.Tolerations) != 1 || pod.Tolerations[0].Operator != corev1.TolerationOpExists {
		t.Error("resources, or nodes that are left out")
	}
	port := c.Ports[0]
	if fmt.Sprintf(":%d", port.ContainerPort) != cmd.DefaultListen || port.HostPort != port.ContainerPort {
		t.Errorf("port %d, and the program names %s", port.ContainerPort, cmd.DefaultListen)
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet.Path != "/healthz" || probe.HTTPGet.Port.String() != port.Name {
			t.Errorf("probe %+v", probe.HTTPGet)
		}
	}
	args := strings.Join(c.Args, " ")
	for _, want := range []string{"audit --watch", "--listen=[$(HOST_IP)]" + cmd.DefaultListen, "--node=$(NODE_NAME)", "--root=" + c.VolumeMounts[0].MountPath} {
		if !strings.Contains(args, want) {
			t.Errorf("no %s in %s", want, args)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && !strings.Contains(args, "$("+e.Name+")") {
			t.Errorf("%s is for nothing", e.Name)
		}
	}
}

// TestDaemonsetArgs gives the program the arguments of the manifest, with a root that is none: it gets as far as that.
func TestDaemonsetArgs(t *testing.T) {
	d := readDaemonset(t)
	c := &d.set.Spec.Template.Spec.Containers[0]
	values := strings.NewReplacer("$(HOST_IP)", "127.0.0.1", "$(NODE_NAME)", "n1", "=/host", "="+t.TempDir(), cmd.DefaultListen, ":0")
	args := []string{"svcnet"}
	for _, a := range c.Args {
		args = append(args, values.Replace(a))
	}
	var out, said strings.Builder
	code := cmd.Execute(t.Context(), args, cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &said}, func(string) string { return "" })
	if code != 1 || out.Len() > 0 || strings.Contains(said.String(), "flag") || strings.Contains(said.String(), "usage") {
		t.Errorf("%q: exit %d: %s%s", args, code, out.String(), said.String())
	}
}
