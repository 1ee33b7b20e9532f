package collectors

import (
	"context"
	"slices"
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
	// kept are sources of an earlier reading; nil: none are.
	kept *Kept
	// without are tables of nftables that are passed over, by name.
	without []string
}

// A source reads one subject of a place. It returns evidence for everything that it could have read: what was
// not there or could not be read has a status that says so.
type source struct {
	name string
	read func(ctx context.Context, p *place) []snapshot.Evidence
	// mark says what is there, in a text that is another one after every change; nil: nothing cheaper than reading does.
	mark func(p *place) (string, error)
}

// readOrKeep reads a source, or takes what was read of it before where nothing changed since.
func (p *place) readOrKeep(ctx context.Context, src source) []snapshot.Evidence {
	if p.kept == nil || src.mark == nil {
		return src.read(ctx, p)
	}
	mark, err := src.mark(p)
	if err != nil {
		return src.read(ctx, p)
	}
	if was, ok := p.kept.sources[src.name]; ok && was.mark == mark {
		return slices.Clone(was.evidence)
	}
	// What changes while it is read has another mark afterwards, and is read again the next time.
	out := src.read(ctx, p)
	if p.kept.sources == nil {
		p.kept.sources = make(map[string]keptSource)
	}
	delete(p.kept.sources, src.name)
	if !slices.ContainsFunc(out, func(e snapshot.Evidence) bool { return !e.Status.Answers() }) {
		p.kept.sources[src.name] = keptSource{mark, slices.Clone(out)}
	}
	return out
}
