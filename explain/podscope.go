package explain

import (
	"bytes"
	"cmp"
	"path"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
)

// ofOneNode is how our own collector's list of pods begins, which holds those of one node and no others. kubectl and
// the API server write the same fields in another order.
var ofOneNode = []byte(`{"apiVersion":"v1","kind":"PodList","items":[`)

// readPodScope says for which questions the evidence holds every pod. A collector lists the pods of its node, and for
// Services without ready endpoints those that they select. Loose files answer for a namespace that they hold pods of;
// pods of several namespaces are those of all (kubectl get pods -A).
func (m *model) readPodScope(s *snapshot.Snapshot) check.PodScope {
	scope := check.PodScope{Namespaces: make(map[string]bool), Services: make(map[string]bool)}
	partial := make(map[string]bool) // files that hold some pods of a namespace
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if e.Format != snapshot.Objects {
			continue
		}
		namespace, service := snapshot.ServicePodsOf(e.File)
		switch {
		case namespace != "":
			partial[e.File] = true
			if e.Status.Answers() {
				scope.Services[namespace+"/"+service] = true
			}
		case path.Base(e.File) == servicePodsFile && !e.Status.Answers():
			m.answers[check.SelectedBy] = cmp.Or(e.Error, string(e.Status))
		case bytes.HasPrefix(e.Data, ofOneNode):
			partial[e.File] = true
			scope.OnNode = scope.OnNode || e.Status.Answers() && path.Base(e.File) == "pods.json"
		case !e.Status.Answers():
			partial[e.File] = true // what was cut off does not speak for what it lacks
		}
	}
	for _, p := range m.objects.Pods {
		if !partial[p.File] {
			scope.Namespaces[p.Namespace] = true
		}
	}
	scope.All = len(scope.Namespaces) > 1
	if why, unread := m.answers[check.Pods]; unread {
		m.answers[check.SelectedBy] = cmp.Or(m.answers[check.SelectedBy], why)
	}
	return scope
}

// servicePodsFile is the evidence by which a collector says that it could not list the pods of Services.
const servicePodsFile = "service-pods"
