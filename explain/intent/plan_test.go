package intent

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

func TestPlanOf(t *testing.T) {
	in := Input{Node: nodeA(), Proxy: proxy("1.36"), SlicesRead: true}
	for _, name := range []string{"b", "a", "ab"} {
		svc := service(func(s *corev1.Service) {
			s.Name = name
			s.Spec.Ports = []corev1.ServicePort{{Name: "z", Port: 1}, {Name: "a", Port: 2}}
		})
		in.Services = append(in.Services, svc)
	}
	plan := Compute(in)
	var got []string
	for _, sp := range append(append(plan.Of("shop", "a"), plan.Of("shop", "b")...), plan.Of("shop", "none")...) {
		got = append(got, sp.Key())
	}
	if diff := cmp.Diff([]string{"shop/a:z", "shop/a:a", "shop/b:z", "shop/b:a"}, got); diff != "" {
		t.Error(diff)
	}
	if key := (&ServicePort{Namespace: "shop", Name: "web"}).Key(); key != "shop/web" {
		t.Errorf("key of a port without name: %s", key)
	}
}

func TestReleases(t *testing.T) {
	tests := []struct {
		name      string
		proxy     traits.Proxy
		low, high string
	}{
		{"known", traits.Proxy{Version: version("1.24.3")}, "1.24", "1.24"},
		{"unknown", traits.Proxy{}, "newest", "newest"},
		{"another major", traits.Proxy{Version: traits.Version{Major: 2, Minor: 1}}, "newest", "newest"},
		{"range", traits.Proxy{VersionFromRules: true, Version: version("1.19"), Newest: version("1.23")}, "1.19", "1.23"},
		{"open above", traits.Proxy{VersionFromRules: true, Version: version("1.24")}, "1.24", "newest"},
		{"open below", traits.Proxy{VersionFromRules: true, Newest: version("1.18")}, "1.18", "1.18"},
		{"from the floor", traits.Proxy{VersionFromRules: true, Version: version("1.2"), Newest: version("1.18")}, "1.14", "1.18"},
		{"turned round", traits.Proxy{VersionFromRules: true, Version: version("1.30"), Newest: version("1.18")}, "1.18", "1.18"},
		{"nothing known", traits.Proxy{VersionFromRules: true}, "newest", "newest"},
	}
	for _, tt := range tests {
		low, high := releases(tt.proxy)
		if low.String() != tt.low || high.String() != tt.high {
			t.Errorf("%s: got %s to %s, want %s to %s", tt.name, low, high, tt.low, tt.high)
		}
	}
}

// TestVersionMatrix is the table of when each behaviour begins, once more and in words of its own, so that
// a slip in version.go shows.
func TestVersionMatrix(t *testing.T) {
	first := map[int][]behaviour{
		15: {localShortcutForNode},
		19: {readsSlices, externalIPPolicy},
		20: {loadBalancerRejectOutside, externalRejectForwarded},
		21: {keepsUnready, plainExternalIP, readsSlicesOnWindows},
		22: {nodeNameOnly, internalPolicy},
		23: {healthCheckOnNodePortAddr},
		24: {twoLists, zoneHints, externalChains, ipvsClusterFallback},
		25: {filterDrops, filterFirewall},
		26: {terminatingFallback, noLoopbackNodePort6, localhostOption},
		27: {anyHintsAnnotation},
		29: {ipvsOutputFirewall},
		30: {honoursIPMode},
		31: {hintsWithoutAnnotation},
		34: {nodeHints, zeroRangeOpens},
		36: {notTerminatingWins, splitSelectors},
	}
	n := 0
	for minor, list := range first {
		for _, b := range list {
			n++
			if (release{minor: minor - 1}).does(b) || !(release{minor: minor}).does(b) || !newest.does(b) {
				t.Errorf("behaviour %d does not begin in 1.%d", b, minor)
			}
		}
	}
	if n != len(behaviours) {
		t.Errorf("%d behaviours checked, there are %d", n, len(behaviours))
	}
}

func BenchmarkCompute(b *testing.B) {
	in := Input{Node: nodeA(), Proxy: proxy("1.36"), SlicesRead: true}
	for i := range 10000 {
		svc := service(func(s *corev1.Service) {
			s.Name = fmt.Sprintf("web-%d", i)
			s.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.%d.%d", i/250, i%250)}
		})
		var eps []string
		for j := range 5 {
			eps = append(eps, fmt.Sprintf("10.%d.%d.%d node-a", j, i/250, i%250))
		}
		s := slice(fmt.Sprintf("s-%d", i), eps...)
		s.Labels[discoveryv1.LabelServiceName] = svc.Name
		in.Services, in.Slices = append(in.Services, svc), append(in.Slices, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		Compute(in)
	}
}
