package check

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
)

// TestPending: a difference of a Service that changed a moment ago is information, with its age; one that is older, or of
// which nothing says when it was read, is what it is.
func TestPending(t *testing.T) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	set := &objects.Set{
		Services: []objects.Service{{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))}}}},
		EndpointSlices: []objects.EndpointSlice{{EndpointSlice: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			CreationTimestamp: metav1.NewTime(at.Add(-time.Hour)),
			Annotations:       map[string]string{corev1.EndpointsLastChangeTriggerTime: at.Add(-1200 * time.Millisecond).Format(time.RFC3339Nano)},
		}}}},
	}
	set.Sort()
	finding := func(id string) report.Finding {
		return report.Finding{ID: id, Severity: Error, Object: report.Object{Kind: "Service", Namespace: "shop", Name: "web"}}
	}
	for _, tt := range []struct {
		name, id string
		taken    time.Time
		pending  bool
	}{
		{"a moment ago", "stale-endpoint-rule", at, true},
		{"a minute ago", "stale-endpoint-rule", at.Add(time.Minute), false},
		{"nobody says when", "stale-endpoint-rule", time.Time{}, false},
		{"nothing that a sync would mend", "duplicate-external-address", at, false},
	} {
		n := &Node{Objects: set, Taken: tt.taken}
		fs := []report.Finding{finding(tt.id)}
		n.pend(fs)
		if got := fs[0].Pending != ""; got != tt.pending || (fs[0].Severity == Info) != tt.pending {
			t.Errorf("%s: %q, severity %s, want pending %t", tt.name, fs[0].Pending, fs[0].Severity, tt.pending)
		}
	}
}
