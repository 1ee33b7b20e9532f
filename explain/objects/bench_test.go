package objects

import (
	"bytes"
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"
)

// manyObjects is a list of so many Services and as many slices of five endpoints each, as kubectl prints
// it in JSON.
func manyObjects(services int) []byte {
	var b bytes.Buffer
	b.WriteString("{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n")
	for i := range services {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"creationTimestamp": "2026-01-05T10:00:00Z", "labels": {"app": "app-%[1]d"}, "name": "svc-%[1]d", "namespace": "load", "resourceVersion": "%[1]d", "uid": "00000000-0000-0000-0000-%012[1]d"},
            "spec": {"clusterIP": "10.%[2]d.%[3]d.%[4]d", "clusterIPs": ["10.%[2]d.%[3]d.%[4]d"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}], "selector": {"app": "app-%[1]d"}, "sessionAffinity": "None", "type": "ClusterIP"},
            "status": {"loadBalancer": {}}
        },
        {
            "addressType": "IPv4",
            "apiVersion": "discovery.k8s.io/v1",
            "endpoints": [`, i, 96+i>>16, i>>8&255, i&255)
		for e := range 5 {
			if e > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `{"addresses": ["10.244.%d.%d"], "conditions": {"ready": true, "serving": true, "terminating": false}, "nodeName": "node-%d", "targetRef": {"kind": "Pod", "name": "app-%d-%d", "namespace": "load"}, "zone": "zone-a"}`, i>>8&255, i&255, e, i, e)
		}
		fmt.Fprintf(&b, `],
            "kind": "EndpointSlice",
            "metadata": {"labels": {"kubernetes.io/service-name": "svc-%[1]d"}, "name": "svc-%[1]d-x", "namespace": "load", "resourceVersion": "%[1]d"},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]
        }`, i)
	}
	b.WriteString("\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\"resourceVersion\": \"\"}\n}\n")
	return b.Bytes()
}

func BenchmarkDecodeJSON(b *testing.B) {
	data := manyObjects(10000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		set := &Set{}
		if p := Decode(set, data, "f"); len(p) > 0 || len(set.Services) != 10000 || len(set.EndpointSlices) != 10000 {
			b.Fatal(p, len(set.Services), len(set.EndpointSlices))
		}
		set.Sort()
	}
}

func BenchmarkDecodeYAML(b *testing.B) {
	data, err := yaml.JSONToYAML(manyObjects(500))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		set := &Set{}
		if p := Decode(set, data, "f"); len(p) > 0 || len(set.Services) != 500 {
			b.Fatal(p)
		}
	}
}
