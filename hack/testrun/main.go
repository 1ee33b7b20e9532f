// Command testrun runs everything that can be checked on this machine: go vet, the builds for the other
// systems, and the tests. It prints one line for each thing that is skipped, with the reason, everything
// that a failed test said, and a closing line "N passed, N failed, N skipped".
//
//	go run ./hack/testrun                          what make test does
//	go run ./hack/testrun -allow hack/skips.txt    on CI: a skip that is not on the list is a failure
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	allow := flag.String("allow", "", "file that lists what may be skipped; without it anything may")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	code, err := run(ctx, *allow, packages)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	stop()
	os.Exit(code)
}

// run does all steps, whatever fails on the way. The code is 1 when anything failed.
func run(ctx context.Context, allowFile string, packages []string) (int, error) {
	var list *allowed
	if allowFile != "" {
		text, err := os.ReadFile(allowFile)
		if err != nil {
			return 1, fmt.Errorf("read the list of allowed skips: %w", err)
		}
		if list, err = parseAllowed(allowFile, string(text)); err != nil {
			return 1, err
		}
	}
	t := tally{out: os.Stdout, allowed: list}
	for _, s := range steps(packages) {
		t.step(ctx, s)
	}
	packages, err := listed(ctx, packages)
	if err != nil {
		return 1, err
	}
	beside, alone := apart(packages)
	for _, group := range [][]string{beside, alone} {
		if len(group) == 0 {
			continue
		}
		if err := t.tests(ctx, group); err != nil {
			return 1, err
		}
	}
	return t.close(), nil
}

// listed are the packages that patterns name.
func listed(ctx context.Context, patterns []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// apart sorts out the packages whose tests time packets: beside others they would see the machine and not the rules.
func apart(packages []string) (beside, alone []string) {
	for _, p := range packages {
		if strings.HasSuffix(p, "/test/audit") {
			alone = append(alone, p)
		} else {
			beside = append(beside, p)
		}
	}
	return beside, alone
}
