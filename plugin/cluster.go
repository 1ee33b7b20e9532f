package plugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// requestTimeout bounds one request: small ones, that a server answers at once or not at all.
	requestTimeout = 15 * time.Second
	// cleanupTimeout is how long a pod is tried to be deleted, whatever became of the question: an API server that
	// starts again is back by then.
	cleanupTimeout = 45 * time.Second
	// again is the pause before something is looked at or tried once more.
	again = 300 * time.Millisecond
)

// Cluster is an API server with somebody's credentials.
type Cluster struct {
	config  *rest.Config
	core    coreclient.CoreV1Interface
	reviews authorizationclient.AuthorizationV1Interface
}

// NewCluster is a client for a cluster; it asks nothing yet.
func NewCluster(config *rest.Config) (*Cluster, error) {
	c := rest.CopyConfig(config)
	c.UserAgent = "svcnet"
	c.WarningHandler = rest.NoWarnings{} // Pod Security warns of what a namespace would refuse if it enforced
	c.QPS, c.Burst = 50, 100
	// Pods are few; what goes over the wire can be read.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	core, err := coreclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	reviews, err := authorizationclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Cluster{config: c, core: core, reviews: reviews}, nil
}

// NewInstance is a value for Options.Instance that no other run has.
func NewInstance() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// create makes a pod. Whether a request that broke off was carried out nobody knows; the name tells.
func (c *Cluster) create(ctx context.Context, pod *corev1.Pod) error {
	for first := true; ; first = false {
		within, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := c.core.Pods(pod.Namespace).Create(within, pod, metav1.CreateOptions{})
		cancel()
		switch {
		case err == nil, !first && apierrors.IsAlreadyExists(err):
			return nil
		case !passes(err):
			return err
		}
		if !pause(ctx, again) {
			return err
		}
	}
}

// remove deletes a pod and tries until that is certain: a pod that is not there is deleted. ctx may be over already.
func (c *Cluster) remove(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		within, stop := context.WithTimeout(ctx, requestTimeout)
		err := c.core.Pods(namespace).Delete(within, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		stop()
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !passes(err) || !pause(ctx, again) {
			return fmt.Errorf("delete pod %s in namespace %s: %s (it ends by itself; `kubectl svcnet cleanup` deletes it)", name, namespace, oneLine(err.Error()))
		}
	}
}

// passes tells whether an error may be gone in a moment: the server starts, is busy, or nobody answers. What it refuses
// it will refuse again.
func passes(err error) bool {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return !errors.Is(err, context.Canceled)
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// Removed is a pod that was deleted.
type Removed struct{ Namespace, Name, Node string }

// Cleanup deletes the pods of all runs, those that still run included. Empty namespace: in all of them. What was deleted
// before an error is returned beside it.
func (c *Cluster) Cleanup(ctx context.Context, namespace string) ([]Removed, error) {
	return c.sweep(ctx, namespace, func(*corev1.Pod) bool { return true })
}

// Sweep deletes pods of earlier runs that ended by themselves, because their client was killed.
func (c *Cluster) Sweep(ctx context.Context, namespace string) ([]Removed, error) {
	return c.sweep(ctx, namespace, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	})
}

func (c *Cluster) sweep(ctx context.Context, namespace string, which func(*corev1.Pod) bool) ([]Removed, error) {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.core.Pods(namespace).List(within, metav1.ListOptions{
		LabelSelector: labels.Set{LabelName: appName, LabelManagedBy: manager}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of svcnet: %s", oneLine(err.Error()))
	}
	var (
		removed []Removed
		failed  []error
	)
	for i := range list.Items {
		p := &list.Items[i]
		if !which(p) {
			continue
		}
		if err := c.remove(ctx, p.Namespace, p.Name); err != nil {
			failed = append(failed, err)
			continue
		}
		removed = append(removed, Removed{p.Namespace, p.Name, p.Spec.NodeName})
	}
	return removed, errors.Join(failed...)
}

// pause waits between two tries; false: the time is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
