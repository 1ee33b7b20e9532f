package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// expectedFinding is one entry of a case's expect. Object names in free text what the finding is about.
type expectedFinding struct{ ID, Severity, Object string }

// justified are findings of severity error and critical beyond those that a case expects, each with the reason why the
// case's evidence bears them out.
var justified = map[string]map[string]string{
	"22-xtables-lock-held":                  {"missing-endpoint-rule": "the endpoint that the API has instead, 10.244.1.77, is the other half of the stale one"},
	"41-hostport-dnat-before-kube-services": {"missing-endpoint-rule": "the host port takes what is for 192.168.10.10:6443"},
	"48-ipvs-ready-endpoint-weight-zero":    {"reject-rule-with-ready-endpoints": "the real server of weight 0 is the only one: clients are refused"},
	"46-ipvs-leftover-reject-rules":         {"reject-rule-with-ready-endpoints": "it is what the rules that were left over do to each Service"},
}

// audit audits one snapshot.
func audit(t *testing.T, s *snapshot.Snapshot) *report.Report {
	t.Helper()
	r, err := explain.Audit(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCaseFindings holds every case's expect and forbid against the audit of its files, and finds nothing else that is
// an error.
func TestCaseFindings(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			e := all[name]
			r := audit(t, load(t, e.Node, filepath.Join(casesDir, name)))
			for _, want := range e.Expect {
				want.check(t, r.Findings)
			}
			for i := range r.Findings {
				f := &r.Findings[i]
				if slices.Contains(e.Forbid, f.ID) {
					t.Errorf("forbidden: %s %s: %s", f.Severity, f.ID, f.Message)
				}
				expected := slices.ContainsFunc(e.Expect, func(w expectedFinding) bool { return w.ID == f.ID })
				if !expected && check.Rank(f.Severity) <= check.Rank(check.Error) && justified[name][f.ID] == "" {
					t.Errorf("not justified by the case: %s %s: %s", f.Severity, f.ID, f.Message)
				}
			}
			if t.Failed() {
				for _, f := range r.Findings {
					t.Logf("%s %s: %s", f.Severity, f.ID, f.Message)
				}
			}
		})
	}
}

// names are what a free text names: objects as namespace/name with a port, and addresses with a port.
var namesInText = regexp.MustCompile(`[a-z0-9-]+/[a-z][a-z0-9-]+(?::[a-z][a-z0-9-]*)?|\d+\.\d+\.\d+\.\d+(?::\d+)?`)

// check looks for findings of the id and severity that together name everything that the case names.
func (e expectedFinding) check(t *testing.T, all []report.Finding) {
	t.Helper()
	var said strings.Builder
	found := false
	for i := range all {
		f := &all[i]
		if f.ID != e.ID {
			continue
		}
		if f.Severity != e.Severity {
			t.Errorf("%s is %s, want %s: %s", f.ID, f.Severity, e.Severity, f.Message)
		}
		found = true
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(text)
		o := f.Object
		said.WriteString(" " + o.Namespace + "/" + o.Name + ":" + o.Port + " ")
	}
	if !found {
		t.Errorf("no finding %s (%s)", e.ID, e.Object)
		return
	}
	for _, name := range namesInText.FindAllString(e.Object, -1) {
		if strings.Contains(said.String(), name) || notNames[name] {
			continue
		}
		t.Errorf("%s does not name %s (%s)", e.ID, name, e.Object)
	}
}

// notNames look like names in the free texts of the cases and are none: protocols, tables and chains, words with a
// slash between.
var notNames = map[string]bool{"0/arp": true}

// TestCaseAuditProgram: the program says what the library says, exits accordingly, and every document is valid.
func TestCaseAuditProgram(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(casesDir, name)
			r := run(t, "audit", "-f", dir, "--node", all[name].Node, "-o", "json")
			library := audit(t, load(t, all[name].Node, dir))
			text, err := json.Marshal(library)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := json.Unmarshal(text, &a); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(r.stdout), &b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("the program says something else than the library\n%s", diff)
			}
			want := 0
			switch {
			case library.Summary.Critical+library.Summary.Error > 0:
				want = 3
			case len(library.Unknown) > 0:
				want = 4
			}
			if r.code != want || r.stderr != "" {
				t.Errorf("exit %d, want %d, standard error %q", r.code, want, r.stderr)
			}
			ofKind(t, "Report", r.stdout)
		})
	}
}

// TestCaseWithoutSource takes each file of each case away in turn. No finding may come of what is not there: what is
// gone makes checks unknown, and what remains is what was found before.
func TestCaseWithoutSource(t *testing.T) {
	names, all := cases(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			whole := load(t, all[name].Node, filepath.Join(casesDir, name))
			before := audit(t, whole)
			for i := range whole.Evidence {
				if whole.Evidence[i].Format == snapshot.Unrecognised {
					continue
				}
				if oneOfTwoBackends[name] == "" || whole.Evidence[i].Format != snapshot.IPTablesSave {
					less := *whole
					less.Evidence = slices.Delete(slices.Clone(whole.Evidence), i, i+1)
					withoutSource(t, whole.Evidence[i].File, before, audit(t, &less))
				}

				// The same when somebody looked in vain.
				denied := *whole
				denied.Evidence = slices.Clone(whole.Evidence)
				denied.Evidence[i].Data, denied.Evidence[i].Status, denied.Evidence[i].Error = nil, snapshot.Denied, "permission denied"
				withoutSource(t, whole.Evidence[i].File+" denied", before, audit(t, &denied))
			}
		})
	}
}

// oneOfTwoBackends are cases with captures of both iptables backends. Taking one capture away altogether leaves a node
// with the other backend alone, of which nothing says that there ever was more; denied and failed captures do say it.
var oneOfTwoBackends = map[string]string{
	"17-legacy-rules-survive-nft-switch":  "both hold kube-proxy's rules",
	"18-backend-guess-after-nodelocaldns": "kube-proxy's in one, the kubelet's in the other",
}

// withoutSource compares an audit with the one that had a source more.
func withoutSource(t *testing.T, what string, before, after *report.Report) {
	t.Helper()
	key := func(f *report.Finding) string { return f.ID + " " + f.Subject }
	had := make(map[string]bool)
	for i := range before.Findings {
		had[key(&before.Findings[i])] = true
	}
	has := make(map[string]bool)
	for i := range after.Findings {
		f := &after.Findings[i]
		has[key(f)] = true
		if !had[key(f)] && check.Rank(f.Severity) <= check.Rank(check.Warning) {
			t.Errorf("without %s there is a new finding: %s %s: %s", what, f.Severity, f.ID, f.Message)
		}
	}
	unknown := make(map[string]bool)
	for _, u := range after.Unknown {
		unknown[u.ID] = true
	}
	for i := range before.Findings {
		f := &before.Findings[i]
		if !has[key(f)] && !unknown[f.ID] {
			t.Errorf("without %s the finding is gone and its check is not unknown: %s %s", what, f.ID, f.Message)
		}
	}
}

// TestOtherModes: on nodes whose service tables are not evaluated, what objects, proxy and surroundings show is found
// all the same, no finding speaks of what was not looked at, and no Service is said to be as it should be.
func TestOtherModes(t *testing.T) {
	const dir = "testdata/othermodes"
	for name, ids := range map[string][]string{
		"62-cilium-and-kube-proxy": {"two-service-proxies"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, name, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			var e expected
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatal(err)
			}
			r := audit(t, load(t, e.Node, filepath.Join(dir, name)))
			for _, want := range e.Expect {
				if slices.Contains(ids, want.ID) {
					want.check(t, r.Findings)
				}
			}
			for i := range r.Findings {
				f := &r.Findings[i]
				expected := slices.ContainsFunc(e.Expect, func(w expectedFinding) bool { return w.ID == f.ID })
				if slices.Contains(e.Forbid, f.ID) || !expected && check.Rank(f.Severity) <= check.Rank(check.Error) {
					t.Errorf("not justified by the case: %s %s: %s", f.Severity, f.ID, f.Message)
				}
			}
		})
	}
}
