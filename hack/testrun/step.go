package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// step is one command that passes or fails as a whole.
type step struct {
	name string
	env  []string
	args []string
}

// steps are what comes before the tests. The program is used from workstations of every kind, where it reads
// files: it has to build there.
func steps(packages []string) []step {
	out := []step{{name: "go vet", args: append([]string{"vet"}, packages...)}}
	for _, system := range []string{"darwin/arm64", "windows/amd64"} {
		goos, goarch, _ := strings.Cut(system, "/")
		out = append(out, step{
			name: "go build for " + system,
			env:  []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"},
			args: append([]string{"build"}, packages...),
		})
	}
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		// Built here and not by the first test that needs them: minutes on a machine that never did, and no
		// test's time limit should depend on that.
		out = append(out, step{name: "etcd, kube-apiserver and kube-proxy for the lab", args: []string{"run", "./test/lab/cmd/lab", "binaries"}})
	}
	return out
}

// step runs one and counts it.
func (t *tally) step(ctx context.Context, s step) {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "go", s.args...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	took := time.Since(begin).Round(100 * time.Millisecond)
	if err != nil {
		t.failed++
		t.say("FAIL %s (%s): %v\n%s", s.name, took, err, out)
		return
	}
	t.passed++
	t.say("ok   %s (%s)\n", s.name, took)
}
