package cmd

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/svcnet/svcnet/explain/check"
)

// Completion asks the evidence that the command line names so far, or the API server. A shell waits for it and shows
// nothing else: there is little time, and what goes wrong offers nothing and says nothing.

// completionTime is how long a shell may be kept waiting.
const completionTime = 2 * time.Second

// offered are what a shell may complete with, none of them a file.
func offered(names []string) ([]string, cobra.ShellCompDirective) {
	return names, cobra.ShellCompDirectiveNoFileComp
}

// within gives what f finds in the time there is, sorted, each once. Names come from a server or a file: what is no name
// would be a word of the shell's.
func within(f func(ctx context.Context) []string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	found := make(chan []string, 1)
	go func() { found <- f(ctx) }()
	select {
	case names := <-found:
		names = slices.DeleteFunc(names, func(n string) bool { return len(validation.IsDNS1123Subdomain(n)) > 0 })
		slices.Sort(names)
		return slices.Compact(names)
	case <-ctx.Done():
		return nil
	}
}

// fromEvidence tells whether names come from the files that are named, and from files that can be read again: standard
// input is the shell's.
func (e *evidence) fromEvidence() (offline, possible bool) {
	return e.offline(), !slices.Contains(e.files, "-")
}

// services are the names of Services, in the namespace of the flag or else the context when the API is asked.
func (e *evidence) services(a *app, namespace string, set bool) []string {
	return within(func(ctx context.Context) []string {
		if offline, possible := e.fromEvidence(); offline || !possible {
			if !possible {
				return nil
			}
			s, err := e.load(ctx, a)
			if err != nil {
				return nil
			}
			var names []string
			for _, o := range decoded(s).Services {
				if !set || o.Namespace == namespace {
					names = append(names, o.Name)
				}
			}
			return names
		}
		if !set {
			if ns := e.live.namespace(); ns != "" {
				namespace = ns
			}
		}
		return e.live.names(ctx, "services", namespace)
	})
}

// nodes are the names of nodes that evidence or API server know.
func (e *evidence) nodes(a *app) []string {
	return within(func(ctx context.Context) []string {
		offline, possible := e.fromEvidence()
		switch {
		case !possible:
			return nil
		case !offline:
			return e.live.names(ctx, "nodes", "")
		}
		s, err := e.load(ctx, a)
		if err != nil {
			return nil
		}
		names := []string{s.Node}
		for _, o := range decoded(s).Nodes {
			names = append(names, o.Name)
		}
		return names
	})
}

// names asks the API server; nobody to ask is no name.
func (l *live) names(ctx context.Context, resource, namespace string) []string {
	api, err := l.api()
	if err != nil || api == nil {
		return nil
	}
	api.Timeout = completionTime
	names, err := api.Names(ctx, resource, namespace)
	if err != nil {
		return nil
	}
	return names
}

// completeServices completes TYPE/NAME arguments, as many as a command takes.
func (a *app) completeServices(e *evidence, namespace *string, most int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return offered(nil)
		}
		var out []string
		for _, name := range e.services(a, *namespace, c.Flags().Changed("namespace")) {
			if arg := "svc/" + name; !slices.Contains(args, arg) {
				out = append(out, arg)
			}
		}
		return offered(out)
	}
}

// completeNodes completes --node.
func (a *app) completeNodes(c *cobra.Command, e *evidence) {
	mustCompleteFunc(c, "node", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return offered(e.nodes(a))
	})
}

// completeFindings offers the ids of all findings, with what each says.
func completeFindings(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for i := range check.Catalogue {
		out = append(out, check.Catalogue[i].ID+"\t"+check.Catalogue[i].Title)
	}
	return offered(out)
}

// mustCompleteFunc is mustComplete for values that are not fixed.
func mustCompleteFunc(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}
