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
	"github.com/svcnet/svcnet/explain/report"
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

// TestLikenessOfOrders compares on nodes that keep the endpoints of each Service in an order of their own, with one random
// change at a time.
func TestLikenessOfOrders(t *testing.T) {
	const services, endpoints, changes = 24, 3, 30
	r := rand.New(rand.NewPCG(13, 20261129))
	fleet := scale.NewFleet(services, endpoints)
	for n := range changes {
		node, files := fleet.Node(n)
		changed, what := change(r, strings.SplitAfter(string(files["iptables-nft-save.txt"]), "\n"))
		files["iptables-nft-save.txt"] = []byte(strings.Join(changed, ""))
		dir := t.TempDir()
		if err := scale.Write(dir, files); err != nil {
			t.Fatal(err)
		}
		sameByItself(t, fmt.Sprintf("change %d (%s)", n, what), load(t, node, dir))
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

// TestLikenessOfServers compares on the same cluster in IPVS mode, with one random change to a virtual server, a set, or an
// address at a time.
func TestLikenessOfServers(t *testing.T) {
	const services, endpoints, changes = 24, 3, 60
	r := rand.New(rand.NewPCG(11, 20261128))
	objects := cluster(services, endpoints)
	found := 0
	for n := range changes {
		evidence := scale.IPVS(services, endpoints)
		if n%2 == 1 {
			shuffleServers(r, evidence)
		}
		what := changeServers(r, evidence)
		s := &snapshot.Snapshot{Node: "node-1", Evidence: append(slices.Clone(objects), evidence...)}
		sameByItself(t, fmt.Sprintf("change %d (%s)", n, what), s)
		a, err := explain.Audit(s, explain.AuditOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if a.Proxy.Mode != "ipvs" {
			t.Fatalf("mode %q", a.Proxy.Mode)
		}
		if slices.ContainsFunc(a.Findings, func(f report.Finding) bool { return f.Severity == "error" || f.Severity == "critical" }) {
			found++
		}
	}
	if found < changes/3 {
		t.Errorf("only %d of %d changes have a finding: nothing to compare", found, changes)
	}
}

// shuffleServers puts the real servers of every virtual server into a random order.
func shuffleServers(r *rand.Rand, evidence []snapshot.Evidence) {
	e := &evidence[slices.IndexFunc(evidence, func(e snapshot.Evidence) bool { return e.Format == snapshot.IPVSSave })]
	lines := strings.SplitAfter(string(e.Data), "\n")
	for i := 0; i < len(lines); {
		if !strings.HasPrefix(lines[i], "-a ") {
			i++
			continue
		}
		end := i
		for end < len(lines) && strings.HasPrefix(lines[end], "-a ") {
			end++
		}
		r.Shuffle(end-i, func(a, b int) { lines[i+a], lines[i+b] = lines[i+b], lines[i+a] })
		i = end
	}
	e.Data = []byte(strings.Join(lines, ""))
}

// changeServers makes one random change.
func changeServers(r *rand.Rand, evidence []snapshot.Evidence) (what string) {
	format := []snapshot.Format{snapshot.IPVSSave, snapshot.IPVSSave, snapshot.IPSetSave, snapshot.IPAddr}[r.IntN(4)]
	e := &evidence[slices.IndexFunc(evidence, func(e snapshot.Evidence) bool { return e.Format == format })]
	lines := strings.SplitAfter(string(e.Data), "\n")
	var some []int
	for i, l := range lines {
		if strings.HasPrefix(l, "-") || strings.HasPrefix(l, "add ") || strings.Contains(l, "inet 10.") {
			some = append(some, i)
		}
	}
	at := some[r.IntN(len(some))]
	line := lines[at]
	switch r.IntN(4) {
	case 0:
		lines[at], what = "", "deleted "
	case 1:
		lines[at], what = strings.NewReplacer(":80 ", ":81 ", ":8080", ":8081", "tcp:80\n", "tcp:81\n").Replace(line), "port of "
	case 2:
		lines[at], what = strings.NewReplacer("-w 1", "-w 0", "-s rr", "-s sh").Replace(line), "weight of "
	case 3:
		lines[at], what = strings.NewReplacer("-s rr", "-s rr -p 300", "-m -w 1", "-m -w 3").Replace(line), "shares of "
	}
	e.Data = []byte(strings.Join(lines, ""))
	return what + strings.TrimSpace(line)
}
