package collectors

import (
	"context"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// place is one network namespace as a source sees it: that of the thread that calls. Sources must therefore
// stay on that thread: no goroutines of their own, /proc/thread-self/net in place of /proc/net (which shows the
// namespace of the process), commands started by run, which inherit the thread's namespace.
type place struct {
	// dir stands before the names of files: "" for the node, "pods/NAMESPACE/NAME/" for a pod.
	dir string
	// root is the root that other threads must enter to see what this one sees; empty: the process's own.
	root string
	// timeout bounds one command.
	timeout time.Duration
	// kernel knows which parts of the kernel are there; shared by all places.
	kernel *kernelParts
}

// A source reads one subject of a place. It returns evidence for everything that it could have read: what was
// not there or could not be read has a status that says so.
type source struct {
	name string
	read func(ctx context.Context, p *place) []snapshot.Evidence
}
