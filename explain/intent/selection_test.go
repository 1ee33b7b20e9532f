package intent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSelection(t *testing.T) {
	const (
		here  = "10.244.1.5 node-a"
		there = "10.244.2.6 node-b"
	)
	type lists struct{ cluster, local, usable string }
	tests := []struct {
		name    string
		version string
		svc     *corev1.Service
		eps     []string
		want    lists
	}{
		{"ready ones only", "1.36", service(), []string{here, there, "10.244.3.7 node-c notready"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"order is that of the text", "1.36", service(), []string{"10.244.1.9 node-a", "10.244.1.10 node-a"},
			lists{cluster: "10.244.1.10 10.244.1.9", usable: "10.244.1.10 10.244.1.9"}},
		{"nothing", "1.36", service(), []string{"10.244.1.5 node-a notready"}, lists{}},

		// Terminating fallback: 1.26+, each list for itself.
		{"terminating 1.25", "1.25", service(), []string{"10.244.1.5 node-a leaving"}, lists{}},
		{"terminating 1.26", "1.26", service(), []string{"10.244.1.5 node-a leaving"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5"}},
		{"terminating but no longer serving", "1.36", service(), []string{"10.244.1.5 node-a gone"}, lists{}},
		{"terminating beside a ready one", "1.36", service(), []string{"10.244.1.5 node-a leaving", there},
			lists{cluster: "10.244.2.6", usable: "10.244.2.6"}},
		{"terminating here, ready there, ETP Local", "1.36", service(loadBalancer, etpLocal), []string{"10.244.1.5 node-a leaving", there},
			lists{cluster: "10.244.2.6", local: "10.244.1.5", usable: "10.244.2.6"}},
		{"the same in 1.25", "1.25", service(loadBalancer, etpLocal), []string{"10.244.1.5 node-a leaving", there},
			lists{cluster: "10.244.2.6", usable: "10.244.2.6"}},

		// Which lists there are.
		{"no Local list without a Local policy", "1.36", service(loadBalancer), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"ITP Local without external address: no Cluster list", "1.36", service(itpLocal), []string{here, there},
			lists{local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"ITP Local with external address: both", "1.36", service(loadBalancer, itpLocal), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"ETP Local of a ClusterIP Service has no effect", "1.36", service(etpLocal), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"ETP Local", "1.24", service(loadBalancer, etpLocal), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},

		// One list up to 1.23.
		{"ITP Local 1.22 cuts down everything", "1.22", service(loadBalancer, itpLocal), []string{here, there},
			lists{cluster: "10.244.1.5", local: "10.244.1.5", usable: "10.244.1.5"}},
		{"ITP Local 1.23 yields to ETP Local", "1.23", service(loadBalancer, itpLocal, etpLocal), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"ITP Local 1.21 is not looked at", "1.21", service(itpLocal), []string{here, there},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"Endpoints 1.18", "1.18", service(loadBalancer, etpLocal), []string{here, there, "10.244.1.7 node-a notready"},
			lists{cluster: "10.244.1.5 10.244.2.6", local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},

		// Zone hints.
		{"hints 1.36", "1.36", service(), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"hint for two zones", "1.36", service(), []string{here + " forzone=zone-a", there + " forzone=zone-b,zone-a"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"one hint missing", "1.36", service(), []string{here + " forzone=zone-a", there},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"one hint missing on an endpoint that is not ready", "1.36", service(), []string{here + " forzone=zone-a", there + " forzone=zone-b", "10.244.3.7 notready"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"no hint for this zone", "1.36", service(), []string{here + " forzone=zone-b", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"hints do not narrow the Local list", "1.36", service(loadBalancer, etpLocal), []string{here + " forzone=zone-b", there + " forzone=zone-a"},
			lists{cluster: "10.244.2.6", local: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"1.30 without annotation", "1.30", service(), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.30 any value", "1.30", service(annotated(corev1.AnnotationTopologyMode, "example.org/mine")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"1.30 disabled", "1.30", service(annotated(corev1.AnnotationTopologyMode, "Disabled")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.30 the older annotation comes first", "1.30", service(annotated(corev1.AnnotationTopologyMode, "Auto"), annotated(corev1.DeprecatedAnnotationTopologyAwareHints, "disabled")),
			[]string{here + " forzone=zone-a", there + " forzone=zone-b"}, lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.26 auto", "1.26", service(annotated(corev1.DeprecatedAnnotationTopologyAwareHints, "auto")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"1.26 any other value", "1.26", service(annotated(corev1.DeprecatedAnnotationTopologyAwareHints, "on")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.26 does not know topology-mode", "1.26", service(annotated(corev1.AnnotationTopologyMode, "Auto")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.23 gate off", "1.23", service(annotated(corev1.DeprecatedAnnotationTopologyAwareHints, "auto")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},
		{"1.31 disabled is not looked at", "1.31", service(annotated(corev1.AnnotationTopologyMode, "Disabled")), []string{here + " forzone=zone-a", there + " forzone=zone-b"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
		{"hints do not narrow terminating ones", "1.36", service(), []string{here + " leaving forzone=zone-a", there + " leaving forzone=zone-b"},
			lists{cluster: "10.244.1.5 10.244.2.6", usable: "10.244.1.5 10.244.2.6"}},

		// Node hints.
		{"node hints 1.34", "1.34", service(), []string{here + " fornode=node-a forzone=zone-a", "10.244.1.9 node-c fornode=node-c forzone=zone-a"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.1.9"}},
		{"node hints 1.33", "1.33", service(), []string{here + " fornode=node-a forzone=zone-a", "10.244.1.9 node-c fornode=node-c forzone=zone-a"},
			lists{cluster: "10.244.1.5 10.244.1.9", usable: "10.244.1.5 10.244.1.9"}},
		{"no node hint for this node: zones decide", "1.36", service(), []string{there + " fornode=node-b forzone=zone-a", "10.244.3.7 node-c fornode=node-c forzone=zone-c"},
			lists{cluster: "10.244.2.6", usable: "10.244.2.6 10.244.3.7"}},

		{"unknown version counts as newest", "", service(), []string{here + " fornode=node-a", there + " fornode=node-b"},
			lists{cluster: "10.244.1.5", usable: "10.244.1.5 10.244.2.6"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sp := plan(t, proxy(tt.version), tt.svc, tt.eps...)
			got := lists{addrs(sp, sp.Cluster), addrs(sp, sp.Local), addrs(sp, sp.Usable)}
			if got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if left := len(sp.where(ready)) > len(sp.Cluster) && strings.Contains(strings.Join(tt.eps, " "), "for"); (sp.TopologyNote != "") != (left && len(sp.Cluster) > 0) {
				t.Errorf("topology note %q with %d of %d ready endpoints", sp.TopologyNote, len(sp.Cluster), len(sp.where(ready)))
			}
		})
	}
}

func TestTopologyNoteSaysWhy(t *testing.T) {
	sp := plan(t, proxy("1.36"), service(), "10.244.1.5 node-a forzone=zone-a", "10.244.2.6 node-b forzone=zone-b", "10.244.2.7 node-b forzone=zone-b")
	want := "2 ready endpoints are left out on this node: the slices hint 1 endpoint for zone zone-a"
	if sp.TopologyNote != want {
		t.Errorf("got  %s\nwant %s", sp.TopologyNote, want)
	}
	if out := sp.Intend(sp.Frontends[0], localPod, proxy("1.36")); !strings.Contains(out.Because, want) {
		t.Errorf("reason %q does not tell of the hints", out.Because)
	}
}

func TestZoneUnknown(t *testing.T) {
	in := inputOf(proxy("1.36"), service(), "10.244.1.5 node-a forzone=zone-a", "10.244.2.6 node-b forzone=zone-b")
	in.Node = nil
	got := Compute(in)
	if n := kinds(got.Notes)[NoteZoneUnknown]; n != 1 {
		t.Errorf("%d notes that the zone is unknown, want 1: %+v", n, got.Notes)
	}
	if a := addrs(got.Ports[0], got.Ports[0].Cluster); a != "10.244.1.5 10.244.2.6" {
		t.Errorf("got %s, want all", a)
	}
}
