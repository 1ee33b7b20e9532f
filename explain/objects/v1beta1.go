package objects

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
)

// fromV1beta1 converts a slice of discovery.k8s.io/v1beta1 (served by Kubernetes 1.17 to 1.24). Its
// topology map became the fields nodeName and zone; nodeName exists beside the map since 1.20 and wins.
func fromV1beta1(in *discoveryv1beta1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta:    in.TypeMeta,
		ObjectMeta:  in.ObjectMeta,
		AddressType: discoveryv1.AddressType(in.AddressType),
	}
	out.APIVersion = discoveryv1.SchemeGroupVersion.String()
	for _, p := range in.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
	}
	for _, e := range in.Endpoints {
		to := discoveryv1.Endpoint{
			Addresses:  e.Addresses,
			Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating},
			Hostname:   e.Hostname,
			TargetRef:  e.TargetRef,
			NodeName:   e.NodeName,
		}
		if host, ok := e.Topology[corev1.LabelHostname]; ok && to.NodeName == nil {
			to.NodeName = &host
		}
		if zone, ok := e.Topology[corev1.LabelTopologyZone]; ok {
			to.Zone = &zone
		}
		if e.Hints != nil {
			to.Hints = &discoveryv1.EndpointHints{}
			for _, z := range e.Hints.ForZones {
				to.Hints.ForZones = append(to.Hints.ForZones, discoveryv1.ForZone{Name: z.Name})
			}
		}
		out.Endpoints = append(out.Endpoints, to)
	}
	return out
}
