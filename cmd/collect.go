package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// collectFlags are what `collect` is asked.
type collectFlags struct {
	out      string
	pods     []string
	noReport bool
	evidence evidence
}

func (a *app) collectCommand() *cobra.Command {
	f := &collectFlags{evidence: evidence{live: newLive()}}
	c := &cobra.Command{
		Use:   "collect",
		Short: "Write everything that is read of this node into a bundle",
		Long: "Write everything that is read of this node into a bundle: a gzipped tar archive of plain files, with a " +
			"manifest that says what became of each source. Given to -f it answers every question as the node did, " +
			"byte for byte. Beside the evidence it carries, for people and other programs, report.txt and report.json, which " +
			"are what audit says of it, nftables rules as text, and the version of this program; svcnet does not read those " +
			"back.\n\n" +
			"Without -o the name of the bundle is printed.\n\n" +
			"The bundle holds addresses, the names of objects and processes, and Services, endpoint slices, nodes and " +
			"this node's pods as the API has them. Nothing is left out or renamed.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # This machine, which is a node
  sudo %[1]s collect

  # Every node of the cluster, a bundle each
  %[1]s collect --all-nodes

  # Into a pipe
  ssh node-1 sudo svcnet collect -o - | %[1]s trace svc/web -n store -f -`, a.name),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.collect(c.Context(), f) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.out, "output", "o", "", "File to write, - for standard output, or with several nodes a folder (default svcnet-NODE-TIME.tar.gz)")
	fs.StringSliceVar(&f.pods, "pod", nil, "Also look into the network namespace of this pod of the node, NAMESPACE/NAME (repeatable)")
	fs.BoolVar(&f.noReport, "no-report", false, "Evidence only, without report.txt, report.json and rules as text")
	f.evidence.addFlags(c)
	a.completeNodes(c, &f.evidence)
	return c
}

// collect reads the node and writes the bundle.
func (a *app) collect(ctx context.Context, f *collectFlags) error {
	if f.evidence.offline() && !f.evidence.demo && isTerminal(a.Out) && f.out == "-" {
		return usage("a bundle is no text for a terminal: name a file with -o")
	}
	for _, p := range f.pods {
		if strings.Count(p, "/") != 1 {
			return usage("--pod %s: name a pod as NAMESPACE/NAME", p)
		}
	}
	f.evidence.pods = f.pods
	if many, err := f.evidence.bundles(); err != nil || many != nil {
		return errors.Join(err, onlyOne(many))
	}
	nodes, err := a.nodes(ctx, &f.evidence, nil)
	if err != nil {
		return err
	}
	if nodes != nil {
		return a.collectNodes(ctx, f, nodes)
	}
	s, err := f.evidence.load(ctx, a)
	if err != nil {
		return err
	}
	f.evidence.list(a, s)
	name := f.out
	if name == "" {
		name = bundleName(s.Node, time.Now().UTC())
	}
	if err := a.writeNode(ctx, f, s, name); err != nil {
		return err
	}
	if f.out == "" {
		if _, err := fmt.Fprintln(a.Out, name); err != nil {
			return fmt.Errorf("print the name of the bundle: %w", err)
		}
	}
	return a.collected(s, name)
}

// writeNode writes the bundle of one node, with what audit says of it unless only evidence is asked for.
func (a *app) writeNode(ctx context.Context, f *collectFlags, s *snapshot.Snapshot, name string) (err error) {
	var texts []snapshot.Rendered
	if !f.noReport {
		if texts, err = forPeople(ctx, s); err != nil {
			return err
		}
	}
	return a.writeBundle(s, name, texts)
}

// onlyOne refuses to make one bundle of several.
func onlyOne(many []snapshot.Bundle) error {
	if many == nil {
		return nil
	}
	return usage("-f names %d bundles, and a bundle is of one node: give one", len(many))
}

// collectNodes writes a bundle for every node into a folder. What one node lacks is no reason to give up the others.
func (a *app) collectNodes(ctx context.Context, f *collectFlags, nodes iter.Seq[nodeEvidence]) error {
	if f.out == "-" {
		return usage("-o -: several nodes are several bundles: name a folder with -o, or one node with --node")
	}
	if info, err := os.Stat(f.out); f.out != "" && (err != nil || !info.IsDir()) {
		return usage("-o %s: several nodes are several bundles: name a folder that is there", f.out)
	}
	now := time.Now().UTC()
	written := 0
	var failed, lacking error
	for n := range nodes {
		err := n.err
		if err == nil {
			f.evidence.list(a, n.snapshot)
			name := filepath.Join(f.out, bundleName(n.snapshot.Node, now))
			if err = a.writeNode(ctx, f, n.snapshot, name); err == nil {
				_, err = fmt.Fprintln(a.Out, name)
			}
			if err == nil {
				written++
				lacking = cmp.Or(lacking, a.collected(n.snapshot, name))
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = err
			a.complain(err)
		}
	}
	switch {
	case written == 0 && failed != nil:
		return &exitError{exitNoDocument}
	case failed != nil:
		return &exitError{exitMissing}
	}
	return lacking
}

// unsafe are characters that do not belong into a file's name.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func bundleName(node string, now time.Time) string {
	if node == "" {
		node = "node"
	}
	return "svcnet-" + unsafe.ReplaceAllString(node, "_") + "-" + now.Format("20060102T150405Z") + ".tar.gz"
}

// writeBundle writes to a file beside the one that is named and renames it: a bundle that is there is whole.
func (a *app) writeBundle(s *snapshot.Snapshot, name string, texts []snapshot.Rendered) (err error) {
	if name == "-" {
		return s.WriteBundle(a.Out, texts...)
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		// A pipe or a device takes the bytes as they come; a folder says so itself.
		out, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return writeError(name, err)
		}
		if err := errors.Join(s.WriteBundle(out, texts...), out.Close()); err != nil {
			return writeError(name, err)
		}
		return nil
	}
	// A bundle holds what only root may read.
	out, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return writeError(name, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	if err := errors.Join(s.WriteBundle(out, texts...), out.Close()); err != nil {
		return writeError(name, err)
	}
	if err := os.Rename(out.Name(), name); err != nil {
		return writeError(name, err)
	}
	return nil
}

func writeError(name string, err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("write %s: %w (name another file with -o)", name, err)
}

// collected says what was written and what is not in it, and returns the exit code as an error. A bundle that lacks
// nothing that a question needs is worth a word at a terminal only.
func (a *app) collected(s *snapshot.Snapshot, name string) error {
	var sources []report.Source
	for _, e := range s.Evidence {
		sources = append(sources, report.Source{Name: string(e.Format), Status: string(e.Status), File: e.File, Error: e.Error})
	}
	// What a trace of this bundle would lack. A source without a file was never looked for.
	lacks := slices.ContainsFunc(explain.MissingSources(sources), func(m report.Source) bool { return m.File != "" })
	if lacks || isTerminal(a.Err) {
		a.contents(s, name)
	}
	if lacks {
		return &exitError{exitMissing}
	}
	return nil
}

// contents lists what a bundle lacks.
func (a *app) contents(s *snapshot.Snapshot, name string) {
	if name != "-" {
		var size string
		if info, err := os.Stat(name); err == nil {
			size = fmt.Sprintf(", %d KiB", (info.Size()+1023)/1024)
		}
		a.note("%s: %d sources%s", name, len(s.Evidence), size)
	}
	for _, e := range s.Evidence {
		if !e.Status.Answers() && e.Status != snapshot.Unsupported {
			a.note("  %s: %s: %s", e.Status, e.File, e.Error)
		}
	}
}
