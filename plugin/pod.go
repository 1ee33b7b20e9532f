// Package plugin is the cluster side: it reaches nodes through short-lived pods, streams their evidence back as
// bundles, and leaves nothing behind.
//
// A pod only reads. It is made by name, so that it can be deleted even when nobody heard of its creation; it ends by
// itself when its client is gone (activeDeadlineSeconds); and it holds no credentials: the client reads the API.
package plugin

import (
	"fmt"
	"path"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of every pod, by which `cleanup` finds what was left.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelInstance  = "app.kubernetes.io/instance"
	appName        = "svcnet"
	manager        = "kubectl-svcnet"
)

// Places in the pod.
const (
	// HostRoot is where the host's root is mounted, read-only.
	HostRoot = "/host"
	// copyDir is memory that the client's program is copied to.
	copyDir       = "/svcnet"
	containerName = "svcnet"
	// imageProgram is svcnet in its own image.
	imageProgram = "/kubectl-svcnet"
)

// Options say what the pods are like. The zero value of a field that is not commented is what it says.
type Options struct {
	// Namespace of the pods.
	Namespace string
	// Image to run: svcnet's own, or with Binary any that has a shell.
	Image string
	// PullSecret names a Secret in Namespace that the image is pulled with; empty: the node's own credentials.
	PullSecret string
	// Binary is a Linux program file, svcnet itself, that is copied into the pod; empty: the image has it.
	Binary string
	// Privileged asks for every capability instead of the listed ones.
	Privileged bool
	// Pods are pods whose network namespaces are read as well, as NAMESPACE/NAME. Entering one takes CAP_SYS_ADMIN.
	Pods []string
	// Silent leaves kube-proxy's HTTP endpoints alone.
	Silent bool
	// Instance is the value of LabelInstance: one for every run of the client.
	Instance string
	// Timeout bounds one node: starting its pod and one reading. The pod ends by itself a minute later.
	Timeout time.Duration
	// Stay is how long a pod may be asked again and again, where that is longer than Timeout.
	Stay time.Duration
}

// Capabilities are what reading a node takes, and what each is for. Everything else is dropped.
var Capabilities = []struct {
	Name corev1.Capability
	For  string
}{
	{"DAC_READ_SEARCH", "files and /proc of processes of other users: who holds a socket"},
	{"NET_ADMIN", "tables of nftables and iptables, sets, virtual servers, connections"},
	{"NET_RAW", "tables of iptables-legacy, which are read through a raw socket"},
	{"SYS_CHROOT", "the node's own programs, run below " + HostRoot},
	{"SYS_PTRACE", "/proc of processes with other capabilities: kube-proxy's files and sockets"},
}

// enterPods is what entering the network namespaces of pods takes besides.
const enterPods corev1.Capability = "SYS_ADMIN"

// Pod is the pod that reads a node. It is what `--print-pod` shows and what is created, field by field.
func Pod(name, node string, o Options) *corev1.Pod {
	deadline := int64((max(o.Timeout, o.Stay) + time.Minute) / time.Second)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: o.Namespace,
			Labels: map[string]string{LabelName: appName, LabelManagedBy: manager, LabelInstance: o.Instance},
		},
		Spec: corev1.PodSpec{
			// Past the scheduler, and past every taint: a node in trouble is the one to look at.
			NodeName:                      node,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			OS:                            &corev1.PodOS{Name: corev1.Linux},
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         &deadline,
			TerminationGracePeriodSeconds: new(int64(1)),
			// The node's rules are those of its network namespace. Its processes are seen below HostRoot.
			HostNetwork:                  true,
			DNSPolicy:                    corev1.DNSDefault,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			Volumes: []corev1.Volume{{
				Name:         "host",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: new(corev1.HostPathDirectory)}},
			}},
			Containers: []corev1.Container{{
				Name:  containerName,
				Image: o.Image,
				// Waits to be asked; ends when told to.
				Command:                  []string{imageProgram, "wait"},
				ImagePullPolicy:          corev1.PullIfNotPresent,
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
				},
				SecurityContext: security(o),
				VolumeMounts: []corev1.VolumeMount{{
					Name: "host", MountPath: HostRoot, ReadOnly: true,
					// What the node unmounts meanwhile is not held here.
					MountPropagation: new(corev1.MountPropagationHostToContainer),
				}},
			}},
		},
	}
	if o.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.PullSecret}}
	}
	if o.Binary != "" {
		c := &pod.Spec.Containers[0]
		// A shell that waits ends at once when it is told to; a sleep would be waited for.
		c.Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep " + strconv.FormatInt(deadline, 10) + " & wait"}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "program", MountPath: copyDir})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: "program",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("256Mi")),
			}},
		})
	}
	return pod
}

// security lists what the container may. Root without capabilities is nobody; profiles that confine containers keep
// them away from the host's files whatever they are allowed, and from chroot's unshare.
func security(o Options) *corev1.SecurityContext {
	s := &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)),
		ReadOnlyRootFilesystem: new(true),
		SeccompProfile:         &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		AppArmorProfile:        &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		SELinuxOptions:         &corev1.SELinuxOptions{Type: "spc_t"},
	}
	if o.Privileged {
		s.Privileged = new(true)
		return s
	}
	s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	for _, c := range Capabilities {
		s.Capabilities.Add = append(s.Capabilities.Add, c.Name)
	}
	if len(o.Pods) > 0 {
		// The API server takes no SYS_ADMIN together with a promise to gain nothing.
		s.Capabilities.Add = append(s.Capabilities.Add, enterPods)
		return s
	}
	s.AllowPrivilegeEscalation = new(false)
	return s
}

// program is svcnet as the container finds it.
func (o *Options) program() string {
	if o.Binary != "" {
		return path.Join(copyDir, "svcnet")
	}
	return imageProgram
}

// command is what runs in the pod for one reading. Objects are not its business, nor has it credentials to read them.
func (o *Options) command(node string) []string {
	c := []string{o.program(), "collect", "--output=-", "--root=" + HostRoot, "--no-api", "--no-report", "--node=" + node}
	if o.Silent {
		c = append(c, "--silent")
	}
	for _, p := range o.Pods {
		c = append(c, "--pod="+p)
	}
	if len(o.Pods) > 0 {
		// Their addresses tell which namespace is whose.
		c = append(c, "--live", "--filename=-")
	}
	return c
}

// podName is unique for a run and a node; n counts the run's pods.
func podName(instance string, n int) string { return fmt.Sprintf("svcnet-%s-%d", instance, n) }
