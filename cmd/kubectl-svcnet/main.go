// Kubectl-svcnet explains how a Kubernetes node really forwards Service traffic. Run it as `kubectl svcnet`
// or, under that name, as `svcnet`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/svcnet/svcnet/cmd"
)

func main() {
	ctx, stop := signal.NotifyContext(untilHangup(), os.Interrupt, syscall.SIGTERM)
	// The first interrupt cancels and lets what was made in the cluster be removed; the second ends the program.
	context.AfterFunc(ctx, stop)
	code := cmd.Execute(ctx, os.Args, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}

// untilHangup is over when the terminal is closed. The kernel and the shell both tell of that: unlike an interrupt, a
// second one means nothing. Under nohup nobody wants to know.
func untilHangup() context.Context {
	if signal.Ignored(syscall.SIGHUP) {
		return context.Background()
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGHUP) // it listens as long as the program runs
	return ctx
}
