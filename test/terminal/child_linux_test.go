package terminal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/tui"
)

// child names the variable that makes this test's program a program on a terminal, one of children.
const child = "SVCNET_TERMINAL_CHILD"

var children = map[string]func(){"environment": environment, "panic": panics, "shell": shell}

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(child)]; ok {
		run()
		os.Exit(0)
	}
	code := m.Run()
	if dir, _ := built(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// environment prints the variable that keeps libraries from asking.
func environment() {
	value, there := os.LookupEnv("CI")
	fmt.Printf("CI is %q, there: %v\n", value, there)
}

// panics shows a screen whose feed panics: where $PANIC says.
func panics() {
	f := &tui.Feed{From: "nowhere", Name: "svcnet", Interval: time.Second}
	begun := time.Now()
	f.Now = func() time.Time {
		if os.Getenv("PANIC") == "drawing" && time.Since(begun) > time.Second/2 {
			panic("the clock stands still")
		}
		return time.Now()
	}
	f.Read = func(ctx context.Context, _ string) (*snapshot.Snapshot, error) {
		if os.Getenv("PANIC") == "reading" {
			var s *snapshot.Snapshot
			return s, fmt.Errorf("read node %s", s.Node)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := tui.Run(context.Background(), f, tui.Look{}, os.Stdin, os.Stdout); err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}

// shell is one with jobs: it runs the program that $PROGRAM names, has the terminal while that is stopped, and takes the
// commands fg and kill.
func shell() {
	signal.Ignore(syscall.SIGTTOU)
	job := exec.Command(os.Getenv("PROGRAM"), strings.Fields(os.Getenv("ARGS"))...)
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true}
	if err := job.Start(); err != nil {
		fmt.Println("shell:", err)
		os.Exit(1)
	}
	pid := job.Process.Pid
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil {
			continue
		}
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		if !status.Stopped() {
			fmt.Printf("shell: ended %d\n", status.ExitStatus())
			return
		}
		fmt.Println("shell: stopped")
		var command string
		if _, err := fmt.Scanln(&command); err != nil {
			fmt.Println("shell:", err)
		}
		switch command {
		case "fg":
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, pid)
		case "kill":
			_ = unix.Kill(-pid, unix.SIGTERM)
		}
		_ = unix.Kill(-pid, unix.SIGCONT)
	}
}
