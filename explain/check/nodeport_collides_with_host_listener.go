package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// nodePortCollidesWithHostListener: a process of the node listens on a node port. The service rules take its
// connections, or refuse them when the Service has no endpoints.
var nodePortCollidesWithHostListener = Check{
	ID: "nodeport-collides-with-host-listener", Rests: onObjects, Severity: Error,
	Title: "node ports on which a process of the node listens",
	Node: func(n *Node) []report.Finding {
		if !n.Needs(Services) {
			return nil
		}
		var out []report.Finding
		var done []report.Object
		for _, sp := range n.Plan.Ports {
			if !hasNodePort(sp) || !n.Needs(Sockets) {
				continue
			}
			object := servicePortObject(sp)
			s := n.listener(sp)
			if s == nil || slices.Contains(done, object) {
				continue // a socket of both families meets a dual-stack Service twice
			}
			done = append(done, object)
			out = append(out, collision(sp, s, object))
		}
		return out
	},
}

func collision(sp *intent.ServicePort, s *host.Socket, object report.Object) report.Finding {
	fate := "its connections go to the Service's endpoints"
	if !sp.EndpointsUnknown && len(sp.Usable) == 0 {
		fate = "its connections are refused, because the Service has no endpoints"
	}
	at := fmt.Sprintf("%d/%s", sp.NodePort, sp.Protocol)
	return report.Finding{
		Object:   object,
		Subject:  at,
		Message:  fmt.Sprintf("%s listens on port %s of this node, which is the nodePort of %s: %s", processOf(s), at, sp.Key(), fate),
		Want:     "nothing but the service proxy on a node port",
		Got:      processOf(s),
		Evidence: []report.Evidence{HostEvidence("ss", s.Evidence), serviceEvidence(sp)},
		Causes:   []string{"the process was given a port of the node port range (30000-32767 unless kube-apiserver is told otherwise)"},
		Remedy:   "move one of the two: set another nodePort in the Service, or let the process listen outside of the node port range",
	}
}

func processOf(s *host.Socket) string {
	switch {
	case s.Process == "":
		return "a process that the capture does not name"
	case s.PID == 0:
		return s.Process
	}
	return fmt.Sprintf("%s (pid %d)", s.Process, s.PID)
}

// listener is the socket of another program than the proxy that would get a node port's connections.
func (n *Node) listener(sp *intent.ServicePort) *host.Socket {
	proto := dataplane.ProtocolNumber(sp.Protocol)
	for i := range n.Host.Sockets {
		s := &n.Host.Sockets[i]
		if s.Proto != proto || int(s.Port) != sp.NodePort || n.ofProxy(s) {
			continue
		}
		for _, f := range sp.Frontends {
			if f.Kind == intent.NodePort && s.Takes(f.Addr) != host.No {
				return s
			}
		}
	}
	return nil
}

// proxyProcesses are the names of processes that are kube-proxy or run it inside themselves, by their beginning.
var proxyProcesses = []string{"kube-proxy", "k3s", "kubelite", "hyperkube", "openshift-sdn", "cilium-agent"}

// ofProxy tells whether a socket is the service proxy's own, as far as is known: it listens on health check ports, and
// up to 1.23 on every node port.
func (n *Node) ofProxy(s *host.Socket) bool {
	for _, name := range proxyProcesses {
		if strings.HasPrefix(s.Process, name) {
			return true
		}
	}
	return s.Process == "" && (!n.opensNoPorts() || n.isHealthCheckPort(int(s.Port)))
}

// opensNoPorts tells whether the proxy is known to be of a version that does not open node ports: 1.24 and newer. It
// then is of none of the versions that the evidence leaves open.
func (n *Node) opensNoPorts() bool {
	return n.Proxy.Version != traits.Version{} && n.Proxy.Version.AtLeast(1, 24)
}

func (n *Node) isHealthCheckPort(port int) bool {
	for _, sp := range n.Plan.Ports {
		if sp.HealthCheckNodePort == port {
			return true
		}
	}
	return false
}

func hasNodePort(sp *intent.ServicePort) bool {
	for _, f := range sp.Frontends {
		if f.Kind == intent.NodePort {
			return true
		}
	}
	return false
}
