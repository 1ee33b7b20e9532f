package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
)

// TestPodScope: what loose files and what a collector says of pods, and what stays open.
func TestPodScope(t *testing.T) {
	const (
		head = `{"apiVersion":"v1","kind":"PodList","items":[` + "\n"
		web  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop"}}`
		api  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"api-1","namespace":"back"}}`
	)
	objects := func(file, data string) snapshot.Evidence {
		return snapshot.Evidence{File: file, Format: snapshot.Objects, Data: []byte(data), Status: snapshot.OK}
	}
	none := map[string]bool{}
	for name, c := range map[string]struct {
		evidence []snapshot.Evidence
		want     check.PodScope
		open     []check.Source
	}{
		"nothing":        {nil, check.PodScope{Namespaces: none, Services: none}, []check.Source{check.Pods, check.SelectedBy}},
		"one namespace":  {[]snapshot.Evidence{objects("pods.json", web)}, check.PodScope{Namespaces: map[string]bool{"shop": true}, Services: none}, nil},
		"two namespaces": {[]snapshot.Evidence{objects("a.yaml", web), objects("b.yaml", api)}, check.PodScope{All: true, Namespaces: map[string]bool{"shop": true, "back": true}, Services: none}, nil},
		"a node":         {[]snapshot.Evidence{objects("pods.json", head+web+",\n"+api+"\n]}\n")}, check.PodScope{OnNode: true, Namespaces: none, Services: none}, nil},
		"a node without": {[]snapshot.Evidence{objects("pods.json", head+"\n]}\n")}, check.PodScope{OnNode: true, Namespaces: none, Services: none}, nil},
		"Services called like files of ours": {
			[]snapshot.Evidence{objects("service-pods/shop/pods.json", head+web+"\n]}\n"), objects("service-pods/shop/nodes.json", head+"]}\n")},
			check.PodScope{Namespaces: none, Services: map[string]bool{"shop/pods": true, "shop/nodes": true}}, []check.Source{check.Nodes},
		},
		"refused": {
			[]snapshot.Evidence{objects("pods.json", head+"]}\n"), {File: "service-pods", Format: snapshot.Objects, Status: snapshot.Denied, Error: "read pods: forbidden"}},
			check.PodScope{OnNode: true, Namespaces: none, Services: none}, []check.Source{check.SelectedBy},
		},
		"cut off": {
			[]snapshot.Evidence{{File: "p.json", Format: snapshot.Objects, Status: snapshot.Truncated, Data: []byte(web)}},
			check.PodScope{Namespaces: none, Services: none}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(&snapshot.Snapshot{Node: "node-a", Evidence: c.evidence})
			if diff := cmp.Diff(c.want, m.podScope); diff != "" {
				t.Error(diff)
			}
			for _, s := range c.open {
				if _, unanswered := m.answers[s]; !unanswered {
					t.Errorf("%s counts as answered", s)
				}
			}
			if why := m.answers[check.SelectedBy]; strings.HasPrefix(name, "refused") && why != "read pods: forbidden" {
				t.Errorf("why: %q", why)
			}
		})
	}
}
