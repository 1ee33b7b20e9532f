package cmd

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/cmd/demo"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
)

// evidence holds the flags that say where evidence comes from.
type evidence struct {
	files     []string
	through   through
	demo      bool
	alsoLive  bool
	verbosity int
	live      live
	// first is this machine as it was read to find out whether it is a node; the next reading takes it.
	first *snapshot.Snapshot
	// reach is how the only node is read through the cluster; nil: it is not.
	reach *reach
	// pods are those whose network namespaces a live reading looks into, as NAMESPACE/NAME.
	pods []string
}

func (e *evidence) addFlags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&e.files, "filename", "f", nil, "File, folder or archive with evidence of a node, or - for standard input (repeatable: bundles of several nodes, or pieces of one node)")
	c.Flags().BoolVar(&e.demo, "demo", false, "Use a recorded node that comes with the program")
	c.Flags().BoolVar(&e.alsoLive, "live", false, "Read this machine beside the files of -f, whose objects stand in for the API's")
	e.live.addFlags(c)
	e.through.addFlags(c)
	c.Flags().IntVarP(&e.verbosity, "v", "v", 0, "Level of detail on standard error; 1 lists what every file was taken for")
}

// settle is how long a difference that a live node shows is given to go away: kube-proxy follows a change of objects
// within its minSyncPeriod, a second by default.
const settle = 1500 * time.Millisecond

// wait lets a live node settle.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
		return nil
	}
}

// load reads the evidence into a snapshot.
func (e *evidence) load(ctx context.Context, a *app) (*snapshot.Snapshot, error) {
	s, err := e.read(ctx, a)
	if err != nil {
		return nil, err
	}
	if node := e.node(); node != "" {
		s.Node = node
	}
	return s, nil
}

// node is the node whose evidence it is, where it is said; empty: it is not.
func (e *evidence) node() string {
	if len(e.through.names) == 1 {
		return e.through.names[0]
	}
	return ""
}

// offline tells whether files or the recorded node are read and nothing else.
func (e *evidence) offline() bool { return e.demo || len(e.files) > 0 && !e.alsoLive }

func (e *evidence) read(ctx context.Context, a *app) (*snapshot.Snapshot, error) {
	if flag := e.live.asked(); flag != "" && e.offline() {
		return nil, usage("%s is for reading a live node, and with -f or --demo nothing is read but files: leave it out, or add --live", flag)
	}
	switch {
	case e.reach != nil:
		return e.reach.one(ctx)
	case e.first != nil:
		s := e.first
		e.first = nil
		return s, nil
	case e.demo && (len(e.files) > 0 || e.alsoLive):
		return nil, usage("--demo brings its own files: leave out -f and --live, or --demo")
	case e.demo:
		files, err := demo.Node()
		if err != nil {
			return nil, fmt.Errorf("open the recorded node: %w", err)
		}
		return snapshot.LoadFS(files, "demo")
	case e.offline():
		return snapshot.Load(e.files, a.In)
	case len(e.files) == 0:
		return e.live.read(ctx, a, e.node(), e.pods, nil)
	}
	files, err := snapshot.Load(e.files, a.In)
	if err != nil {
		return nil, err
	}
	var known []*corev1.Pod
	if len(files.Of(snapshot.Objects)) > 0 {
		e.live.noAPI = true
		if len(e.pods) > 0 {
			for _, p := range decoded(files).Pods {
				known = append(known, p.Pod)
			}
		}
	}
	read, err := e.live.read(ctx, a, e.node(), e.pods, known)
	if err != nil {
		return nil, err
	}
	return merge(read, files)
}

// list says what every piece of evidence was taken for.
func (e *evidence) list(a *app, s *snapshot.Snapshot) {
	if e.verbosity < 1 {
		return
	}
	for _, p := range s.Evidence {
		format := string(p.Format)
		if p.Format == snapshot.Unrecognised {
			format = "not recognised"
		}
		line := p.File + ": " + format
		if p.Family != 0 {
			line += fmt.Sprintf(", IPv%d", p.Family)
		}
		if p.Backend != "" {
			line += ", " + p.Backend + " backend"
		}
		line += ": " + string(p.Status)
		if p.Error != "" {
			line += ": " + p.Error
		}
		a.note("%s", line)
	}
}

// decoded are the objects of a snapshot.
func decoded(s *snapshot.Snapshot) *objects.Set {
	set := &objects.Set{}
	for _, e := range s.Of(snapshot.Objects) {
		objects.Decode(set, e.Data, e.File)
	}
	set.Sort()
	return set
}

// namespacesOf are the namespaces in which objects, or comments of kube-proxy's rules, know a Service of
// this name, sorted.
func namespacesOf(s *snapshot.Snapshot, service string) []string {
	var out []string
	for _, o := range decoded(s).Services {
		if o.Name == service {
			out = append(out, o.Namespace)
		}
	}
	comment := regexp.MustCompile(`--comment "?([a-z0-9][-a-z0-9]*)/` + regexp.QuoteMeta(service) + `[:" ]`)
	for _, f := range []snapshot.Format{snapshot.IPTablesSave, snapshot.IPTablesRules} {
		for _, e := range s.Of(f) {
			for _, m := range comment.FindAllSubmatch(e.Data, -1) {
				out = append(out, string(m[1]))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
