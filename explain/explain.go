// Package explain turns a snapshot into documents: it parses the evidence, walks packets, derives what
// the objects intend, and compares. It is the one entrance to its subpackages.
package explain

import (
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// TraceOptions select what a trace shows.
type TraceOptions struct {
	// Namespace and Service name the Service to trace; both empty with To.
	Namespace, Service string
	// Ports limits to these ports, by name or number; Via to these frontend kinds (lower case: clusterip,
	// nodeport, loadbalancer, externalip, healthcheck); From to these source classes. Nil: all.
	Ports, Via, From []string
	// FromPod is "namespace/name": the one client to trace from.
	FromPod string
	// To is "address:port/protocol" for one packet; FromAddr "address" or "address:port" is its source.
	To, FromAddr string
	// Origin is pod, node or external; empty: derived from the source address.
	Origin string
	// IncomingInterface and Mark describe the packet further; HasMark tells mark 0 from no mark.
	IncomingInterface string
	Mark              uint32
	HasMark           bool
}

// Trace answers one question about a Service or a packet.
//
// Errors: a UsageError for options that make no sense or name something that does not exist; any other
// error means that no document could be made. Evidence that is missing is no error: the document's
// Sources say so, and MissingSource reports it for the exit code.
func Trace(s *snapshot.Snapshot, o TraceOptions) (*report.Trace, error) { panic("not yet") }
