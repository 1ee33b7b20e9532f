package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/plugin"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/proxy"
)

// cleanupFlags are what `cleanup` is asked.
type cleanupFlags struct {
	through through
	live    live
	runtime string
}

func (a *app) cleanupCommand() *cobra.Command {
	f := &cleanupFlags{live: newLive()}
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an interrupted svcnet left in the cluster",
		Long: "Delete the pods that read nodes, those of runs that still go on included. Each deletes itself when its node is " +
			"read, also after an interrupt; only a client that was killed leaves one, which ends by itself after a few " +
			"minutes and stays as an object until this, or the next run, deletes it.\n\n" +
			"On a node it also removes the tables of nftables that a fallback proxy left which was killed, and names runs of " +
			"repair that were interrupted in their middle, and how they are taken back.",
		Example: fmt.Sprintf("  %[1]s cleanup", a.name),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.cleanup(c.Context(), f) },
	}
	c.Flags().SortFlags = false
	f.through.addPlace(c, "", "Only pods of this namespace (default all)")
	c.Flags().StringVar(&f.runtime, "runtime-folder", proxy.RuntimeFolder, "Folder in which a fallback proxy of this node says that it runs")
	f.live.addCluster(c)
	return c
}

func (a *app) cleanup(ctx context.Context, f *cleanupFlags) error {
	a.noteInterrupted(apply.DefaultFolder)
	if err := a.cleanupRoutes(); err != nil {
		return err
	}
	here, err := a.cleanupTables(f.runtime)
	if err != nil {
		return err
	}
	api, err := f.live.api()
	if err != nil {
		return err
	}
	if api == nil && here {
		return nil
	}
	if api == nil {
		return errors.New("clean up: there is no kubeconfig (name one with --kubeconfig)")
	}
	c, err := plugin.NewCluster(api.Config)
	if err != nil {
		return err
	}
	removed, err := c.Cleanup(ctx, f.through.namespace)
	for _, p := range removed {
		fmt.Fprintf(a.Out, "pod/%s deleted in namespace %s (node %s)\n", render.Clean(p.Name), render.Clean(p.Namespace), render.Clean(p.Node))
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintln(a.Out, "no pods of svcnet are left")
	}
	return err
}
