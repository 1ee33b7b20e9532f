package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the folder that holds the program for this run.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "svcnet-terminal-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "svcnet"), "../../cmd/kubectl-svcnet").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return dir, nil
})

// program is the path of the program that was built for this run.
func program(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "svcnet")
}
