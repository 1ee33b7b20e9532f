package nft

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testdata/netlink holds rulesets of ours, NAME.nft, with what the kernel (6.18) held of each as messages, NAME.nl, and
// what nft 1.0.6 printed of that, NAME.txt: netlink_linux_test.go loads them again.

// netlinkRecordings are the names of the files of testdata/netlink without their ends.
func netlinkRecordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/netlink/*.nl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], ".nl")
	}
	return files
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseNetlink(t testing.TB, name string) *Ruleset {
	t.Helper()
	r, err := ParseNetlink(readFile(t, name+".nl"), name+".nl")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lasting takes out of a listing what changes from one moment to the next.
func lasting(listing string) string {
	return regexp.MustCompile(` expires \S+`).ReplaceAllString(listing, "")
}

// TestNetlinkRecorded: recorded messages print what nft printed then, and say what its text says.
func TestNetlinkRecorded(t *testing.T) {
	for _, name := range netlinkRecordings(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r := parseNetlink(t, name)
			noProblems(t, r)
			want := string(readFile(t, name+".txt"))
			if diff := cmp.Diff(strings.Split(lasting(want), "\n"), strings.Split(lasting(r.String()), "\n")); diff != "" {
				t.Errorf("nft (-) and the messages (+):\n%s", diff)
			}
			sameAsText(t, r, r.String())
		})
	}
}

// sameAsText compares what messages are read as with what their listing is read as.
func sameAsText(t *testing.T, r *Ruleset, listing string) {
	t.Helper()
	if diff := sameRulesets(parseText(t, listing, "nft.txt"), r); diff != "" {
		t.Errorf("text (-) and the messages (+) are read as different data:\n%s", diff)
	}
}
