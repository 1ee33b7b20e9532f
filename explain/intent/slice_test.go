package intent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSliceRules has one thing odd about the slices each, the endpoints that are left and the only note.
func TestSliceRules(t *testing.T) {
	edit := func(s *discoveryv1.EndpointSlice, do func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		do(s)
		return s
	}
	label := func(key, value string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Labels[key] = value }
	}
	one := func() *discoveryv1.EndpointSlice { return slice("web-1", "10.244.1.5 node-a") }
	tests := []struct {
		name    string
		version string
		slices  []*discoveryv1.EndpointSlice
		want    string
		note    NoteKind
	}{
		{"plain", "1.36", []*discoveryv1.EndpointSlice{one()}, "10.244.1.5", ""},
		{"several slices", "1.36", []*discoveryv1.EndpointSlice{slice("web-2", "10.244.2.6"), one()}, "10.244.1.5 10.244.2.6", ""},
		{"no service name", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Labels = nil })}, "", NoteSliceUnlabelled},
		{"another Service", "1.36", []*discoveryv1.EndpointSlice{edit(one(), label(discoveryv1.LabelServiceName, "other"))}, "", NoteSliceOrphan},
		{"another namespace", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Namespace = "elsewhere" })}, "", NoteSliceOrphan},
		{"label for another proxy 1.35", "1.35", []*discoveryv1.EndpointSlice{edit(one(), label(labelProxyName, "x"))}, "", NoteSliceHidden},
		{"label for another proxy 1.36", "1.36", []*discoveryv1.EndpointSlice{edit(one(), label(labelProxyName, "x"))}, "10.244.1.5", ""},
		{"headless label", "1.36", []*discoveryv1.EndpointSlice{edit(one(), label(labelHeadless, ""))}, "", ""},
		{"FQDN", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN })}, "", NoteSliceAddressType},
		{"the other family", "1.36", []*discoveryv1.EndpointSlice{slice("web-6", "fd00::5")}, "", ""},
		{"address of the wrong family", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "fd00::5" })}, "", NoteFamilyMismatch},
		{"no ports", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports = nil })}, "", NoteSliceWithoutPorts},
		{"port without name", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = nil })}, "", NotePortIgnored},
		{"port without number", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil })}, "", NotePortIgnored},
		{"port 0", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr(int32(0)) })}, "", NotePortIgnored},
		{"port out of range", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr(int32(70000)) })}, "", NotePortIgnored},
		{"port of another name", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr("web") })}, "", NotePortMismatch},
		{"port of another protocol", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr(corev1.ProtocolUDP) })}, "", NotePortMismatch},
		{"protocol defaults to TCP", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil })}, "10.244.1.5", ""},
		{"first address only", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.244.1.5", "10.244.1.6"} })}, "10.244.1.5", NoteExtraAddresses},
		{"no address", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil })}, "", NoteNoAddress},
		{"no address at all", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "pod-1" })}, "", NoteUnreadableAddress},
		{"IPv4 in IPv6 form", "1.36", []*discoveryv1.EndpointSlice{edit(one(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "::ffff:10.244.1.5" })}, "10.244.1.5", ""},
		{"twice", "1.36", []*discoveryv1.EndpointSlice{one(), slice("web-2", "10.244.1.5 node-a")}, "10.244.1.5", NoteEndpointTwice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inputOf(proxy(tt.version), service())
			in.Slices = tt.slices
			got := Compute(in)
			if a := addrs(got.Ports[0], got.Ports[0].Cluster); a != tt.want {
				t.Errorf("got %q, want %q", a, tt.want)
			}
			want := map[NoteKind]int{}
			if tt.note != "" {
				want[tt.note] = 1
			}
			if diff := cmp.Diff(want, kinds(got.Notes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDuplicates says which copy of an address:port counts. Slices are read in the order of their names.
func TestDuplicates(t *testing.T) {
	tests := []struct {
		version       string
		first, second string
		want          string // the slice whose copy counts
	}{
		{"1.35", "10.0.0.1 node-b", "10.0.0.1 node-c", "a"},
		{"1.35", "10.0.0.1 node-b", "10.0.0.1 node-a", "b"},         // a local copy replaces
		{"1.35", "10.0.0.1 node-a", "10.0.0.1 node-b", "a"},         // and is not replaced
		{"1.35", "10.0.0.1 node-b leaving", "10.0.0.1 node-b", "a"}, // whatever the conditions
		{"1.35", "10.0.0.1 node-b", "10.0.0.1 node-a leaving", "b"}, // even if it is on its way out
		{"1.36", "10.0.0.1 node-b leaving", "10.0.0.1 node-b", "b"}, // one that stays replaces
		{"1.36", "10.0.0.1 node-b", "10.0.0.1 node-a leaving", "a"}, // one that goes does not
		{"1.36", "10.0.0.1 node-b leaving", "10.0.0.1 node-a gone", "a"},
		{"1.20", "10.0.0.1 node-a notready", "10.0.0.1 node-b", "b"}, // not kept at all up to 1.20
		{"1.20", "10.0.0.1 node-b", "10.0.0.1 node-a notready", "a"},
		{"1.21", "10.0.0.1 node-a notready", "10.0.0.1 node-b", "a"},
	}
	for _, tt := range tests {
		in := inputOf(proxy(tt.version), service())
		in.Slices = []*discoveryv1.EndpointSlice{slice("b", tt.second), slice("a", tt.first)}
		sp := Compute(in).Ports[0]
		if len(sp.Endpoints) != 1 || sp.Endpoints[0].Slice != tt.want {
			t.Errorf("%s: %q, %q: got %+v, want the one of slice %s", tt.version, tt.first, tt.second, sp.Endpoints, tt.want)
		}
	}
}

// The same address with two ports is two endpoints.
func TestSameAddressTwoPorts(t *testing.T) {
	other := slice("web-2", "10.244.1.5 node-a")
	other.Ports[0].Port = ptr(int32(8081))
	in := inputOf(proxy("1.36"), service(), "10.244.1.5 node-a")
	in.Slices = append(in.Slices, other)
	got := Compute(in)
	if n := len(got.Ports[0].Cluster); n != 2 || len(got.Notes) != 0 {
		t.Errorf("got %d endpoints, notes %+v", n, got.Notes)
	}
}

func TestEndpointFields(t *testing.T) {
	s := slice("web-1", "10.244.1.5 node-a zone=zone-a forzone=zone-a,zone-b fornode=node-a")
	s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.2.6"}, DeprecatedTopology: map[string]string{
		corev1.LabelHostname: "node-a", corev1.LabelTopologyZone: "zone-b"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "x"}})
	in := inputOf(proxy("1.36"), service())
	in.Slices = []*discoveryv1.EndpointSlice{s}
	in.Evidence = func(obj any) Evidence {
		if obj == any(s) {
			return Evidence{File: "objects.yaml", Line: 7}
		}
		return Evidence{}
	}
	want := []Endpoint{
		{Port: 8080, Ready: true, Serving: true, Local: true, NodeName: "node-a", Zone: "zone-a", Pod: "shop/web-1",
			HintZones: []string{"zone-a", "zone-b"}, HintNodes: []string{"node-a"}, Slice: "web-1", Evidence: Evidence{File: "objects.yaml", Line: 7}},
		{Port: 8080, Ready: true, Serving: true, Zone: "zone-b", Slice: "web-1", Evidence: Evidence{File: "objects.yaml", Line: 7}},
	}
	if diff := cmp.Diff(want, Compute(in).Ports[0].Endpoints, cmpopts.IgnoreFields(Endpoint{}, "Addr")); diff != "" {
		t.Error(diff)
	}
	in.Proxy = proxy("1.21") // the hostname of the topology stood for the node
	if e := Compute(in).Ports[0].Endpoints[1]; !e.Local || e.NodeName != "node-a" {
		t.Errorf("1.21: %+v", e)
	}
}

func TestEndpointSource(t *testing.T) {
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Subsets: []corev1.EndpointSubset{{
		Addresses:         []corev1.EndpointAddress{{IP: "10.244.9.1", NodeName: ptr("node-a")}, {IP: "no address"}, {IP: "fd00::1"}},
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.244.9.2"}},
		Ports:             []corev1.EndpointPort{{Name: "http", Port: 8080}, {Name: "other", Port: 9}},
	}}}
	tests := []struct {
		name              string
		version           string
		slices, endpoints bool
		slicesRead        bool
		want              string
		note              NoteKind
		wantResultUnknown bool
	}{
		{"1.19 reads slices", "1.19", true, true, true, "10.244.1.5", "", false},
		{"1.18 reads Endpoints", "1.18", true, true, true, "10.244.9.1", NoteUnreadableAddress, false},
		{"1.18 without Endpoints", "1.18", true, false, true, "10.244.1.5", NoteSlicesAsSource, false},
		{"no slices in the evidence", "1.36", false, true, false, "10.244.9.1", NoteEndpointsAsSource, false},
		{"slices asked for, none there", "1.36", false, true, true, "", "", false},
		{"nothing in the evidence", "1.36", false, false, false, "", NoteNoEndpointSource, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inputOf(proxy(tt.version), service(), "10.244.1.5 node-a")
			in.SlicesRead = tt.slicesRead
			if !tt.slices {
				in.Slices = nil
			}
			if tt.endpoints {
				in.Endpoints = []*corev1.Endpoints{endpoints}
			}
			got := Compute(in)
			sp := got.Ports[0]
			if a := addrs(sp, sp.Cluster); a != tt.want {
				t.Errorf("got %q, want %q", a, tt.want)
			}
			if tt.note != "" && kinds(got.Notes)[tt.note] != 1 {
				t.Errorf("no note %s: %+v", tt.note, got.Notes)
			}
			if unknown := sp.Intend(sp.Frontends[0], localPod, in.Proxy).Result == "unknown"; unknown != tt.wantResultUnknown {
				t.Errorf("result unknown is %t", unknown)
			}
		})
	}
}

// Where rules give the version as a range, the Services for which its ends choose differently are named.
func TestVersionMatters(t *testing.T) {
	p := proxy("1.25")
	p.VersionFromRules = true
	in := inputOf(p, service(), "10.244.1.5 node-a leaving")
	if got := Compute(in); kinds(got.Notes)[NoteVersionMatters] != 1 {
		t.Errorf("no note: %+v", got.Notes)
	}
	in.Slices = []*discoveryv1.EndpointSlice{slice("web-1", "10.244.1.5 node-a")}
	if got := Compute(in); len(got.Notes) != 0 {
		t.Errorf("notes %+v", got.Notes)
	}
}
