package cmd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	program := func() {
		os.Exit(Execute(context.Background(), os.Args, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Getenv))
	}
	testscript.Main(m, map[string]func(){"svcnet": program, "kubectl-svcnet": program})
}

// TestScript runs the scripts in testdata/script. They find the recorded node in $NODE, and have the command
//
//	exits CODE PROGRAM ARGS…
//
// which runs a program and fails unless it exits with that code.
func TestScript(t *testing.T) {
	node, err := filepath.Abs("demo/node-1")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("NODE", node)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %v", err)
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
