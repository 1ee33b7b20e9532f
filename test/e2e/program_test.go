package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowest is how long one call of the program may take. Most take a few hundredths of a second; the limit tells
// a loop from a busy machine.
const slowest = 60 * time.Second

// built is the folder that holds the program for this run.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "svcnet-e2e-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, programName()), "../../cmd/kubectl-svcnet").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	// Tests that give up root need to reach it.
	return dir, os.Chmod(dir, 0o755)
})

func programName() string {
	if runtime.GOOS == "windows" {
		return "kubectl-svcnet.exe"
	}
	return "kubectl-svcnet"
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// program is the path of the program that was built for this run.
func program(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, programName())
}

// ran is what one call of the program gave.
type ran struct {
	stdout, stderr string
	code           int
}

// run calls the program as a user does whose output is no terminal.
func run(t *testing.T, args ...string) ran {
	t.Helper()
	return runAs(t, func(*exec.Cmd) {}, args...)
}

// runAs calls the program with a change to how it is started.
func runAs(t *testing.T, change func(*exec.Cmd), args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slowest)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	change(cmd)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("svcnet %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("svcnet %s did not end within %s", strings.Join(args, " "), slowest)
	}
	r := ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	r.noPanic(t, args)
	return r
}

// noPanic: whatever the input, the program ends by its own decision.
func (r ran) noPanic(t *testing.T, args []string) {
	t.Helper()
	for _, sign := range []string{"panic:", "goroutine ", "runtime error", "fatal error:"} {
		if strings.Contains(r.stderr, sign) {
			t.Errorf("svcnet %s panics:\n%s", strings.Join(args, " "), r.stderr)
			return
		}
	}
}

// oneLine checks that standard error holds one line that a person can act on, and gives it.
func (r ran) oneLine(t *testing.T) string {
	t.Helper()
	line := strings.TrimSuffix(r.stderr, "\n")
	if line == "" || strings.Contains(line, "\n") {
		t.Errorf("standard error is not one line:\n%s", r.stderr)
	}
	if strings.Contains(line, "failed to") {
		t.Errorf("the line says \"failed to\", which says nothing: %s", line)
	}
	return line
}
