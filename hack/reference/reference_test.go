package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// files are the names and contents of those below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatalf("%v (make it with: make reference)", err)
	}
	return out
}

// TestChecked compares what is checked in with what the commands say today.
func TestChecked(t *testing.T) {
	// The date of manual pages is not to come from a release's environment.
	t.Setenv("SOURCE_DATE_EPOCH", "0")
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"docs/man", "docs/cli"} {
		want := files(t, filepath.Join(dir, sub))
		if len(want) < 8 {
			t.Fatalf("%s: %d files", sub, len(want))
		}
		if diff := cmp.Diff(files(t, filepath.Join(root, sub)), want); diff != "" {
			t.Errorf("%s is not what the commands say (mend it with: make reference)\n%s", sub, diff)
		}
	}
}

// overstruck is how bold text is shown on terminals of old: each letter twice, one over the other.
var overstruck = regexp.MustCompile(".\x08")

// TestManPages gives every page to the tools that show them.
func TestManPages(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed (Debian: mandoc)")
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/man/*.1"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if out, err := exec.Command(mandoc, "-T", "lint", "-W", "warning", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		out, err := exec.Command(mandoc, "-T", "utf8", page).Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION"} {
			if !strings.Contains(overstruck.ReplaceAllString(string(out), ""), section) {
				t.Errorf("%s: no section %s", name, section)
			}
		}
	}
}
