package collectors

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// maxServicePods bounds the Services whose pods are listed, one request each: where more of them have no endpoint, it
// is not the Services that are wrong.
const maxServicePods = 100

// servicePodsFile names the evidence that says why pods of Services were not listed, or not all.
const servicePodsFile = "service-pods"

// SelectedPods lists, for each Service among objects that selects pods and has no ready endpoint, the pods that it selects. It
// is for who follows objects and not for who reads them: ReadObjects has these pods.
func SelectedPods(ctx context.Context, a *API, objects []snapshot.Evidence) []snapshot.Evidence {
	c, err := a.client()
	if err != nil {
		return []snapshot.Evidence{a.missed(servicePodsFile, "pods of Services without ready endpoints", err)}
	}
	return a.readServicePods(ctx, c, objects)
}

// readServicePods lists, for each Service that selects pods and has no ready endpoint, the pods that it selects,
// wherever they run: without them nobody can tell a selector that matches nothing from pods that are not ready. read
// is what was read before.
func (a *API) readServicePods(ctx context.Context, c *client, read []snapshot.Evidence) []snapshot.Evidence {
	var out []snapshot.Evidence
	empty := withoutReadyEndpoint(read)
	for i, s := range empty {
		if i == maxServicePods {
			return append(out, missed(servicePodsFile, snapshot.Objects, snapshot.NotCollected, fmt.Errorf(
				"read pods of Services without ready endpoints: there are %d, and those of the first %d were read (give `kubectl get pods -A -o json` output with -f)",
				len(empty), maxServicePods)))
		}
		k := kind{
			file: snapshot.ServicePodsFile(s.Namespace, s.Name), path: "/api/v1/namespaces/" + s.Namespace + "/pods",
			resource: "pods", list: "PodList", version: "v1",
		}
		data, err := c.list(ctx, k, selection{labels: labels.Set(s.Spec.Selector).String()})
		if err != nil {
			// What refuses one refuses the others: once said is enough.
			return append(out, a.missed(servicePodsFile, "pods of Services without ready endpoints", err))
		}
		out = append(out, evidence(k.file, snapshot.Objects, data))
	}
	return out
}

// withoutReadyEndpoint are the Services that a proxy forwards, that select pods and that have no ready endpoint in any
// slice, in the order of their list.
func withoutReadyEndpoint(read []snapshot.Evidence) []corev1.Service {
	var (
		services  corev1.ServiceList
		endpoints discoveryv1.EndpointSliceList
	)
	if !decoded(read, "services.json", &services) || !decoded(read, "endpointslices.json", &endpoints) {
		return nil
	}
	ready := make(map[[2]string]bool)
	for i := range endpoints.Items {
		s := &endpoints.Items[i]
		key := [2]string{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
		ready[key] = ready[key] || slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
	}
	return slices.DeleteFunc(services.Items, func(s corev1.Service) bool {
		forwarded := s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone
		return !forwarded || len(s.Spec.Selector) == 0 || ready[[2]string{s.Namespace, s.Name}]
	})
}

// decoded reads a list that was read before; false where it was not, or is no such list.
func decoded(read []snapshot.Evidence, file string, list any) bool {
	i := slices.IndexFunc(read, func(e snapshot.Evidence) bool { return e.File == file })
	return i >= 0 && read[i].Status == snapshot.OK && json.Unmarshal(read[i].Data, list) == nil
}
