// Package troubleshoot gives deploy/troubleshoot.yaml to Troubleshoot's own library: it loads, and its analyzers say of the
// program's documents what these say themselves. It is a module of its own: Troubleshoot's dependencies are no business of
// the program's.
package troubleshoot

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	analyzer "github.com/replicatedhq/troubleshoot/pkg/analyze"
	"github.com/replicatedhq/troubleshoot/pkg/loader"
)

const root = "../.."

// audited is what an audit prints.
func audited(t *testing.T, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, append([]string{"audit", "--fail-on=never", "-o=json"}, args...)...)
	c.Dir = root
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 4) {
		t.Fatalf("audit %v: %v", args, err)
	}
	return string(out)
}

func TestSpec(t *testing.T) {
	ctx := context.Background()
	text, err := os.ReadFile(filepath.Join(root, "deploy/troubleshoot.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := loader.LoadSpecs(ctx, loader.LoadOptions{RawSpecs: []string{string(text)}, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds.SupportBundlesV1Beta2) != 1 {
		t.Fatalf("%d specs", len(kinds.SupportBundlesV1Beta2))
	}
	spec := kinds.SupportBundlesV1Beta2[0].Spec
	if len(spec.Collectors) != 1 || spec.Collectors[0].RunDaemonSet == nil || len(spec.Analyzers) != 1 || spec.Analyzers[0].TextAnalyze == nil {
		t.Fatalf("collectors %+v, analyzers %+v", spec.Collectors, spec.Analyzers)
	}

	program := filepath.Join(t.TempDir(), "kubectl-svcnet")
	build := exec.Command("go", "build", "-o", program, "./cmd/kubectl-svcnet")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v: %s", err, out)
	}
	demo := audited(t, program, "--demo")
	recorded := audited(t, program, "-f", "test/recorded/testdata/kube-proxy-1.36-nftables")
	for name, tt := range map[string]struct{ log, verdict, text string }{
		"fail":     {log: demo},
		"recorded": {log: recorded},
		"pass":     {log: strings.Replace(demo, `"verdict":"fail"`, `"verdict":"pass"`, 1)},
		"unknown":  {log: strings.Replace(demo, `"verdict":"fail"`, `"verdict":"unknown"`, 1)},
		"no document": {log: "error: read the kubeconfig: no such file\n", verdict: "unknown",
			text: "A pod of svcnet printed no document"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.verdict == "" {
				var doc struct {
					Verdict string
					Summary struct{ Text string }
				}
				if err := json.Unmarshal([]byte(tt.log), &doc); err != nil {
					t.Fatal(err)
				}
				tt.verdict, tt.text = doc.Verdict, doc.Summary.Text
			}
			// The log of a pod is a file of this name.
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "svcnet"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"version.yaml": "", "svcnet/node-1.log": tt.log} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			results, err := analyzer.AnalyzeLocal(ctx, dir, spec.Analyzers, nil)
			if err != nil || len(results) != 1 {
				t.Fatalf("%d results, %v", len(results), err)
			}
			r := results[0]
			if r.IsFail != (tt.verdict == "fail") || r.IsWarn != (tt.verdict == "unknown") || r.IsPass != (tt.verdict == "pass") {
				t.Errorf("fail %v, warn %v, pass %v: the document says %s", r.IsFail, r.IsWarn, r.IsPass, tt.verdict)
			}
			if !strings.HasPrefix(r.Message, tt.text) {
				t.Errorf("message %q, want %q first", r.Message, tt.text)
			}
		})
	}
}
