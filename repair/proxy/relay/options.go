package relay

import (
	"net/netip"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
)

// Options are what stays the same while a relay runs. Zero values stand for what is said of each.
type Options struct {
	// Loops is the number of event loops; 0: one for each CPU that the process may use, at most 8.
	Loops int
	// MaxConnections bounds the TCP connections and, apart from those, the UDP sessions of all Services; 0: what the limit
	// of open files allows (see Relay.Limits). A connection beyond it is reset, it does not wait.
	MaxConnections int
	// MaxPerService bounds those of one Service port in one family; 0: no bound of its own.
	MaxPerService int
	// ConnectTimeout is how long a backend may take to accept a connection before the next one is tried; 0: 2 s.
	ConnectTimeout time.Duration
	// Attempts is how many backends are tried for one connection; 0: 4.
	Attempts int
	// IdleTCP is after how long a connection without any data ends, HalfClosedTCP the same where one side has ended its
	// part; 0: 24 h and 1 h, what kube-proxy sets for connection tracking. The ends are asked by keep-alive probes
	// before: a peer that is gone is noticed within some minutes.
	IdleTCP, HalfClosedTCP time.Duration
	// IdleUDP is after how long a session ends in which both sides have sent, UnansweredUDP the same where the backend has
	// not; 0: 120 s and 30 s, what the kernel's connection tracking has for streams and for single packets.
	IdleUDP, UnansweredUDP time.Duration
	// Header says which PROXY protocol header is sent to the backends of a service port; nil: none. TCP only.
	Header func(*intent.ServicePort) HeaderVersion
	// Reach is how packets to addresses get here that are not the node's own.
	Reach Reach
	// Log is told what a person ought to know, one line each, without a newline; nil: nobody. It is called from any thread
	// and must not block.
	Log func(string)
}

// The defaults of Options.
const (
	maxLoops       = 8
	connectTimeout = 2 * time.Second
	attempts       = 4
	idleTCP        = 24 * time.Hour
	halfClosedTCP  = time.Hour
	idleUDP        = 120 * time.Second
	unansweredUDP  = 30 * time.Second
)

// withDefaults fills in what is zero, but for what depends on the machine.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.ConnectTimeout, connectTimeout)
	set(&o.IdleTCP, idleTCP)
	set(&o.HalfClosedTCP, halfClosedTCP)
	set(&o.IdleUDP, idleUDP)
	set(&o.UnansweredUDP, unansweredUDP)
	if o.Attempts <= 0 {
		o.Attempts = attempts
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return o
}

// Want is what a relay is to serve from now on.
type Want struct {
	// Ports are the service ports, each with its frontends. They are not changed and must not change afterwards.
	Ports []*intent.ServicePort
	// Around says who the clients are.
	Around Around
	// Extra are further addresses on which a service port is served, as if they were its cluster IP.
	Extra []Extra
}

// Extra is an address of a relay's own for a service port.
type Extra struct {
	Listen netip.AddrPort
	Port   *intent.ServicePort
}

// Unserved is a frontend that is not served, and why.
type Unserved struct {
	// ServicePort is "namespace/name:port", Protocol TCP, UDP or SCTP.
	ServicePort, Protocol string
	Kind                  intent.FrontendKind
	Listen                netip.AddrPort
	Reason                string
}
