package recorded

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// A recording is a node as one version of kube-proxy left it.
type recording struct {
	folder string
	minor  int
	mode   string
	node   *snapshot.Snapshot
}

var folderName = regexp.MustCompile(`^kube-proxy-1\.(\d+)-(iptables|nftables|ipvs)(-nft)?$`)

// recordings are those of a mode, of all modes where none is named, by version, oldest first.
func recordings(t *testing.T, mode string) []recording {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var out []recording
	for _, e := range entries {
		m := folderName.FindStringSubmatch(e.Name())
		if m == nil {
			t.Errorf("testdata/%s is no recording", e.Name())
			continue
		}
		minor, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if mode != "" && m[2] != mode {
			continue
		}
		s, err := snapshot.Load([]string{filepath.Join("testdata", e.Name())}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, recording{e.Name(), minor, m[2], s})
	}
	slices.SortFunc(out, func(a, b recording) int { return cmp.Compare(a.minor, b.minor) })
	if len(out) < 2 {
		t.Fatalf("%d recordings: nothing to compare", len(out))
	}
	return out
}

// A span is some versions of kube-proxy: from the one to the other, both included; 0: without a bound. All of it is
// the zero span.
type span struct{ from, to int }

func (s span) has(minor int) bool {
	return minor >= s.from && (s.to == 0 || minor <= s.to)
}

func (s span) String() string {
	switch {
	case s.from == 0 && s.to == 0:
		return "every version"
	case s.from == 0:
		return fmt.Sprintf("up to 1.%d", s.to)
	case s.to == 0:
		return fmt.Sprintf("from 1.%d on", s.from)
	}
	return fmt.Sprintf("1.%d to 1.%d", s.from, s.to)
}
