package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestReadme runs the README's first command as it is written there: with nothing but Go it shows what the
// program is for.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const first = "go run ./cmd/kubectl-svcnet trace svc/web --demo"
	if !strings.Contains(string(text), first) {
		t.Fatalf("the README does not hold %q", first)
	}
	if !strings.Contains(string(text), "make test") {
		t.Error("the README does not hold \"make test\"")
	}
	words := strings.Fields(first)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", first, err, out)
	}
	for _, want := range []string{"store/web", "10.244.1.11", "stale", "10.244.2.12", "missing", "NodePort"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
}
