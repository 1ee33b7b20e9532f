package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/tui"
	"github.com/svcnet/svcnet/watch"
)

// tuiFlags are what `tui` is asked.
type tuiFlags struct {
	audit    auditFlags
	interval time.Duration
}

func (a *app) tuiCommand() *cobra.Command {
	f := &tuiFlags{audit: auditFlags{evidence: evidence{live: newLive()}}}
	f.audit.evidence.through.stay = podStays
	c := &cobra.Command{
		Use:   "tui",
		Short: "Look at a node, its Services and paths interactively",
		Long: "Look at a node on a screen: its Services with the clients and backends of each, the path of a packet with the share " +
			"of every backend, findings by cause with what to do, how several nodes compare, and what changes while you look. The " +
			"node is read again every --interval, or less often where that would take more than a fifth of a CPU, and never changed.\n\n" +
			"? shows the keys of the screen you are on, c copies the command that prints the same, s saves what was read as a bundle.\n\n" +
			"Where there is no terminal, audit prints the same. NO_COLOR takes the colours away; a locale that is not UTF-8 keeps " +
			"the screen within ASCII.\n\n" + exitStatus,
		Example: fmt.Sprintf(`  # This machine, which is a node
  sudo %[1]s tui

  # A recorded node, to see what this looks like
  %[1]s tui --demo

  # A node of the cluster, from a workstation; the pod there is deleted at the end
  %[1]s tui --node node-1

  # Bundles of several nodes: which ones are odd, and how
  %[1]s tui -f node-1.tar.gz -f node-2.tar.gz`, a.name),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			f.audit.namespaceSet = c.Flags().Changed("namespace")
			return a.tui(c.Context(), f, evidenceOf(c.Flags()))
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.audit.namespace, "namespace", "n", "default", "Only Services of this namespace")
	fs.Lookup("namespace").DefValue = "" // all of them, unless it is given
	fs.BoolVarP(&f.audit.all, "all-namespaces", "A", false, "Services of all namespaces, which is what happens when nothing else is asked for")
	fs.StringVarP(&f.audit.selector, "selector", "l", "", "Only Services with these labels, as kubectl takes them")
	fs.StringSliceVar(&f.audit.ignore, "ignore", nil, "Leave out a finding everywhere (ID) or for one Service (ID=NAMESPACE/NAME); repeatable")
	fs.DurationVar(&f.interval, "interval", watch.DefaultInterval, "The shortest time between two readings of a live node")
	f.audit.evidence.addFlags(c)
	mustCompleteFunc(c, "ignore", completeFindings)
	a.completeNodes(c, &f.audit.evidence)
	return c
}

// aboutServices are the flags of tui that do not say where evidence comes from.
var aboutServices = []string{"namespace", "all-namespaces", "selector", "ignore", "interval", "v", "help"}

// evidenceOf are the flags of a command line that say where evidence comes from, as a shell takes them.
func evidenceOf(fs *pflag.FlagSet) string {
	var words []string
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(aboutServices, f.Name) {
			return
		}
		name := "--" + f.Name
		if f.Name == "filename" {
			name = "-f"
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		for _, v := range values {
			switch {
			case f.NoOptDefVal == v:
				words = append(words, name)
			case f.NoOptDefVal != "":
				// What stands behind a space is no value of such a flag.
				words = append(words, name+"="+tui.ShellWord(v))
			default:
				words = append(words, name, tui.ShellWord(v))
			}
		}
	})
	return strings.Join(words, " ")
}

// tui shows the screen until the user has seen enough.
func (a *app) tui(ctx context.Context, f *tuiFlags, flags string) error {
	e := &f.audit.evidence
	in, out, err := a.console(e)
	if err != nil {
		return err
	}
	if in != a.In {
		defer func() { _ = in.Close() }() // it was read from
	}
	if f.interval < 100*time.Millisecond {
		return usage("--interval %s is too short: a tenth of a second at least", f.interval)
	}
	o, err := a.auditOptions(&f.audit, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	feed, leave, err := a.feed(ctx, e, o)
	if err != nil {
		return err
	}
	feed.Evidence, feed.Interval = flags, f.interval
	if feed.Live {
		// From one reading to the next most objects stay as they are.
		feed.Audit.Memory = &objects.Memory{}
	}
	err = a.show(ctx, feed, in, out)
	// What still reads a node ends, and pods are deleted, before the program does.
	cancel()
	err = errors.Join(err, leave())
	a.undo.wait()
	return err
}

// show has the terminal for the time that it runs: an interrupt waits until it is as it was.
func (a *app) show(ctx context.Context, feed *tui.Feed, in, out *os.File) error {
	done, ok := a.undo.begin()
	if !ok {
		return context.Canceled
	}
	defer done()
	// What client-go has to say would stand across the screen, which shows what goes wrong itself.
	klog.SetLogger(logr.Discard())
	return tui.Run(ctx, feed, lookOf(a.env), in, out)
}

// console is the terminal: where keys come from, and where the screen is. Keys come from the terminal itself where
// standard input is the evidence.
func (a *app) console(e *evidence) (in, out *os.File, err error) {
	piped := slices.Contains(e.files, "-")
	switch {
	case !isTerminal(a.Out) || a.env("TERM") == "dumb":
		return nil, nil, usage("tui needs a terminal, and standard output is none that it can draw on: `%s audit` prints the same as text", a.name)
	case isTerminal(a.In) && piped:
		return nil, nil, usage("-f - reads standard input, and that is the keyboard: pipe the evidence in, or name its file")
	case isTerminal(a.In):
		return a.In.(*os.File), a.Out.(*os.File), nil
	case !piped:
		return nil, nil, usage("tui needs a terminal, and standard input, where keys come from, is none: `%s audit` prints the same as text", a.name)
	}
	in, err = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, usage("-f - reads standard input, and there is no other keyboard: save the evidence, and name the file with -f")
	}
	return in, a.Out.(*os.File), nil
}
