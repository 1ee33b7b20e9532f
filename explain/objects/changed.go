package objects

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LastChange is when a change of pods last changed an EndpointSlice or Endpoints, as their controller notes it among the
// annotations; zero where it does not.
func LastChange(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return t
}
