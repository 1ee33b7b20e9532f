// Package lab is the judge of the project: real Kubernetes nodes on one Linux machine. An etcd, a kube-apiserver
// and one kube-proxy a node run in network namespaces that a bridge joins; pods are network namespaces with
// servers that say who they are and whom they saw; a client stands outside. What a connection meets there is what
// the kernel does with the rules of a real kube-proxy, and what svcnet says is held against it.
//
// It needs root, Linux, iproute2 and iptables. It changes nothing of the machine: every rule, route and sysctl
// lies in namespaces of its own. The first call builds the binaries (minutes), from the go.mod files in the
// folders kubernetes, etcd and kubelet; they stay in the user's cache folder. Older versions of kube-proxy, for those who ask,
// come from the folders below proxies.
//
//	l, err := lab.Up(ctx, lab.Options{Name: fmt.Sprintf("t%d", os.Getpid())})
//	defer l.Down()
//	web1, err := l.AddPod(ctx, lab.PodSpec{Name: "web-1", Node: "n1", Labels: map[string]string{"app": "web"}})
//	_, err = web1.Serve(corev1.ProtocolTCP, 8080)
//	err = l.Apply(ctx, serviceYAML, lab.EndpointSlices("default", "web", lab.Ports("TCP:8080"), lab.Ready(web1)...))
//	err = l.WaitSynced(ctx)
//	answer, err := l.Dial(ctx, l.Client, corev1.ProtocolTCP, netip.MustParseAddrPort("10.96.0.20:80"), lab.DialOptions{})
//	// answer.Outcome == lab.Answered, answer.Pod == "web-1", answer.Client is the address that the pod saw
//
// # The network
//
// Everything is dual-stack. N counts the nodes from 1; namespaces are named for the lab, here "lab".
//
//	lab-cp         172.30.0.10  fd00:30::10   bridge br0; etcd, kube-apiserver on :6443; default gateway of all
//	lab-nN         172.30.0.1N  fd00:30::1N   eth0; kube-proxy; cni0 with 10.244.N.1/24, fd00:244:N::1/64
//	lab-client     172.30.0.200 fd00:30::200  eth0; routes below go over n1, see Client.RouteVia
//	lab-pod-NAME   10.244.N.x   fd00:244:N::x eth0, a port of its node's cni0, hairpin on
//
//	services       10.96.0.0/16  fd00:96::/112   ClusterIPs, known to the client too
//	external       198.51.100.0/24 fd00:1b::/64  for externalIPs and load balancers
//	cluster        10.244.0.0/16 fd00:244::/32   pods; every namespace has routes, so nobody needs masquerading
//
// The lab writes no firewall rule: all that a node holds is kube-proxy's. ICMP errors are not rate-limited, other
// than on a node at work, so that every refused connection is told so at once. Neighbour discovery of IPv6
// addresses (DAD) is off. No controller runs: EndpointSlices, Service.status.loadBalancer and Node.status are what
// was applied, so that any situation can be staged.
//
// # The exported API
//
//	Binaries(ctx) (Paths, error)                     build or find etcd, kube-apiserver, kube-proxy
//	KubeProxy(ctx, "1.29") (Proxy, error)            an older kube-proxy; (*Node).UseProxy
//	Up(ctx, Options) (*Lab, error), (*Lab).Down()    a Lab: Name, Dir, Nodes, Client, ControlPlane; Node(name)
//	DownLeftover(name), ReadState(name)              a lab of another process: clean up behind it, enter it
//
//	(*Lab).Apply(ctx, objs...)                       YAML, maps, k8s.io/api types, slices of these; status too
//	(*Lab).Replace, Patch, Delete, Get, Request(As)  the rest of the API; *APIError; Kubeconfig(user)
//	EndpointSlices, EndpointSlice, Ports             slices of a Service out of pods
//	Ready, Terminating, Endpoint                     pods as endpoints, with conditions, zones and hints
//	(*Lab).WaitSynced(ctx, nodes...)                 what was written before is now in the kernel
//
//	(*Node).StartProxy, StopProxy, SignalProxy       kube-proxy; ProxyRunning, ProxyPID, ProxyLog, ProxyConfig
//	(*Node).ConfigureProxy, Section                  its configuration at the next start
//	(*Node).Run, Env, Path, Get, Backend, Dir        commands and HTTP inside, with the node's iptables
//
//	(*Lab).Kubelets(ctx, images...)                  real nodes: containerd, kubelet, scheduler, controllers; Image, Busybox
//	(*Node).Inside(ctx, argv...)                     a command in the node's own namespaces; RestartAPIServer
//
//	(*Lab).AddPod(ctx, PodSpec), (*Pod).Remove       pods; SetHairpin, Interface, Addr
//	(*Pod).Serve(proto, port, families...), ServeAt  servers that answer with their name and the client's address
//	(*Lab).Dial, Open, Many                          from a Place (pod, node, client, control plane, namespace)
//	Answer, Outcome, Answers, DialOptions, Conn      what connections met
//	(*Client).RouteVia(ctx, node, prefixes...)       the node through which the client reaches Services
//	(*Namespace).Do, Run, Sysctl, IP                 anything else inside a namespace: place.Netns()
//
// A Service of the lab's own, svcnet-lab/sentinel, is on every node: WaitSynced changes it last and looks for the
// change in the kernel. The API server's default/kubernetes is there as well.
//
// The package must not import any other of this module: a judge knows nothing of the case.
package lab
