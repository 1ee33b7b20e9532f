package cmd

import (
	"slices"
	"testing"

	"github.com/svcnet/svcnet/docs/findings"
	"github.com/svcnet/svcnet/explain/check"
)

// TestGroups: every finding is listed once, in the group that its page belongs to (docs/findings/groups.go).
func TestGroups(t *testing.T) {
	var all []string
	for _, g := range findings.Groups {
		for _, id := range g.IDs {
			if slices.Contains(all, id) {
				t.Errorf("%s is in two groups", id)
			}
			all = append(all, id)
		}
	}
	for i := range check.Catalogue {
		if id := check.Catalogue[i].ID; !slices.Contains(all, id) {
			t.Errorf("%s is in no group of docs/findings/groups.go", id)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"mising", "missing", 1}, {"stale", "steal", 2}, {"ab", "ba", 2}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
