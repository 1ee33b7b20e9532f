package lab

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Endpoint is a pod as the backend of a Service, with the conditions that the EndpointSlice shall show.
type Endpoint struct {
	Pod                         *Pod
	Ready, Serving, Terminating bool
	Zone                        string
	// ForZones and ForNodes are hints of topology-aware routing.
	ForZones, ForNodes []string
}

// Ready makes healthy endpoints of pods.
func Ready(pods ...*Pod) []Endpoint {
	var out []Endpoint
	for _, p := range pods {
		out = append(out, Endpoint{Pod: p, Ready: true, Serving: true})
	}
	return out
}

// Terminating makes endpoints of pods that are going and still answer.
func Terminating(pods ...*Pod) []Endpoint {
	var out []Endpoint
	for _, p := range pods {
		out = append(out, Endpoint{Pod: p, Serving: true, Terminating: true})
	}
	return out
}

// Ports reads ports of endpoints, "TCP:8080" each, or "web=TCP:8080" for the endpoints of a named Service port. It
// panics on anything else: they are constants of a test.
func Ports(specs ...string) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, spec := range specs {
		name, rest, named := strings.Cut(spec, "=")
		if !named {
			name, rest = "", spec
		}
		proto, number, _ := strings.Cut(rest, ":")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			panic(fmt.Sprintf("port %q is not NAME=PROTOCOL:NUMBER: %v", spec, err))
		}
		out = append(out, discoveryv1.EndpointPort{
			Name: new(name), Protocol: new(corev1.Protocol(proto)), Port: new(int32(port)),
		})
	}
	return out
}

// EndpointSlices are what the controller would write for a Service with these endpoints: one slice a family, named
// for the Service. No endpoints make empty slices, so that applying them takes earlier ones away.
func EndpointSlices(namespace, service string, ports []discoveryv1.EndpointPort, endpoints ...Endpoint) []*discoveryv1.EndpointSlice {
	v4 := EndpointSlice(namespace, service, service+"-ipv4", discoveryv1.AddressTypeIPv4, ports, endpoints...)
	v6 := EndpointSlice(namespace, service, service+"-ipv6", discoveryv1.AddressTypeIPv6, ports, endpoints...)
	return []*discoveryv1.EndpointSlice{v4, v6}
}

// EndpointSlice is one slice of one family under a name of its own, for Services whose endpoints are spread over
// several.
func EndpointSlice(namespace, service, name string, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, endpoints ...Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports:       ports,
		Endpoints:   []discoveryv1.Endpoint{}, // required, even when there are none
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, e.in(family))
	}
	return s
}

func (e Endpoint) in(family discoveryv1.AddressType) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  []string{e.Pod.Addr(family == discoveryv1.AddressTypeIPv6).String()},
		NodeName:   new(e.Pod.Node.Name),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name},
		Conditions: discoveryv1.EndpointConditions{Ready: new(e.Ready), Serving: new(e.Serving), Terminating: new(e.Terminating)},
	}
	if e.Zone != "" {
		out.Zone = new(e.Zone)
	}
	if len(e.ForZones)+len(e.ForNodes) > 0 {
		out.Hints = &discoveryv1.EndpointHints{}
		for _, z := range e.ForZones {
			out.Hints.ForZones = append(out.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		for _, n := range e.ForNodes {
			out.Hints.ForNodes = append(out.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
	}
	return out
}
