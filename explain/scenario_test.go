package explain_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/docs/findings"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// TestFindings holds every check of the catalogue against its scenario, explain/testdata/findings/ID.txtar, and against
// further ID.WORD.txtar, where it looks at other things in another mode. Its files
// are evidence of a node: those below fires/ make the finding, those below silent/ do not, those below both/ belong to
// either. fires/want has one line for each finding of the id that is expected, no more and no fewer:
//
//	severity | namespace/name:port endpoint | words of the message
//
// where what is not of interest is left empty. Each line of fires/evidence, if it is there, stands in the evidence of a
// finding. silent/unknown, if it is there, says that the check is to be unknown
// rather than answered.
//
// An archive whose comment has a line "base" stands on the files of testdata/findings/base, a recorded node on which
// nothing is wrong; "base-nft" is the same in nftables mode, and "base-ipvs" a made-up node in IPVS mode. fires/edit and silent/edit change them, one line each, and fail where OLD is not found:
//
//	FILE: OLD => NEW        the first OLD becomes NEW
//	FILE: OLD => (delete)   every line with OLD goes
//	FILE: (append) => LINE  a line more at the end
//
// with \n for a line break in OLD and NEW.
func TestFindings(t *testing.T) {
	for _, c := range check.Catalogue {
		t.Run(c.ID, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join("testdata", "findings", c.ID+".*txtar"))
			if err != nil || !slices.Contains(files, filepath.Join("testdata", "findings", c.ID+".txtar")) {
				t.Fatalf("every check has a scenario: %v, %v", files, err)
			}
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) { scenario(t, c.ID, file) })
			}
		})
	}
}

func scenario(t *testing.T, id, file string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fires := audited(t, a, "fires/")
	var got []report.Finding
	for _, f := range fires.Findings {
		if f.ID == id {
			got = append(got, f)
		}
	}
	want := wanted(t, a)
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d", len(got), len(want))
	}
	for i := range got {
		text := say(&got[i])
		if i >= len(want) || !matches(text, want[i]) {
			t.Errorf("finding %d: %s", i, text)
		}
		complete(t, &got[i])
	}
	evidenced(t, a, got)
	silent := audited(t, a, "silent/")
	for _, f := range silent.Findings {
		if f.ID == id {
			t.Errorf("fires where it should be silent: %s", say(&f))
		}
	}
	unknown := slices.IndexFunc(silent.Unknown, func(u report.Unknown) bool { return u.ID == id })
	wantUnknown := slices.ContainsFunc(a.Files, func(f txtar.File) bool { return f.Name == "silent/unknown" })
	if wantUnknown != (unknown >= 0) {
		t.Errorf("silent: unknown is %t, want %t: a check that cannot be answered is not silent (%+v)", unknown >= 0, wantUnknown, silent.Unknown)
	}
}

// evidenced holds findings against fires/evidence.
func evidenced(t *testing.T, a *txtar.Archive, got []report.Finding) {
	t.Helper()
	var shown []string
	for i := range got {
		for _, e := range got[i].Evidence {
			shown = append(shown, e.Text)
		}
	}
	for _, f := range a.Files {
		if f.Name != "fires/evidence" {
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			if !slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, strings.TrimSpace(line)) }) {
				t.Errorf("no evidence shows %q, but %q", strings.TrimSpace(line), shown)
			}
		}
	}
}

// audited audits the files of one half of a scenario.
func audited(t *testing.T, a *txtar.Archive, half string) *report.Report {
	t.Helper()
	files := fstest.MapFS{}
	for _, node := range []string{"base", "base-nft", "base-ipvs"} {
		if slices.Contains(strings.Split(string(a.Comment), "\n"), node) {
			base(t, node, files)
		}
	}
	var edits []byte
	for _, f := range a.Files {
		name, ok := strings.CutPrefix(f.Name, half)
		if !ok {
			name, ok = strings.CutPrefix(f.Name, "both/")
		}
		switch {
		case !ok, name == "want", name == "evidence", name == "unknown":
		case name == "edit":
			edits = append(edits, f.Data...)
		default:
			files[name] = &fstest.MapFile{Data: f.Data}
		}
	}
	edit(t, files, string(edits))
	s, err := snapshot.LoadFS(files, "scenario")
	if err != nil {
		t.Fatalf("%s: %v", half, err)
	}
	r, err := explain.Audit(s, explain.AuditOptions{})
	if err != nil {
		t.Fatalf("%s: %v", half, err)
	}
	return r
}

// base fills in a recorded node on which nothing is wrong.
func base(t *testing.T, node string, into fstest.MapFS) {
	t.Helper()
	names, err := filepath.Glob("testdata/findings/" + node + "/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded node: %v", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		into[filepath.Base(name)] = &fstest.MapFile{Data: data}
	}
}

// edit changes files; see TestFindings.
func edit(t *testing.T, files fstest.MapFS, script string) {
	t.Helper()
	for line := range strings.Lines(script) {
		name, change, ok := strings.Cut(strings.TrimSpace(line), ": ")
		before, after, arrow := strings.Cut(strings.ReplaceAll(change, `\n`, "\n"), " => ")
		f := files[name]
		if !ok || !arrow || f == nil {
			t.Fatalf("edit: %q is not FILE: OLD => NEW with a file that is there", line)
		}
		text := string(f.Data)
		switch {
		case before == "(append)":
			text += after + "\n"
		case !strings.Contains(text, before):
			t.Fatalf("edit: %s does not hold %q", name, before)
		case after == "(delete)":
			var kept strings.Builder
			for l := range strings.Lines(text) {
				if !strings.Contains(l, before) {
					kept.WriteString(l)
				}
			}
			text = kept.String()
		default:
			text = strings.Replace(text, before, after, 1)
		}
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
}

// TestRecordedNode: on the node that scenarios stand on, nothing is wrong and nothing is unknown but what the files
// do not hold.
func TestRecordedNode(t *testing.T) {
	for _, node := range []string{"base", "base-nft"} {
		t.Run(node, func(t *testing.T) { recordedNode(t, node) })
	}
}

func recordedNode(t *testing.T, node string) {
	t.Helper()
	files := fstest.MapFS{}
	base(t, node, files)
	s, err := snapshot.LoadFS(files, "base")
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.Audit(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if why := deserved[f.ID+" "+f.Object.Namespace+"/"+f.Object.Name]; why == "" && f.Severity != check.Info {
			t.Errorf("%s", say(f))
		}
	}
}

// deserved are the findings of the recorded node that its objects deserve.
var deserved = map[string]string{
	"selector-matches-no-pods store/search":          "nobody made the pods",
	"service-without-endpoints store/search":         "it has none",
	"local-policy-no-local-endpoints store/checkout": "policy Local, and both pods are elsewhere",
}

func wanted(t *testing.T, a *txtar.Archive) [][]string {
	t.Helper()
	for _, f := range a.Files {
		if f.Name != "fires/want" {
			continue
		}
		var out [][]string
		for line := range strings.Lines(string(f.Data)) {
			parts := strings.Split(strings.TrimSpace(line), "|")
			if len(parts) != 3 {
				t.Fatalf("fires/want: %q is not severity | object | message", line)
			}
			for i := range parts {
				parts[i] = strings.TrimSpace(parts[i])
			}
			out = append(out, parts)
		}
		return out
	}
	t.Fatal("the scenario has no fires/want")
	return nil
}

func say(f *report.Finding) string {
	object := strings.TrimPrefix(f.Object.Namespace+"/"+f.Object.Name, "/")
	if f.Object.Port != "" {
		object += ":" + f.Object.Port
	}
	if f.Object.Endpoint != "" {
		object += " " + f.Object.Endpoint
	}
	return strings.Join([]string{f.Severity, object, f.Message}, " | ")
}

func matches(text string, want []string) bool {
	parts := strings.SplitN(text, " | ", 3)
	return (want[0] == "" || parts[0] == want[0]) && (want[1] == "" || parts[1] == want[1]) && strings.Contains(parts[2], want[2])
}

// complete: a finding says what, why and what next.
func complete(t *testing.T, f *report.Finding) {
	t.Helper()
	for name, text := range map[string]string{"subject": f.Subject, "message": f.Message, "want": f.Want, "got": f.Got, "remedy": f.Remedy} {
		if text == "" {
			t.Errorf("the finding has no %s: %+v", name, f)
		}
	}
	if len(f.Evidence) == 0 {
		t.Errorf("the finding has no evidence: %+v", f)
	}
	for _, e := range f.Evidence {
		if e.Source == "" || e.File == "" {
			t.Errorf("evidence without source or file: %+v", e)
		}
	}
}

// TestPages: every check has its page and every page its check; a page says what the catalogue says.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../docs/findings/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if id := strings.TrimSuffix(filepath.Base(f), ".md"); check.Lookup(id) == nil {
			t.Errorf("%s is the page of no check", f)
		}
	}
	for _, c := range check.Catalogue {
		page, ok := findings.Page(c.ID)
		if !ok {
			t.Errorf("%s has no page", c.ID)
			continue
		}
		for _, part := range []string{"# " + c.ID + "\n", "Severity: " + c.Severity, "## What it means", "## How to confirm", "## What to do"} {
			if !strings.Contains(page, part) {
				t.Errorf("the page of %s lacks %q", c.ID, part)
			}
		}
		if c.Title == "" {
			t.Errorf("%s has no title", c.ID)
		}
		for _, id := range c.Explains {
			if check.Lookup(id) == nil {
				t.Errorf("%s explains %s, which is no check", c.ID, id)
			}
		}
	}
	if !slices.IsSortedFunc(check.Catalogue, func(a, b check.Check) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("the catalogue is not sorted by id")
	}
}
