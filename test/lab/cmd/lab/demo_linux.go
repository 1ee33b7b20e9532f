package main

import (
	"context"
	_ "embed" // for the Services
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/test/lab"
)

//go:embed demo.yaml
var demoServices string

const demoText = `Services (lab shell -node n1 -- kubectl get services):
  web          10.96.0.80:80, NodePort 30080        web-1, web-2, web-3 over the nodes
  local        198.51.100.10:80, Local policy       web-1 alone
  dns          10.96.0.53:53 UDP                    dns-1, dns-2
  empty        10.96.0.99:80                        no endpoints
`

// addDemo puts a few Services in, one of a kind, that answer with one line of JSON.
func addDemo(ctx context.Context, l *lab.Lab) error {
	var web, dns []*lab.Pod
	for i := range 3 {
		p, err := addPod(ctx, l, fmt.Sprintf("web-%d", i+1), "web", i, corev1.ProtocolTCP, 8080)
		if err != nil {
			return err
		}
		web = append(web, p)
	}
	for i := range 2 {
		p, err := addPod(ctx, l, fmt.Sprintf("dns-%d", i+1), "dns", i+1, corev1.ProtocolUDP, 5353)
		if err != nil {
			return err
		}
		dns = append(dns, p)
	}
	err := l.Apply(ctx, demoServices,
		lab.EndpointSlices("default", "web", lab.Ports("TCP:8080"), lab.Ready(web...)...),
		lab.EndpointSlices("default", "local", lab.Ports("TCP:8080"), lab.Ready(web[0])...),
		lab.EndpointSlices("default", "dns", lab.Ports("UDP:5353"), lab.Ready(dns...)...))
	if err != nil {
		return err
	}
	return l.WaitSynced(ctx)
}

// addPod makes a pod with a server on one of the nodes, however many there are.
func addPod(ctx context.Context, l *lab.Lab, name, app string, i int, proto corev1.Protocol, port int) (*lab.Pod, error) {
	node := l.Nodes[i%len(l.Nodes)].Name
	p, err := l.AddPod(ctx, lab.PodSpec{Name: name, Node: node, Labels: map[string]string{"app": app}})
	if err != nil {
		return nil, err
	}
	_, err = p.Serve(proto, port)
	return p, err
}
