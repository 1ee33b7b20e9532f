package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// needed are the rights that reading nodes through pods takes, besides reading objects.
var needed = []authorizationv1.ResourceAttributes{
	{Verb: "create", Resource: "pods"},
	{Verb: "get", Resource: "pods"},
	{Verb: "delete", Resource: "pods"},
	{Verb: "create", Resource: "pods", Subresource: "exec"},
}

// CheckAccess asks the API server whether this user may do what reading nodes takes, before anything is made. The
// error lists what is missing. A server that does not answer such questions is no reason to stop.
func (c *Cluster) CheckAccess(ctx context.Context, namespace string) error {
	var missing []string
	for _, right := range needed {
		right.Namespace = namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		within, cancel := context.WithTimeout(ctx, requestTimeout)
		got, err := c.reviews.SelfSubjectAccessReviews().Create(within, review, metav1.CreateOptions{})
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return nil // what is refused then says so itself
		}
		if !got.Status.Allowed {
			missing = append(missing, words(right))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("read nodes through pods: this user may not %s in namespace %s (ask for a Role with these rights there, or choose another namespace with --pod-namespace)",
		strings.Join(missing, ", "), namespace)
}

// words says a right as RBAC has it: "create pods/exec".
func words(r authorizationv1.ResourceAttributes) string {
	if r.Subresource != "" {
		return r.Verb + " " + r.Resource + "/" + r.Subresource
	}
	return r.Verb + " " + r.Resource
}

// refused says in one line why the API server does not take the pod, and what to do.
func refused(err error, o *Options) error {
	said := oneLine(err.Error())
	switch {
	case apierrors.IsForbidden(err) && contains(said, "violates PodSecurity"):
		_, what, _ := strings.Cut(said, "violates ")
		return fmt.Errorf("namespace %s does not take pods that use the host: it violates %s (allow them with `kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite`, or choose another namespace with --pod-namespace)",
			o.Namespace, what, o.Namespace)
	case apierrors.IsForbidden(err) && contains(said, "exceeded quota"):
		return fmt.Errorf("%s (choose another namespace with --pod-namespace)", said)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %s (choose another with --pod-namespace)", o.Namespace)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s (ask for that right, or choose another namespace with --pod-namespace)", said)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%s (see the pod with --print-pod)", said)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the API server does not answer")
	}
	return errors.New(said)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// contains tells whether s has one of parts.
func contains(s string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
