package relay

import "sync/atomic"

// counts are what is counted of one service port. Loops write them without a lock; of bytes they keep their own until a
// connection ends or a while has passed, so that loops do not fight for a line of memory with every packet.
type counts struct {
	// active are connections, or sessions, that are open now; opened all that were begun.
	active, opened atomic.Int64
	// toBackends and toClients are bytes, without headers of any protocol.
	toBackends, toClients atomic.Uint64
	// packets of UDP, both ways.
	datagramsToBackends, datagramsToClients atomic.Uint64
	// refused by reason.
	refused [refusals]atomic.Uint64
	// retried are attempts at another backend after one that failed.
	retried atomic.Uint64
	// reset are connections that one of the ends broke off.
	reset atomic.Uint64
}

// refusal is why a client got no backend.
type refusal int

const (
	// refusedByPolicy: kube-proxy would have rejected or dropped it.
	refusedByPolicy refusal = iota
	// refusedOverLimit: too many connections of all Services, or of this one.
	refusedOverLimit
	// refusedNoBackend: no backend accepted the connection.
	refusedNoBackend
	// refusedNoSocket: the process or the machine has no more files or memory for sockets.
	refusedNoSocket
	refusals
)

// refusalNames are the values of the label reason.
var refusalNames = [refusals]string{"policy", "limit", "no-backend", "no-socket"}
