package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// server stands in for an API server with a kubelet behind it: pods get the status that a test gives them, and exec is
// refused.
type server struct {
	t  *testing.T
	mu sync.Mutex
	// pods are those that are there.
	pods map[string]*corev1.Pod
	// refuse answers a request instead of the server, when it does: the status with code and message.
	refuse func(r *http.Request) *metav1.Status
	// status is what a pod comes to.
	status corev1.PodStatus
	// may tells whether a right is granted.
	may func(a *authorizationv1.ResourceAttributes) bool
	// deleted counts.
	deleted int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	status := func(code int, reason metav1.StatusReason, message string) *metav1.Status {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message,
		}
	}
	if s.refuse != nil {
		if refused := s.refuse(r); refused != nil {
			refused.TypeMeta, refused.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
			answer(int(refused.Code), refused)
			return
		}
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			s.t.Error(err)
		}
		review.Status.Allowed = s.may == nil || s.may(review.Spec.ResourceAttributes)
		answer(http.StatusCreated, review)
	case r.Method == http.MethodPost && path[len(path)-1] == "pods":
		var pod corev1.Pod
		if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
			s.t.Error(err)
		}
		pod.Status = s.status
		s.pods[pod.Name] = &pod
		answer(http.StatusCreated, pod)
	case path[len(path)-1] == "pods":
		var list corev1.PodList
		for _, p := range s.pods {
			list.Items = append(list.Items, *p)
		}
		answer(http.StatusOK, list)
	case path[len(path)-1] == "exec":
		answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "x" is forbidden: User "u" cannot create resource "pods/exec"`))
	default:
		name := path[len(path)-1]
		pod, ok := s.pods[name]
		switch {
		case !ok:
			answer(http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound, "pods not found"))
		case r.Method == http.MethodDelete:
			delete(s.pods, name)
			s.deleted++
			answer(http.StatusOK, pod)
		default:
			answer(http.StatusOK, pod)
		}
	}
}

func (s *server) cluster() *Cluster {
	s.t.Helper()
	if s.pods == nil {
		s.pods = map[string]*corev1.Pod{}
	}
	web := httptest.NewServer(s)
	s.t.Cleanup(web.Close)
	c, err := NewCluster(&rest.Config{Host: web.URL})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func readyNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture = "linux", "amd64"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Image: "svcnet:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

func terminated(message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: message}},
	}}}
}

var running = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
	State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
}}}

// TestRefusals: whatever is in the way is one line that says what to do, and no pod is left.
func TestRefusals(t *testing.T) {
	forbidden := func(message string) func(*http.Request) *metav1.Status {
		return func(r *http.Request) *metav1.Status {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
				return nil
			}
			return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}
		}
	}
	windows, arm, dead := readyNode(), readyNode(), readyNode()
	windows.Status.NodeInfo.OperatingSystem = "windows"
	arm.Status.NodeInfo.Architecture = "arm64"
	dead.Status.Conditions[0].Status, dead.Status.Conditions[0].Message = corev1.ConditionUnknown, "Kubelet stopped posting\n node status."
	for name, c := range map[string]*struct {
		node   *corev1.Node
		binary bool
		server *server
		want   []string
	}{
		"Pod Security": {
			server: &server{refuse: forbidden(`pods "svcnet-x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), hostPath volumes (volume "host")`)},
			want:   []string{"violates PodSecurity", "kubectl label namespace ops pod-security.kubernetes.io/enforce=privileged"},
		},
		"quota": {server: &server{refuse: forbidden(`pods "x" is forbidden: exceeded quota: few`)}, want: []string{"exceeded quota", "--pod-namespace"}},
		"no namespace": {
			server: &server{refuse: func(r *http.Request) *metav1.Status {
				if r.Method != http.MethodPost {
					return nil
				}
				return &metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: `namespaces "ops" not found`}
			}},
			want: []string{"there is no namespace ops"},
		},
		"no image":      {server: &server{status: waiting("ErrImagePull", "manifest\nunknown")}, want: []string{"pull the image svcnet:1: ErrImagePull: manifest unknown", "--image-pull-secret"}},
		"full":          {server: &server{status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "Node didn't have enough resource: pods"}}, want: []string{"the node refuses the pod: OutOfpods: Node didn't have enough resource"}},
		"architecture":  {server: &server{status: terminated("exec /usr/bin/svcnet: exec format error")}, want: []string{"another architecture"}},
		"no program":    {server: &server{status: terminated(`exec: "svcnet": executable file not found in $PATH`)}, want: []string{"the image is not svcnet's own"}},
		"Windows":       {node: windows, want: []string{"operating system is windows"}},
		"not ready":     {node: dead, want: []string{"it is not ready: Kubelet stopped posting node status."}},
		"never starts":  {server: &server{status: waiting("ContainerCreating", "")}, want: []string{"does not start within 1s: ContainerCreating", "--timeout"}},
		"exec refused":  {server: &server{status: running}, want: []string{"read it", "cannot create resource", "pods/exec"}},
		"other machine": {node: arm, binary: true, want: []string{"it is arm64", "for amd64"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.server
			if s == nil {
				s = &server{}
			}
			s.t = t
			o := Options{Namespace: "ops", Image: "svcnet:1", Instance: "0", Timeout: time.Second}
			if s.status.Phase == corev1.PodRunning {
				o.Timeout = time.Minute // of a slow machine
			}
			if c.binary {
				o.Binary = ownBinary(t)
			}
			node := c.node
			if node == nil {
				node = readyNode()
			}
			_, err := s.cluster().Run(t.Context(), node, 0, o, nil)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "read node n1: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line about the node: %q", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.pods) > 0 {
				t.Errorf("%d pods are left", len(s.pods))
			}
		})
	}
}

// TestCancelled: who interrupts leaves no pod, also when the server is away for a moment.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	s := &server{t: t, status: waiting("ContainerCreating", "")}
	s.refuse = func(r *http.Request) *metav1.Status {
		switch {
		case r.Method == http.MethodGet:
			cancel()
		case r.Method == http.MethodDelete && tries < 2:
			tries++
			return &metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "starting"}
		}
		return nil
	}
	_, err := s.cluster().Run(ctx, readyNode(), 0, Options{Namespace: "ops", Image: "i", Instance: "0", Timeout: time.Minute}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pods) > 0 || s.deleted != 1 {
		t.Errorf("%d pods are left, %d deleted", len(s.pods), s.deleted)
	}
}

// TestCheckAccess: what is missing is told in one list before anything is made.
func TestCheckAccess(t *testing.T) {
	s := &server{t: t, may: func(a *authorizationv1.ResourceAttributes) bool { return a.Verb == "get" }}
	err := s.cluster().CheckAccess(t.Context(), "ops")
	if err == nil || !strings.Contains(err.Error(), "may not create pods, delete pods, create pods/exec in namespace ops") {
		t.Errorf("%v", err)
	}
	s = &server{t: t}
	if err := s.cluster().CheckAccess(t.Context(), "ops"); err != nil {
		t.Error(err)
	}
	s = &server{t: t, refuse: func(r *http.Request) *metav1.Status {
		return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}
	}}
	if err := s.cluster().CheckAccess(t.Context(), "ops"); err != nil {
		t.Errorf("a server that does not tell stops everything: %v", err)
	}
}

// TestSweep deletes what ended and leaves what runs; Cleanup leaves nothing.
func TestSweep(t *testing.T) {
	s := &server{t: t, pods: map[string]*corev1.Pod{}}
	for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodPending} {
		p := Pod(podName("0", i), "n1", Options{Namespace: "ops", Timeout: time.Second})
		p.Status.Phase = phase
		s.pods[p.Name] = p
	}
	c := s.cluster()
	for _, step := range []struct {
		sweep func(context.Context, string) ([]Removed, error)
		want  string
	}{{c.Sweep, "[{ops svcnet-0-1 n1}]"}, {c.Cleanup, "2 more"}} {
		removed, err := step.sweep(t.Context(), "")
		if got := fmt.Sprint(removed); err != nil || got != step.want && len(removed) != 2 {
			t.Errorf("removed %s, %v; want %s", got, err, step.want)
		}
	}
	if len(s.pods) > 0 {
		t.Errorf("left: %v", s.pods)
	}
}

// TestDeleted holds that a pod that somebody deletes is not said to have ended, however far that is; what the node said
// before stays.
func TestDeleted(t *testing.T) {
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	for _, c := range []struct {
		status corev1.PodStatus
		want   string
	}{
		{running, "somebody deletes the pod"},
		{corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: done}}}, "somebody deletes the pod"},
		{corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: done}}}, "somebody deletes the pod"},
		{terminated(""), "somebody deletes the pod"},
		{corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}, "the node refuses the pod: Evicted: low on memory"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, Status: c.status}
		if err := failure(pod); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.status, err, c.want)
		}
	}
}
