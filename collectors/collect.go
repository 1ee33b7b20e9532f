// Package collectors reads a live node and the API into a snapshot: one file per source, and one table of all
// sources.
//
// Reading changes nothing: no module is loaded, no table registered, no counter zeroed. What would do so is not
// asked before something that is already there (a file of /proc, a loaded module) says that it has an answer.
// Every source ends with a status; none of them fails the whole.
package collectors

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// Options say what to read and how.
type Options struct {
	// Node is the node's name; empty: the Node that kube-proxy is told to be, that has the host's name, or that has an
	// address of this machine; kube-proxy's word alone where no Nodes were read.
	Node string
	// API is where objects come from; nil: they are not read, and no evidence says anything of them.
	API *API
	// Root is where the node's root is mounted, for a svcnet that runs in a pod of the host's network: everything is
	// read and run below it; empty: /. See EnterRoot.
	Root string
	// Silent leaves kube-proxy's HTTP endpoints alone. Asking them moves packet counters of the loopback
	// interface's rules, and nothing else.
	Silent bool
	// Pods are pods of this node, as NAMESPACE/NAME, whose network namespaces are read too.
	Pods []string
	// Known are the pods of this node where they are known already. Else pods.json says them, if the API is read: their
	// addresses tell which namespace is whose.
	Known []*corev1.Pod
	// Kept holds what an earlier reading with the same Kept read of rules: it is taken again where the kernel says that
	// they did not change. Nil: everything is read.
	Kept *Kept
	// WithoutTables are names of tables of nftables that are read as if they were not there: svcnet's own proxy asks what
	// the node would do without it.
	WithoutTables []string
	// CommandTimeout bounds one command or one request of the loopback endpoints; 0: DefaultCommandTimeout.
	CommandTimeout time.Duration
}

// Kept is what is kept from one reading of a node to the next, for who reads again and again: rules, which take the
// longest to read, as long as nobody changes them. What the kernel changes in them by itself is then as it was when they
// were read: packet counters, and entries that packets put into sets. The zero value keeps nothing yet. Use it from
// one goroutine.
type Kept struct {
	sources map[string]keptSource
}

// keptSource is what was read of a source, and what was there when that began.
type keptSource struct {
	mark     string
	evidence []snapshot.Evidence
}

// Forget has the next reading read everything.
func (k *Kept) Forget() { k.sources = nil }

// DefaultCommandTimeout is enough for iptables-save of a node with 50,000 Services on a busy machine.
const DefaultCommandTimeout = 60 * time.Second

// evidence is a piece that was read.
func evidence(file string, f snapshot.Format, data []byte) snapshot.Evidence {
	e := snapshot.Evidence{File: file, Format: f, Data: data, Status: snapshot.OK}
	if len(data) == 0 {
		e.Status, e.Data = snapshot.Empty, nil
	}
	if s := snapshot.NotEvaluated(f); s != "" && e.Status == snapshot.OK {
		e.Status, e.Error = snapshot.Unsupported, s
	}
	return e
}

// absent is the answer that this node has no such thing; why becomes a note.
func absent(file string, f snapshot.Format, why string) snapshot.Evidence {
	return snapshot.Evidence{File: file, Format: f, Status: snapshot.Absent, Note: why}
}

// missed is a source that could not be looked at: err says in one line what was tried, why it failed and what
// to do next.
func missed(file string, f snapshot.Format, status snapshot.Status, err error) snapshot.Evidence {
	return snapshot.Evidence{File: file, Format: f, Status: status, Error: err.Error()}
}
