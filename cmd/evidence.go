package cmd

import (
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/cmd/demo"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
)

// evidence holds the flags that say where evidence comes from.
type evidence struct {
	files     []string
	node      string
	demo      bool
	verbosity int
}

func (e *evidence) addFlags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&e.files, "filename", "f", nil, "File, folder or archive with evidence of one node, or - for standard input (repeatable)")
	c.Flags().StringVar(&e.node, "node", "", "Name of the node whose evidence this is, where nothing in it says so")
	c.Flags().BoolVar(&e.demo, "demo", false, "Use a recorded node that comes with the program")
	c.Flags().IntVarP(&e.verbosity, "v", "v", 0, "Level of detail on standard error; 1 lists what every file was taken for")
}

// load reads the evidence into a snapshot.
func (e *evidence) load(stdin io.Reader) (*snapshot.Snapshot, error) {
	s, err := e.read(stdin)
	if err != nil {
		return nil, err
	}
	if e.node != "" {
		s.Node = e.node
	}
	return s, nil
}

func (e *evidence) read(stdin io.Reader) (*snapshot.Snapshot, error) {
	switch {
	case e.demo && len(e.files) > 0:
		return nil, usage("--demo brings its own files: leave out -f, or --demo")
	case e.demo:
		files, err := demo.Node()
		if err != nil {
			return nil, fmt.Errorf("open the recorded node: %w", err)
		}
		return snapshot.LoadFS(files, "demo")
	case len(e.files) == 0:
		return nil, usage("nothing to read: name files with -f (iptables-save output, `kubectl get services,endpointslices,nodes -A -o yaml`, …) " +
			"or try --demo; reading a live node is not in this version yet")
	}
	return snapshot.Load(e.files, stdin)
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
