package layers

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"slices"
	"strings"
	"testing"
)

// rule looks at one file and says what it must not do, one line each.
type rule struct {
	name  string
	check func(source) []string
}

var rules = []rule{
	{"direction", direction},
	{"purity", purity},
	{"leaves", leaves},
	{"linux only", onLinuxOnly},
	{"test only", forTestsOnly},
	{"terminal", inTUIOnly},
	{"no init", noInit},
	{"names", names},
}

// TestRules holds every rule against every file.
func TestRules(t *testing.T) {
	files := sources(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, s := range files {
				for _, line := range r.check(s) {
					t.Errorf("%s %s", s.file, line)
				}
			}
		})
	}
}

// TestRulesBite gives every rule files that break it, and files that come close.
func TestRulesBite(t *testing.T) {
	tests := []struct {
		rule, file, text string
		breaks           bool
	}{
		{"direction", "explain/render/tree.go", `import "github.com/svcnet/svcnet/explain/netfilter"`, true},
		{"direction", "explain/render/tree.go", `import "github.com/svcnet/svcnet/explain/report"`, false},
		{"direction", "explain/intent/x.go", `import "github.com/svcnet/svcnet/explain/netfilter"`, true},
		{"direction", "explain/netfilter/x.go", `import "github.com/svcnet/svcnet/collectors"`, true},
		{"direction", "explain/netfilter/x.go", `import "github.com/svcnet/svcnet/collectors/snapshot"`, true},
		{"direction", "explain/netfilter/x_test.go", `import "github.com/svcnet/svcnet/collectors/snapshot"`, false},
		{"direction", "explain/netfilter/x_test.go", `import "github.com/svcnet/svcnet/explain/intent"`, true},
		{"direction", "explain/x.go", `import "github.com/svcnet/svcnet/explain/check"`, false},
		{"direction", "explain/x.go", `import "github.com/svcnet/svcnet/cmd"`, true},
		{"direction", "collectors/x.go", `import "github.com/svcnet/svcnet/explain"`, true},
		{"direction", "cmd/x.go", `import "github.com/svcnet/svcnet/collectors"`, false},
		{"direction", "newfolder/x.go", ``, true},
		{"purity", "explain/host/x.go", `import "os"`, true},
		{"purity", "explain/host/x.go", `import "net"`, true},
		{"purity", "explain/host/x.go", `import "net/netip"`, false},
		{"purity", "explain/host/x_test.go", `import "os"`, false},
		{"purity", "redact/x.go", `import "os/exec"`, true},
		{"purity", "repair/plan/x.go", `import "k8s.io/client-go/rest"`, true},
		{"purity", "repair/apply.go", `import "os/exec"`, false},
		{"purity", "explain/x.go", `import corev1 "k8s.io/api/core/v1"`, false},
		{"purity", "explain/x.go", "import \"time\"\nvar d = time.Second", false},
		{"purity", "explain/x.go", "import \"time\"\nvar now = time.Now", true},
		{"leaves", "explain/report/x.go", `import "github.com/svcnet/svcnet/explain/host"`, true},
		{"leaves", "collectors/snapshot/x.go", `import "github.com/svcnet/svcnet/collectors"`, true},
		{"linux only", "collectors/x.go", `import "github.com/vishvananda/netlink"`, true},
		{"linux only", "collectors/x_linux.go", `import "github.com/vishvananda/netlink"`, false},
		{"linux only", "collectors/x_linux_test.go", `import "golang.org/x/sys/unix"`, false},
		{"linux only", "test/x_test.go", "//go:build linux\n", false},
		{"test only", "explain/x.go", `import "github.com/google/go-cmp/cmp"`, true},
		{"test only", "explain/x_test.go", `import "github.com/google/go-cmp/cmp"`, false},
		{"terminal", "cmd/x.go", `import tea "github.com/charmbracelet/bubbletea"`, true},
		{"terminal", "tui/x.go", `import tea "github.com/charmbracelet/bubbletea"`, false},
		{"terminal", "explain/render/x.go", `import "github.com/charmbracelet/x/ansi"`, true},
		{"direction", "tui/x.go", `import "github.com/svcnet/svcnet/collectors"`, true},
		{"direction", "tui/x_test.go", `import "github.com/svcnet/svcnet/test/scale"`, false},
		{"direction", "tui/quiet/x.go", `import "github.com/svcnet/svcnet/explain"`, true},
		{"no init", "cmd/x.go", `func init() {}`, true},
		{"no init", "cmd/x.go", `type t int; func (t) init() {}`, false},
		{"names", "explain/util/x.go", ``, true},
		{"names", "explain/host/x.go", ``, false},
	}
	for _, tt := range tests {
		text := "package p\n" + tt.text
		if strings.HasPrefix(tt.text, "//go:build") {
			text = tt.text + "\npackage p\nimport \"golang.org/x/sys/unix\""
		}
		s, err := parse(tt.file, text)
		if err != nil {
			t.Errorf("%s %q: %v", tt.file, tt.text, err)
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == tt.rule })
		if i < 0 {
			t.Fatalf("there is no rule %q", tt.rule)
		}
		if got := rules[i].check(s); (len(got) > 0) != tt.breaks {
			t.Errorf("%s: %s with %q: %q, want it broken: %v", tt.rule, tt.file, tt.text, got, tt.breaks)
		}
	}
}

// direction: every import of this module goes to a package that the importing one may know.
func direction(s source) []string {
	l := layerOf(s.folder)
	if l == nil {
		return []string{fmt.Sprintf("is in folder %s, which is in no layer: add a line to rules_test.go that says what it may import and why", s.folder)}
	}
	var out []string
	for _, imported := range s.imports {
		folder, ours := strings.CutPrefix(imported, module+"/")
		if !ours || folder == s.folder || below(folder, l.folder) || belowAny(folder, l.may) {
			continue
		}
		// Tests of the core may load the evidence that their package is given, or have it made.
		if s.test && belowAny(s.folder, pure) && slices.Contains(evidenceForTests, folder) {
			continue
		}
		// What is planned and done is held against the kernel, read as everywhere.
		if s.test && belowAny(s.folder, []string{"repair"}) && (folder == "collectors" || folder == "collectors/snapshot") {
			continue
		}
		// The catalogue and its pages go together.
		if s.test && s.folder == "explain" && folder == "docs/findings" {
			continue
		}
		// Redaction is right when the explanation stays the same.
		if s.test && s.folder == "redact" && (folder == "explain" || folder == "explain/report") {
			continue
		}
		// The interactive view is tested on the recorded node, on simulated ones, and with the real pages.
		if s.test && s.folder == "tui" && slices.Contains([]string{"cmd/demo", "test/scale", "docs/findings"}, folder) {
			continue
		}
		// What collectors write down is read by explain/host: their tests hold the two together.
		if s.test && s.folder == "collectors" && folder == "explain/host" {
			continue
		}
		out = append(out, fmt.Sprintf("imports %s: of this module %s may import %s (%s)", folder, l.folder, list(l.may), l.reason))
	}
	return out
}

// layerOf is the layer with the longest folder that holds the given one.
func layerOf(folder string) *layer {
	var best *layer
	for i := range layers {
		l := &layers[i]
		if below(folder, l.folder) && (best == nil || len(l.folder) > len(best.folder)) {
			best = l
		}
	}
	return best
}

// purity: the core reaches nothing beside its arguments.
func purity(s source) []string {
	if s.test || !belowAny(s.folder, pure) {
		return nil
	}
	var out []string
	for _, imported := range s.imports {
		for _, o := range outside {
			// A standard package is meant alone: net/netip is not net.
			if imported == o.path || strings.Contains(o.path, ".") && below(imported, o.path) {
				out = append(out, fmt.Sprintf("imports %s, and %s is pure: %s", imported, s.folder, o.reason))
			}
		}
	}
	for _, c := range clocks {
		if usesTime(s, c) {
			out = append(out, fmt.Sprintf("uses time.%s, and %s is pure: ages count from the capture time, so that the same evidence always prints the same bytes", c, s.folder))
		}
	}
	return out
}

// leaves: the two leaves import nothing of this module.
func leaves(s source) []string {
	if s.test || s.folder != "explain/report" && s.folder != "collectors/snapshot" {
		return nil
	}
	var out []string
	for _, imported := range s.imports {
		if below(imported, module) {
			out = append(out, fmt.Sprintf("imports %s, and %s is a leaf", imported, s.folder))
		}
	}
	return out
}

// onLinuxOnly: what builds on Linux only stays in files that are built there only.
func onLinuxOnly(s source) []string {
	if builtOnLinuxOnly(s) {
		return nil
	}
	var out []string
	for _, imported := range s.imports {
		if belowAny(imported, linuxOnly) {
			out = append(out, fmt.Sprintf("imports %s: move it to a file named _linux.go (the program builds on darwin and windows, where all but live reading works)", imported))
		}
	}
	return out
}

// builtOnLinuxOnly tells so by the file's name or its build constraint.
func builtOnLinuxOnly(s source) bool {
	base := strings.TrimSuffix(strings.TrimSuffix(s.file, ".go"), "_test")
	if strings.HasSuffix(base, "_linux") {
		return true
	}
	for _, group := range s.syntax.Comments {
		if group.Pos() > s.syntax.Package {
			break
		}
		for _, c := range group.List {
			x, err := constraint.Parse(c.Text)
			if err == nil && !x.Eval(func(tag string) bool { return tag != "linux" }) {
				return true
			}
		}
	}
	return false
}

// forTestsOnly: modules for tests do not end up in the program.
func forTestsOnly(s source) []string {
	if s.test || belowAny(s.folder, []string{"hack", "test"}) {
		return nil
	}
	var out []string
	for _, imported := range s.imports {
		if belowAny(imported, testOnly) {
			out = append(out, fmt.Sprintf("imports %s, which is for tests only", imported))
		}
	}
	return out
}

// inTUIOnly, but for programs around the repository: another version of the library of the interactive view changes one folder.
func inTUIOnly(s source) []string {
	if belowAny(s.folder, []string{"tui", "test", "hack"}) {
		return nil
	}
	var out []string
	for _, imported := range s.imports {
		if strings.HasPrefix(imported, "github.com/charmbracelet/") || strings.HasPrefix(imported, "github.com/muesli/") {
			out = append(out, fmt.Sprintf("imports %s, which belongs to tui", imported))
		}
	}
	return out
}

// noInit: tables are slices that a reader finds, not registrations that happen on import.
func noInit(s source) []string {
	for _, decl := range s.syntax.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			return []string{"has an init function: put a line into the table instead (docs/architecture.md)"}
		}
	}
	return nil
}

// names: a package is named for what it holds.
func names(s source) []string {
	var out []string
	for _, part := range append(strings.Split(s.folder, "/"), strings.TrimSuffix(s.syntax.Name.Name, "_test")) {
		if slices.Contains(emptyNames, part) {
			out = append(out, fmt.Sprintf("lies in a package named %q, which says nothing about what it holds: name it for its subject", part))
		}
	}
	return out
}

// usesTime tells whether a file uses that name of package time.
func usesTime(s source, name string) bool {
	if !slices.Contains(s.imports, "time") {
		return false
	}
	used := false
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
				used = true
			}
		}
		return !used
	})
	return used
}

func list(folders []string) string {
	if len(folders) == 0 {
		return "nothing"
	}
	return strings.Join(folders, ", ")
}
