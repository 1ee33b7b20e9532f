package plan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

const scenarioFolder = "../../explain/testdata/findings/"

// scenario is one half ("fires/" or "silent/") of a scenario of a finding, as package explain tests them: files of a
// recorded node, files beside or in place of them, and edits.
func scenario(t *testing.T, a *txtar.Archive, half string) *explain.Reading {
	t.Helper()
	files := fstest.MapFS{}
	for _, node := range []string{"base", "base-nft", "base-ipvs"} {
		if !slices.Contains(strings.Split(string(a.Comment), "\n"), node) {
			continue
		}
		names, err := filepath.Glob(scenarioFolder + node + "/*")
		if err != nil || len(names) == 0 {
			t.Fatalf("no recorded node: %v", err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Base(name)] = &fstest.MapFile{Data: data}
		}
	}
	var script string
	for _, f := range a.Files {
		name, ok := strings.CutPrefix(f.Name, half)
		if !ok {
			name, ok = strings.CutPrefix(f.Name, "both/")
		}
		switch {
		case !ok, name == "want", name == "evidence", name == "unknown":
		case name == "edit":
			script += string(f.Data)
		default:
			files[name] = &fstest.MapFile{Data: f.Data}
		}
	}
	for line := range strings.Lines(script) {
		edit(t, files, line)
	}
	s, err := snapshot.LoadFS(files, "scenario")
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// edit does "FILE: OLD => NEW", "FILE: (append) => LINE" or "FILE: OLD => (delete)".
func edit(t *testing.T, files fstest.MapFS, line string) {
	t.Helper()
	name, change, _ := strings.Cut(strings.TrimSpace(line), ": ")
	before, after, arrow := strings.Cut(strings.ReplaceAll(change, `\n`, "\n"), " => ")
	if !arrow || files[name] == nil {
		t.Fatalf("edit: %q", line)
	}
	text := string(files[name].Data)
	switch {
	case before == "(append)":
		text += after + "\n"
	case after == "(delete)":
		text = strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(l string) bool { return strings.Contains(l, before) }), "")
	default:
		text = strings.Replace(text, before, after, 1)
	}
	files[name] = &fstest.MapFile{Data: []byte(text)}
}

// TestEveryFinding plans for every scenario of every finding: each finding is mended by a step or left for a reason, every
// step says what it must, and what is silent has no step.
func TestEveryFinding(t *testing.T) {
	files, err := filepath.Glob(scenarioFolder + "*.txtar")
	if err != nil || len(files) < len(check.Catalogue) {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	lacking := map[string][]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			for _, half := range []string{"fires/", "silent/"} {
				r := scenario(t, a, half)
				p := Make(r, Options{})
				sound(t, p)
				if again := Make(r, Options{}); again.Plan != p.Plan {
					t.Errorf("%s: plan %s, and %s a second time", half, p.Plan, again.Plan)
				}
				for _, l := range p.Left {
					if l.Because == string(unplanned) {
						lacking[l.ID] = append(lacking[l.ID], name)
					}
				}
			}
		})
	}
	for id, of := range lacking {
		t.Logf("%s is left without a reason of its own in %v", id, of)
	}
}

// sound sees that a plan is whole.
func sound(t *testing.T, p *report.RepairPlan) {
	t.Helper()
	known := map[string]bool{}
	for _, f := range p.Findings {
		known[f.ID] = true
	}
	for i, s := range p.Steps {
		if s.Step != i+1 || s.Title == "" || s.Reason == "" || s.Affects == "" || s.Risk == "" {
			t.Errorf("step %d is not whole: %+v", i+1, s)
		}
		if s.Edits == nil || s.Do.Command == nil || s.Undo.Command == nil {
			t.Errorf("step %d has a list that is null: %+v", i+1, s)
		}
		if s.Kind == KindAdvice {
			continue
		}
		if len(s.Do.Command) == 0 || len(s.Edits) == 0 {
			t.Errorf("step %d does nothing: %+v", i+1, s)
		}
		if foreign := s.Owner == ownerForeign; foreign != (s.Consent == AllowForeign) {
			t.Errorf("step %d changes what is of %s with consent %q", i+1, s.Owner, s.Consent)
		}
		for _, e := range s.Edits {
			if e.Table == "" || e.Object == "" || e.Reason == "" || e.Findings == nil || e.Was == nil || e.Will == nil {
				t.Errorf("step %d: edit is not whole: %+v", i+1, e)
			}
			if e.Absent && len(e.Was) > 0 || e.Remove && len(e.Will) > 0 || e.Absent && e.Remove {
				t.Errorf("step %d: edit of what is not there: %+v", i+1, e)
			}
			for _, id := range e.Findings {
				if !known[id] {
					t.Errorf("step %d mends %s, which is not found", i+1, id)
				}
			}
		}
	}
	for _, l := range p.Left {
		if l.Because == "" {
			t.Errorf("left without a reason: %+v", l)
		}
	}
}

// TestReasons: findings that are left by rule are findings.
func TestReasons(t *testing.T) {
	for id := range reasons {
		if check.Lookup(id) == nil {
			t.Errorf("%s is no finding", id)
		}
	}
}
