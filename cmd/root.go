// Package cmd is the command line: one file per command, and one each for what all of them share: where
// evidence comes from, what the terminal is like, how documents are printed, and what the exit codes mean.
// It wires the other packages together and decides nothing about networking.
package cmd

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Streams are the three standard ones. Documents go to Out and nothing else does; everything said beside them
// goes to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what every command needs of the world outside.
type app struct {
	Streams
	env func(string) string
	// name is what the user typed to get here: "kubectl svcnet" or "svcnet".
	name string
	// began is true once a command's flags and arguments are accepted: errors after that are not of usage.
	began bool
	// closers undo what a command made, after it ended.
	closers []func() error
	undo    undoing
}

// Execute runs the command that args (with the program's name first) ask for and returns the exit code. It
// returns early when ctx is cancelled, once nothing is left to undo: commands only read, but for pods on nodes.
func Execute(ctx context.Context, args []string, s Streams, env func(string) string) int {
	a := &app{Streams: s, env: env, name: displayName(args)}
	done := make(chan int, 1)
	go func() { done <- a.run(ctx, args) }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		a.undo.wait()
		return exitInterrupted
	}
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	if len(args) > 0 {
		args = args[1:]
	}
	root.SetArgs(append([]string{}, args...))
	command, err := root.ExecuteContextC(ctx)
	for _, undo := range a.closers {
		if failed := undo(); failed != nil {
			a.complain(failed)
		}
	}
	return a.exit(command, err)
}

// displayName is what help calls the program: a kubectl plugin is on PATH as kubectl-svcnet and typed as
// "kubectl svcnet".
func displayName(args []string) string {
	if len(args) == 0 {
		return "svcnet"
	}
	base := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	if strings.HasPrefix(base, "kubectl-") {
		return "kubectl svcnet"
	}
	return "svcnet"
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "svcnet",
		Short: "Explain how a node forwards Service traffic",
		Long: "Explain how a Kubernetes node really forwards traffic for Services.\n\n" +
			a.name + " reads what the kernel holds, sets it beside what Services and EndpointSlices ask for, and " +
			"shows the path of a packet, the share of each backend, and every place where the two differ. " +
			"Looking changes nothing.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: a.name},
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.began = true
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.AddCommand(a.auditCommand(), a.cleanupCommand(), a.collectCommand(), a.diffCommand(), a.explainCommand(), a.proxyCommand(), a.repairCommand(), a.statusCommand(), a.traceCommand(), a.tuiCommand(), a.versionCommand(), a.waitCommand())
	a.completion(root)
	return root
}

// Tree is the command tree as `kubectl svcnet` shows it, for the reference that hack/reference makes of it. It is not
// there to be run.
func Tree() *cobra.Command {
	a := &app{env: func(string) string { return "" }, name: "kubectl svcnet"}
	return a.root()
}
