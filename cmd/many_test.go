package cmd

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// recorded is a node under a name, with the DNAT to an endpoint of a Service changed to go elsewhere.
func recorded(t *testing.T, node, service string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Load([]string{"../test/recorded/testdata/kube-proxy-1.33-iptables-nft"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if service == "" || e.File != "iptables-nft-save.txt" {
			continue
		}
		rule := regexp.MustCompile(`"store/` + service + `:http" -m tcp -j DNAT --to-destination \S+`)
		at := rule.FindIndex(e.Data)
		if at == nil {
			t.Fatalf("no endpoint of %s", service)
		}
		e.Data = slices.Concat(e.Data[:at[1]-1], e.Data[at[1]:]) // another port
	}
	s.Node = node
	return s
}

// TestSecondLook is of live nodes: what only one look shows was kube-proxy at work on a change.
func TestSecondLook(t *testing.T) { synctest.Test(t, secondLook) }

func secondLook(t *testing.T) {
	const stale, later = "node-port", "zone-hints"
	looks := map[string][2]string{ // what is wrong at the first look and at the second
		"broken": {stale, stale}, "busy": {stale, later}, "gone": {stale, "gone"}, "moved": {stale, ""}, "sound": {"", ""},
	}
	var asked []string
	look := func(number int, names []string) iter.Seq[nodeEvidence] {
		return func(yield func(nodeEvidence) bool) {
			for _, name := range names {
				n := nodeEvidence{node: name}
				if wrong := looks[name][number]; wrong == "gone" {
					n.err = errors.New("gone")
				} else {
					n.snapshot = recorded(t, name, wrong)
				}
				if !yield(n) {
					return
				}
			}
		}
	}
	nodes := &readings{
		all: look(0, []string{"broken", "busy", "gone", "moved", "sound"}),
		again: func(_ context.Context, names []string) iter.Seq[nodeEvidence] {
			asked = append(asked, names...)
			return look(1, names)
		},
	}
	list, err := (&app{}).auditNodes(t.Context(), nodes, explain.AuditOptions{Namespace: "store", Services: []string{stale, later}})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(asked); got != 4 {
		t.Errorf("asked again: %v", asked)
	}
	worst, pending := make(map[string]string), false
	for _, item := range list.Items {
		if item.Like != "" {
			continue
		}
		severe := "nothing"
		for _, f := range item.Findings {
			pending = pending || f.Pending != "" && item.Node == "busy"
			if f.Severity != "info" {
				severe = f.Severity
			}
		}
		for _, name := range append(alikeTo(list, item.Node), item.Node) {
			worst[name] = severe
		}
	}
	if !pending {
		t.Error("nothing is pending on busy")
	}
	for name, want := range map[string]string{"broken": "error", "busy": "nothing", "gone": "error", "moved": "nothing", "sound": "nothing"} {
		if worst[name] != want {
			t.Errorf("node %s: %s, want %s", name, worst[name], want)
		}
	}
}

// alikeTo are the nodes that are told with another one.
func alikeTo(list *report.Reports, node string) []string {
	var out []string
	for _, item := range list.Items {
		if item.Like == node {
			out = append(out, item.Node)
		}
	}
	return out
}
