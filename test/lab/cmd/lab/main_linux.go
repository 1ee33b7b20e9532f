// Command lab brings real Kubernetes nodes up on this machine, in network namespaces, to look at and to break.
//
//	lab up [-name lab] [-nodes 3] [-backend nft|legacy] [-mode iptables|nftables] [-empty] [-detach]
//	lab down [-name lab]
//	lab shell [-name lab] [-node n1] [-- command arguments...]
//	lab binaries
//
// up stays in the foreground until it is interrupted, then takes everything away again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/svcnet/svcnet/test/lab"
)

// a command does its work with the arguments behind its name.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"binaries", "build etcd, kube-apiserver and kube-proxy, or say where they are", binaries},
		{"down", "take a lab down, also behind one whose process died", down},
		{"shell", "a shell, or one command, inside a node or another namespace of a lab", shell},
		{"up", "bring a lab up with a few Services, until interrupted", up},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	all := commands()
	if len(args) > 0 {
		i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
		if i >= 0 {
			return all[i].run(ctx, args[1:])
		}
	}
	for _, c := range all {
		fmt.Fprintf(os.Stderr, "  lab %-10s %s\n", c.name, c.summary)
	}
	if len(args) == 0 {
		return errors.New("say what to do")
	}
	return fmt.Errorf("there is no command %q", args[0])
}

func binaries(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("lab binaries", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "looking for the binaries; building them takes up to ten minutes the first time")
	paths, err := lab.Binaries(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%s\n%s\n", paths.Etcd, paths.KubeAPIServer, paths.KubeProxy)
	return nil
}

func down(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("lab down", flag.ContinueOnError)
	name := flags.String("name", "lab", "`name` of the lab")
	if err := flags.Parse(args); err != nil {
		return err
	}
	found, err := lab.DownLeftover(*name)
	if err != nil {
		return err
	}
	if !found {
		fmt.Printf("there is no lab %s\n", *name)
		return nil
	}
	fmt.Printf("lab %s is down\n", *name)
	return nil
}
