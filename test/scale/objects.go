package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Objects are the items of the API's lists for the cluster of IPTablesSave, by resource: "nodes", "services" and
// "endpointslices", each as the API server writes it into an answer, managed fields included.
func Objects(services, endpoints int) map[string][]json.RawMessage {
	out := make(map[string][]json.RawMessage)
	for n := range nodes(services, endpoints) {
		cidr := fmt.Sprintf("10.%d.%d.0/24", 128+n/250, n%250)
		out["nodes"] = append(out["nodes"], json.RawMessage(fmt.Sprintf(
			`{"metadata":{"name":"node-%d"},"spec":{"podCIDR":%q,"podCIDRs":[%q]},"status":{"addresses":[{"type":"InternalIP","address":"172.30.%d.%d"}]}}`,
			n+1, cidr, cidr, n/200, 11+n%200)))
	}
	const managed = `[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-05T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:clusterIP":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]`
	for i := range services {
		s := newService(i, endpoints)
		namespace, name := Service(i)
		out["services"] = append(out["services"], json.RawMessage(fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":%q,"uid":"00000000-0000-0000-0000-%012d","resourceVersion":"%d","creationTimestamp":"2026-01-05T10:00:00Z","labels":{"app":%q},"managedFields":%s},`+
				`"spec":{"ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":8080}],"selector":{"app":%q},"clusterIP":%q,"clusterIPs":[%q],"type":"ClusterIP","sessionAffinity":"None","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{}}}`,
			name, namespace, i, i, name, managed, name, s.addr, s.addr)))
		var list []string
		for j, e := range s.endpoints {
			list = append(list, fmt.Sprintf(
				`{"addresses":[%q],"conditions":{"ready":true,"serving":true,"terminating":false},"targetRef":{"kind":"Pod","namespace":%q,"name":"%s-%d","uid":"00000000-0000-0000-0001-%012d"},"nodeName":"node-%d","zone":"west"}`,
				e.addr, namespace, name, j, i*endpoints+j, e.node+1))
		}
		out["endpointslices"] = append(out["endpointslices"], json.RawMessage(fmt.Sprintf(
			`{"metadata":{"name":"%s-abcde","generateName":"%s-","namespace":%q,"uid":"00000000-0000-0000-0002-%012d","resourceVersion":"%d","generation":3,"creationTimestamp":"2026-01-05T10:00:00Z","labels":{"app":%q,"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":%q},"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":%q,"uid":"00000000-0000-0000-0000-%012d","controller":true,"blockOwnerDeletion":true}],"managedFields":%s},"addressType":"IPv4","endpoints":[%s],"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`,
			name, name, namespace, i, i, name, name, name, i, managed, strings.Join(list, ","))))
	}
	return out
}

// Lists are the same as a collector writes them: one list for each resource, an object on each line, by file name.
func Lists(services, endpoints int) map[string][]byte {
	kinds := map[string][2]string{"nodes": {"v1", "Node"}, "services": {"v1", "Service"}, "endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"}}
	out := make(map[string][]byte)
	for resource, items := range Objects(services, endpoints) {
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{},"items":[`, kinds[resource][1], kinds[resource][0])
		for i, item := range items {
			if i > 0 {
				b.WriteString(",\n")
			}
			b.Write(item)
		}
		b.WriteString("]}\n")
		out[resource+".json"] = b.Bytes()
	}
	return out
}
