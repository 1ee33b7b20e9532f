package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/svcnet/svcnet/test/lab"
)

func shell(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("lab shell", flag.ContinueOnError)
	name := flags.String("name", "lab", "`name` of the lab")
	node := flags.String("node", "n1", "`node`, or client, cp, pod-NAME: a namespace of the lab")
	if err := flags.Parse(args); err != nil {
		return err
	}
	argv := flags.Args()
	if len(argv) == 0 {
		argv = []string{os.Getenv("SHELL")}
		if argv[0] == "" {
			argv[0] = "/bin/sh"
		}
		fmt.Fprintf(os.Stderr, "in %s of lab %s; exit leaves\n", *node, *name)
	}
	state, err := lab.ReadState(*name)
	if err != nil {
		return fmt.Errorf("%w; lab up brings one up", err)
	}
	ns, env, err := state.Enter(*node)
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", pathOf(env)); err != nil { // for LookPath
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return ns.Exec(path, argv, env)
}

func pathOf(env []string) string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return path
		}
	}
	return ""
}
