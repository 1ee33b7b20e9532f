package nft

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// lab is a network namespace for one test with two interfaces beside lo.
type lab struct {
	t    *testing.T
	name string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	l := &lab{t: t, name: fmt.Sprintf("svcnet-nft-listing-%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", l.name).CombinedOutput(); err != nil {
		t.Skipf("cannot make a network namespace: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.name).Run() })
	l.run("", "ip", "link", "set", "lo", "up")
	l.run("", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	return l
}

// run is what a command in the namespace prints.
func (l *lab) run(input string, args ...string) string {
	l.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.name}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		l.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// nft106 is set where the nft of this machine is the one whose output the printer writes.
func (l *lab) nft106() bool { return strings.Contains(l.run("", "nft", "--version"), "v1.0.6 ") }

// TestKernel loads the rulesets of testdata/listing and lists them again: what this machine's nft prints of what this
// kernel holds is read and printed as it is.
func TestKernel(t *testing.T) {
	l := newLab(t)
	files, err := filepath.Glob("testdata/listing/*.nft")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rulesets: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".nft")
		t.Run(name, func(t *testing.T) {
			l.t = t
			if !l.nft106() {
				t.Skip("needs nft 1.0.6, whose output the printer writes")
			}
			l.run("flush ruleset\n"+recording(t, name+".nft"), "nft", "-f", "-")
			text, json := l.run("", "nft", "list", "ruleset"), l.run("", "nft", "-j", "list", "ruleset")
			textIsPrintedAsItWas(t, text, name)
			jsonIsTheSameAsText(t, json, text, name)
			stateless(t, l, text, name)
			handles(t, l, text, name)
		})
	}
}

// lives are what entries have yet to live, which goes on between two listings.
var lives = regexp.MustCompile(` expires (\w+)`)

// stateless compares the texts of rules with what nft prints without counters' values.
func stateless(t *testing.T, l *lab, text, name string) {
	t.Helper()
	lines := make(map[string]bool)
	for line := range strings.Lines(l.run("", "nft", "-s", "list", "ruleset")) {
		lines[strings.TrimSpace(line)] = true
	}
	for _, table := range parseText(t, text, name).Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				if !lines[r.Text] && !strings.Contains(r.Text, " { ") && !strings.Contains(r.Text, "jump {") {
					t.Errorf("nft -s does not print %q", r.Text)
				}
			}
		}
	}
}

// handles reads the listing with handles, as people paste it too: it says the same, and every rule has its handle.
func handles(t *testing.T, l *lab, text, name string) {
	t.Helper()
	with := parseText(t, l.run("", "nft", "-a", "list", "ruleset"), name)
	noProblems(t, with)
	if got, want := lives.ReplaceAllString(with.String(), ""), lives.ReplaceAllString(text, ""); got != want {
		t.Error("the listing with handles is read otherwise than that without")
	}
	for _, table := range with.Tables {
		if table.Handle == 0 {
			t.Errorf("table %s has no handle", table.Name)
		}
		for _, c := range table.Chains {
			if c.Handle == 0 && !c.Inline {
				t.Errorf("chain %s has no handle", c.Name)
			}
			for _, r := range c.Rules {
				if r.Handle == 0 && !c.Inline {
					t.Errorf("%s has no handle", r.Text)
				}
			}
		}
	}
}
