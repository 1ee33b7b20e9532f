package cmd

import "github.com/spf13/cobra"

// waitCommand is what pods of svcnet's own image run: they are asked by exec.
func (a *app) waitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "wait",
		Short:  "Wait until told to end, as the pods do that read nodes",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			<-c.Context().Done()
			return nil
		},
	}
}
