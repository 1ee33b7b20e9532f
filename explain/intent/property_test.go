package intent

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/traits"
)

// randomInput makes odd but possible objects.
func randomInput(r *rand.Rand) Input {
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	coin := func(n int) bool { return r.IntN(n) == 0 }
	p := proxy(pick("1.14", "1.18", "1.19", "1.20", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.29", "1.30", "1.33", "1.34", "1.36", ""))
	p.Mode = pick("iptables", "iptables", "nftables", "ipvs", "", "cilium")
	p.LocalMode = pick("ClusterCIDR", "-", "", "BridgeInterface")
	p.MasqueradeAll, p.LocalhostNodePorts = coin(5), coin(2)
	if coin(4) {
		p.VersionFromRules, p.Newest = true, version(pick("1.24", "1.31", ""))
	}
	in := Input{Proxy: p, SlicesRead: !coin(10), Node: nodeA(), NodeAddrs: []netip.Addr{netip.MustParseAddr("192.168.10.11"), netip.MustParseAddr("fd00:192::11")}}
	if coin(6) {
		in.Node = nil
	}
	for i := range r.IntN(4) {
		svc := service()
		svc.Name = fmt.Sprintf("web-%d", i)
		svc.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.0.%d", i), fmt.Sprintf("fd00:96::%d", i)}[:1+r.IntN(2)]
		if coin(3) {
			svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[len(svc.Spec.ClusterIPs)-1:]
		}
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		if coin(2) {
			loadBalancer(svc)
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, pick("2001:db8::9", "192.168.10.11", "203.0.113.10", "x"))
		}
		if coin(2) {
			etpLocal(svc)
		}
		if coin(2) {
			itpLocal(svc)
		}
		if coin(3) {
			svc.Spec.LoadBalancerSourceRanges = []string{pick("203.0.113.0/24", "0.0.0.0/0", "2001:db8::/32", "192.168.10.0/24"), pick("10.0.0.0/8", "x")}
		}
		in.Services = append(in.Services, svc)
	}
	for i := range r.IntN(6) {
		var eps []string
		for range r.IntN(5) {
			addr := fmt.Sprintf("10.244.%d.%d", r.IntN(3), r.IntN(4))
			if i%2 == 1 {
				addr = fmt.Sprintf("fd00:10:244:%d::%d", r.IntN(3), r.IntN(4))
			}
			eps = append(eps, fmt.Sprintf("%s %s %s forzone=%s", addr, pick("node-a", "node-b"), pick("notready", "leaving", "gone", "zone=zone-a"), pick("zone-a", "zone-b")))
		}
		s := slice(fmt.Sprintf("s-%d", i), eps...)
		s.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("web-%d", r.IntN(4))
		in.Slices = append(in.Slices, s)
	}
	r.Shuffle(len(in.Slices), reflect.Swapper(in.Slices))
	r.Shuffle(len(in.Services), reflect.Swapper(in.Services))
	return in
}

// TestProperties holds for whatever objects, versions and modes.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		in := randomInput(r)
		plan := Compute(in)
		for _, sp := range plan.Ports {
			checkLists(t, sp)
			for _, f := range sp.Frontends {
				if (f.Addr.Is4() && sp.Family != 4) || (f.Addr.Is6() && sp.Family != 6) {
					t.Errorf("%s: frontend %s in family %d", sp.Key(), f.Addr, sp.Family)
				}
				for _, c := range []Client{localPod, unseen(localPod), hairpin, remotePod, theNode, remoteNode, outsider, localhost, {Class: External}} {
					out := sp.Intend(f, c, in.Proxy)
					checkOutcome(t, sp, out)
					if out.Alternative != nil {
						checkOutcome(t, sp, *out.Alternative)
						if out.Alternative.Condition == "" {
							t.Errorf("an alternative without a condition: %+v", out)
						}
					}
				}
			}
		}
		// The order in which objects are given does not matter.
		again := in
		again.Services, again.Slices = slices.Clone(in.Services), slices.Clone(in.Slices)
		slices.Reverse(again.Services)
		slices.Reverse(again.Slices)
		if !reflect.DeepEqual(plan, Compute(again)) {
			t.Fatalf("the order of objects changes the plan")
		}
	}
}

func checkLists(t *testing.T, sp *ServicePort) {
	t.Helper()
	for i, e := range sp.Endpoints {
		if family(e.Addr) != sp.Family {
			t.Errorf("%s: endpoint %s in family %d", sp.Key(), e, sp.Family)
		}
		if i > 0 && sp.Endpoints[i-1].String() >= e.String() {
			t.Errorf("%s: %s before %s", sp.Key(), sp.Endpoints[i-1], e)
		}
	}
	for _, list := range [][]int{sp.Cluster, sp.Local, sp.Usable} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("%s: list %v", sp.Key(), list)
		}
		for _, i := range list {
			if i < 0 || i >= len(sp.Endpoints) || !sp.Endpoints[i].Ready && !leaving(&sp.Endpoints[i]) {
				t.Errorf("%s: %d is no usable endpoint of %+v", sp.Key(), i, sp.Endpoints)
			}
		}
	}
	for _, i := range sp.Local {
		if !sp.Endpoints[i].Local {
			t.Errorf("%s: %s is not local", sp.Key(), sp.Endpoints[i])
		}
	}
	if (len(sp.Cluster) > 0 || len(sp.Local) > 0) && len(sp.Usable) == 0 {
		t.Errorf("%s: usable here but nowhere", sp.Key())
	}
}

func checkOutcome(t *testing.T, sp *ServicePort, o Outcome) {
	t.Helper()
	delivered := o.Result == resultDNAT || o.Result == resultIPVS
	if delivered != (len(o.Backends) > 0) || len(o.Masquerade) != len(o.Backends) || o.Because == "" {
		t.Errorf("%s: %+v", sp.Key(), o)
	}
	sum := 0.0
	for _, i := range o.Backends {
		sum += o.Share()
		if i < 0 || i >= len(sp.Endpoints) {
			t.Errorf("%s: backend %d of %d", sp.Key(), i, len(sp.Endpoints))
		}
	}
	if delivered && math.Abs(sum-1) > 1e-9 {
		t.Errorf("%s: shares sum to %g", sp.Key(), sum)
	}
}

// FuzzCompute takes any YAML for objects: nothing may panic, and what holds for all plans holds.
func FuzzCompute(f *testing.F) {
	for _, name := range []string{"07-slice-endpoint-with-two-addresses", "33-etp-local-wrong-node-name", "35-source-ranges-drop-pods", "65-ipv4-external-ip-in-ipv6-cluster"} {
		in := readObjects(f, "testdata/cases/"+name+"/objects.yaml")
		for i, svc := range in.Services {
			f.Add(marshal(f, svc), marshal(f, in.Slices[i%len(in.Slices)]), uint8(i), 20+i)
		}
	}
	f.Fuzz(func(t *testing.T, svcText, sliceText []byte, mode uint8, minor int) {
		var services []*corev1.Service
		var sliceList []*discoveryv1.EndpointSlice
		if decode(svcText, &services) != nil || decode(sliceText, &sliceList) != nil {
			return
		}
		p := proxy("")
		p.Mode = []string{"iptables", "nftables", "ipvs", "none"}[mode%4]
		p.Version = traits.Version{Major: 1, Minor: minor, Patch: -1}
		in := Input{Services: append(services, nil), Slices: append(sliceList, nil), Node: nodeA(), Proxy: p}
		plan := Compute(in)
		for _, sp := range plan.Ports {
			checkLists(t, sp)
			for _, fe := range sp.Frontends {
				checkOutcome(t, sp, sp.Intend(fe, outsider, p))
				checkOutcome(t, sp, sp.Intend(fe, hairpin, p))
			}
		}
	})
}

func marshal(tb testing.TB, obj any) []byte {
	tb.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestOpen plans all Services for both ends of a range of versions, where Compute plans those that depend on it.
func TestOpen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	said, spared := 0, 0
	for range 6000 {
		in := randomInput(r)
		if in.Proxy.Version.Minor == 0 || in.Proxy.Mode == "cilium" {
			continue
		}
		in.Proxy.VersionFromRules, in.Proxy.Newest = true, version([]string{"1.24", "1.31", "1.36", ""}[r.IntN(4)])
		for _, s := range in.Slices {
			for i := range s.Endpoints {
				if r.IntN(3) > 0 {
					s.Endpoints[i].Hints = nil
				}
			}
		}
		low, high := releases(in.Proxy)
		plan, open := compute(in, high, low)
		spared += len(in.Services) - len(open)
		older, _ := compute(in, low, high)
		plan.compare(older, in.Services, low, high)
		plan.sortNotes()
		got := Compute(in)
		if !reflect.DeepEqual(got.Notes, plan.Notes) {
			t.Fatalf("%s to %s, open %d of %d: %+v, want %+v", low, high, len(open), len(in.Services), got.Notes, plan.Notes)
		}
		said += kinds(got.Notes)[NoteVersionMatters]
	}
	if said < 100 || spared < 100 {
		t.Errorf("%d notes, %d Services spared: the objects show nothing", said, spared)
	}
}
