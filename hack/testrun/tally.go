package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of go test -json (see go doc test2json).
type event struct {
	Action  string
	Package string
	// ImportPath stands in place of Package in the output of the build.
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
	// FailedBuild names the package that did not build.
	FailedBuild string
}

// key names one test, or one package when Test is empty.
type key struct{ pkg, test string }

// tally counts and prints results as they come.
type tally struct {
	out     io.Writer
	lost    error // the first error of out
	allowed *allowed

	passed, failed, skipped int
	// failedIn holds the packages of which a test failed.
	failedIn map[string]bool
	// said is the output of what has not ended yet, built that of packages being built.
	said  map[key][]string
	built map[string][]string
}

// say prints. The first error is kept for the end: a run whose words get lost did not pass.
func (t *tally) say(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); err != nil && t.lost == nil {
		t.lost = err
	}
}

// longestTest bounds what go test may take for one package.
const longestTest = "30m"

// tests runs the tests of the packages. The error is one of running them at all, not that of a test.
func (t *tally) tests(ctx context.Context, packages []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-timeout", longestTest}, packages...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	if err := t.read(pipe); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	// A test that failed is counted already; an exit without one (a pattern that names no package) is not.
	if err := cmd.Wait(); err != nil && t.failed == 0 {
		t.failed++
		t.say("FAIL go test: %v\n", err)
	}
	return nil
}

// read takes the events of go test -json. Lines that are none are passed on as they are.
func (t *tally) read(r io.Reader) error {
	t.said, t.built, t.failedIn = map[key][]string{}, map[string][]string{}, map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				t.say("%s", line)
			} else {
				t.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (t *tally) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		t.built[e.ImportPath] = append(t.built[e.ImportPath], e.Output)
	case "output":
		t.said[k] = append(t.said[k], e.Output)
	case "pass", "fail", "skip":
		t.end(k, e)
		delete(t.said, k)
	}
}

// end counts a test or a package that has ended.
func (t *tally) end(k key, e event) {
	switch {
	case e.Action == "pass" && e.Test != "":
		t.passed++
	case e.Action == "pass":
		t.say("ok   %s (%.1fs)\n", k.pkg, e.Elapsed)
	case e.Action == "skip" && e.Test != "":
		t.skip(k)
	case e.Action == "skip":
		// A package without tests: nothing was left out.
	case e.Test != "":
		t.fail(k)
		t.say("FAIL %s %s (%.1fs)\n%s", k.pkg, k.test, e.Elapsed, strings.Join(t.said[k], ""))
	default:
		t.failPackage(k, e)
	}
}

// failPackage reports what no test of the package says: that it does not build, a panic outside of a test, a
// timeout. A package of which a test failed is not counted again.
func (t *tally) failPackage(k key, e event) {
	if e.FailedBuild != "" {
		t.fail(k)
		t.say("FAIL %s does not build\n%s", k.pkg, strings.Join(t.built[e.FailedBuild], ""))
		return
	}
	// Tests that began and never ended tell what ran when the package died.
	for _, other := range sortedKeys(t.said) {
		if other.pkg == k.pkg && other.test != "" {
			t.fail(other)
			t.say("FAIL %s %s did not end\n%s", other.pkg, other.test, strings.Join(t.said[other], ""))
			delete(t.said, other)
		}
	}
	t.say("FAIL %s (%.1fs)\n%s", k.pkg, e.Elapsed, strings.Join(t.said[k], ""))
	if !t.failedIn[k.pkg] {
		t.fail(k)
	}
}

func (t *tally) fail(k key) {
	t.failed++
	t.failedIn[k.pkg] = true
}

func (t *tally) skip(k key) {
	reason := skipReason(t.said[k])
	if t.allowed != nil && !t.allowed.has(k, reason) {
		t.fail(k)
		t.say("FAIL %s %s was skipped, and %s does not allow it: %s\n", k.pkg, k.test, t.allowed.file, reason)
		return
	}
	t.skipped++
	t.say("skip %s %s: %s\n", k.pkg, k.test, reason)
}

// skipReason is what a test said when it skipped: "    file_test.go:12: the reason". More lines of it follow
// with a deeper indent.
func skipReason(said []string) string {
	var words []string
	for _, line := range said {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "===") || strings.HasPrefix(text, "---") {
			continue
		}
		if file, rest, ok := strings.Cut(text, ": "); ok && strings.Contains(file, ".go:") {
			words = words[:0]
			text = rest
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}

// close prints the last line and gives the exit code.
func (t *tally) close() int {
	t.say("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if t.failed > 0 || t.lost != nil {
		return 1
	}
	return 0
}

func sortedKeys(m map[key][]string) []key {
	var out []key
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b key) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
	return out
}
