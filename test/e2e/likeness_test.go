package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/test/scale"
)

// An audit walks one Service of a kind and takes the others to fare alike. These tests walk every Service by itself and
// look for a difference.

// sameByItself audits both ways.
func sameByItself(t *testing.T, what string, s *snapshot.Snapshot) {
	t.Helper()
	var texts [2]string
	for i, each := range []bool{false, true} {
		r, err := explain.Audit(s, explain.AuditOptions{EachByItself: each})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if diff := cmp.Diff(strings.Split(texts[1], "\n"), strings.Split(texts[0], "\n")); diff != "" {
		t.Errorf("%s: taking Services of a kind together says something else than each by itself\n%s", what, diff)
	}
}

// TestLikenessOfCases compares on every case.
func TestLikenessOfCases(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		sameByItself(t, name, load(t, all[name].Node, filepath.Join(casesDir, name)))
	}
}

// TestLikenessOfChanges compares on a cluster of many equal Services with one random change to its rules at a time.
func TestLikenessOfChanges(t *testing.T) {
	const services, endpoints, changes = 24, 3, 60
	r := rand.New(rand.NewPCG(7, 20261128))
	lines := strings.SplitAfter(string(scale.IPTablesSave(services, endpoints)), "\n")
	objects := cluster(services, endpoints)
	for n := range changes {
		changed, what := change(r, lines)
		s := &snapshot.Snapshot{Node: "node-1", Evidence: append([]snapshot.Evidence{{
			Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", File: "iptables-save.txt", Status: snapshot.OK, Data: []byte(strings.Join(changed, "")),
		}}, objects...)}
		sameByItself(t, fmt.Sprintf("change %d (%s)", n, what), s)
	}
}

// cluster is the objects of scale's cluster as evidence.
func cluster(services, endpoints int) []snapshot.Evidence {
	lists := scale.Lists(services, endpoints)
	var out []snapshot.Evidence
	for _, file := range slices.Sorted(maps.Keys(lists)) {
		out = append(out, snapshot.Evidence{Format: snapshot.Objects, File: file, Status: snapshot.OK, Data: lists[file]})
	}
	return out
}

// change makes one random change to the rules of a Service, or puts a rule of somebody else's among them.
func change(r *rand.Rand, lines []string) (changed []string, what string) {
	changed = append([]string{}, lines...)
	var rules []int
	for i, l := range lines {
		if strings.Contains(l, " -A KUBE-S") {
			rules = append(rules, i)
		}
	}
	at := rules[r.IntN(len(rules))]
	line := lines[at]
	switch r.IntN(6) {
	case 0:
		changed[at] = ""
		what = "deleted "
	case 1:
		changed[at] = line + line
		what = "doubled "
	case 2:
		changed[at] = strings.ReplaceAll(line, "--dport 80", "--dport 81")
		what = "port of "
	case 3:
		changed[at] = strings.Replace(line, ":8080", ":8081", 1)
		what = "translation of "
	case 4:
		other := rules[r.IntN(len(rules))]
		changed[at], changed[other] = changed[other], changed[at]
		what = "swapped "
	case 5:
		for i, l := range lines {
			if strings.Contains(l, " -A FORWARD ") {
				chain := []string{"FORWARD -d 10.128.0.0/25", "FORWARD -s 10.128.0.0/24", "FORWARD -p tcp -m tcp --dport 8080:8081", "FORWARD -d 10.128.0.17/32"}[r.IntN(4)]
				changed[i] = "[0:0] -A " + chain + " -j DROP\n" + l
				return changed, "dropped " + chain
			}
		}
	}
	return changed, what + strings.TrimSpace(line)
}
