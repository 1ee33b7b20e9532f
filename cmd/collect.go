package cmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	"github.com/svcnet/svcnet/redact"
)

// collectFlags are what `collect` is asked.
type collectFlags struct {
	out      string
	pods     []string
	redact   bool
	keyFile  string
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
			"this node's pods as the API has them. With --redact names and addresses are others, the same ones " +
			"everywhere, so that the bundle still gives the same answers; what cannot be redacted is left out. " +
			"Together with -f it redacts a bundle or files that are there already.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # This machine, which is a node
  sudo %[1]s collect

  # Every node of the cluster, a bundle each
  %[1]s collect --all-nodes

  # Into a pipe
  ssh node-1 sudo svcnet collect -o - | %[1]s trace svc/web -n store -f -

  # To give away: a bundle that is there, with other names
  %[1]s collect -f node-1.tar.gz --redact -o redacted.tar.gz`, a.name),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.collect(c.Context(), f) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.out, "output", "o", "", "File to write, - for standard output, or with several nodes a folder (default svcnet-NODE-TIME.tar.gz)")
	fs.StringSliceVar(&f.pods, "pod", nil, "Also look into the network namespace of this pod of the node, NAMESPACE/NAME (repeatable)")
	fs.BoolVar(&f.redact, "redact", false, "Rename names and addresses consistently, and leave out what cannot be; the renaming is kept nowhere")
	fs.StringVar(&f.keyFile, "redact-key", "", "File with a secret of 16 bytes or more: bundles redacted with one secret have the same new names (default: a random one each time)")
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
	key, err := f.key()
	if err != nil {
		return err
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
		return a.collectNodes(ctx, f, key, nodes)
	}
	s, err := f.evidence.load(ctx, a)
	if err != nil {
		return err
	}
	return a.keep(ctx, f, key, s, func(node string) string { return cmp.Or(f.out, bundleName(node, time.Now().UTC())) })
}

// keep writes what was read into a bundle, with other names where that was asked for. name is the bundle's for a node's,
// which may be another one by then.
func (a *app) keep(ctx context.Context, f *collectFlags, key []byte, s *snapshot.Snapshot, name func(node string) string) (err error) {
	f.evidence.list(a, s)
	if f.redact {
		if s, err = redact.Redact(s, key); err != nil {
			return err
		}
	}
	file := name(s.Node)
	if err := a.bundle(ctx, s, file, !f.noReport); err != nil {
		return err
	}
	if file != f.out {
		if _, err := fmt.Fprintln(a.Out, file); err != nil {
			return fmt.Errorf("print the name of the bundle: %w", err)
		}
	}
	return a.collected(s, file)
}

// bundle writes a snapshot into a file, with what people read beside it where it is wanted.
func (a *app) bundle(ctx context.Context, s *snapshot.Snapshot, file string, readable bool) error {
	var texts []snapshot.Rendered
	if readable {
		var err error
		if texts, err = forPeople(ctx, s); err != nil {
			return err
		}
	}
	return a.writeBundle(s, file, texts)
}

// newBundle writes a snapshot into a file of the folder that the program runs in, which is not there yet, and returns its
// name.
func (a *app) newBundle(ctx context.Context, s *snapshot.Snapshot, now time.Time) (string, error) {
	first := bundleName(s.Node, now.UTC())
	name := first
	for n := 2; ; n++ {
		// The name is taken first: the bundle then replaces an empty file of ours, and nobody else's.
		out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = out.Close() // nothing was written
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("save a bundle: %w (start the program in a folder that can be written to)", err)
		}
		name = fmt.Sprintf("%s-%d.tar.gz", strings.TrimSuffix(first, ".tar.gz"), n)
	}
	if err := a.bundle(ctx, s, name, true); err != nil {
		_ = os.Remove(name)
		return "", err
	}
	return name, nil
}

// onlyOne refuses to make one bundle of several.
func onlyOne(many []snapshot.Bundle) error {
	if many == nil {
		return nil
	}
	return usage("-f names %d bundles, and a bundle is of one node: give one", len(many))
}

// collectNodes writes a bundle for every node into a folder. What one node lacks is no reason to give up the others.
func (a *app) collectNodes(ctx context.Context, f *collectFlags, key []byte, nodes *readings) error {
	if f.out == "-" {
		return usage("-o -: several nodes are several bundles: name a folder with -o, or one node with --node")
	}
	if info, err := os.Stat(f.out); f.out != "" && (err != nil || !info.IsDir()) {
		return usage("-o %s: several nodes are several bundles: name a folder that is there", f.out)
	}
	now := time.Now().UTC()
	written := 0
	var failed, lacking error
	for n := range nodes.all {
		err := n.err
		if err == nil {
			err = a.keep(ctx, f, key, n.snapshot, func(node string) string { return filepath.Join(f.out, bundleName(node, now)) })
		}
		// A bundle that lacks something is written all the same.
		var lacks *exitError
		if err == nil || errors.As(err, &lacks) {
			written, lacking, err = written+1, cmp.Or(lacking, err), nil
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

// key is the secret that new names are made with; nil where nothing is redacted.
func (f *collectFlags) key() ([]byte, error) {
	switch {
	case !f.redact && f.keyFile != "":
		return nil, usage("--redact-key is for --redact: add it, or leave out both")
	case !f.redact:
		return nil, nil
	case f.keyFile == "":
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		return key, nil
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, fmt.Errorf("read the secret %s: %w (make one: head -c 32 /dev/urandom > FILE)", f.keyFile, err)
	}
	if len(key) < redact.MinKey {
		return nil, fmt.Errorf("read the secret %s: it has %d bytes, which is too few to hide anything (make one: head -c 32 /dev/urandom > FILE)", f.keyFile, len(key))
	}
	return key, nil
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
