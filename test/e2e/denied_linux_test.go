package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// nobody is the user to become when the tests run as root, whom no permission stops.
const nobody = 65534

// asNobody gives up root.
func asNobody(cmd *exec.Cmd) {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// openDir makes a folder that nobody may enter, but in which some files may not be read.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "svcnet-denied-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}

// TestDeniedFile: the one file that was named may not be read.
func TestDeniedFile(t *testing.T) {
	file := filepath.Join(openDir(t), "iptables-save.txt")
	copyFile(t, filepath.Join(nodeDir, "iptables-save.txt"), file, 0)
	r := runAs(t, asNobody, "trace", "svc/web", "-n", "store", "-f", file)
	if r.code != 1 || r.stdout != "" {
		t.Errorf("exit %d, output %q", r.code, r.stdout)
	}
	if line := r.oneLine(t); !strings.Contains(line, "permission denied") || !strings.Contains(line, "iptables-save.txt") {
		t.Errorf("the line does not say what may not be read: %s", line)
	}
}

// TestDeniedAmongOthers: rules that may not be read are no rules that are not there. The rest is read, the
// document says what is missing, and the exit code too.
func TestDeniedAmongOthers(t *testing.T) {
	dir := openDir(t)
	for _, f := range []string{"objects.yaml", "ip-addr.txt"} {
		copyFile(t, filepath.Join(nodeDir, f), filepath.Join(dir, f), 0o644)
	}
	copyFile(t, filepath.Join(nodeDir, "iptables-save.txt"), filepath.Join(dir, "iptables-save.txt"), 0)
	r := runAs(t, asNobody, "trace", "svc/web", "-n", "store", "-o", "json", "-f", dir)
	if r.code != 4 {
		t.Errorf("exit %d, want 4: %s", r.code, r.stderr)
	}
	tr := valid(t, r.stdout)
	i := slices.IndexFunc(tr.Sources, func(s report.Source) bool { return s.File == "iptables-save.txt" })
	if i < 0 || tr.Sources[i].Status != string(snapshot.Denied) {
		t.Errorf("the denied file is not named as denied: %+v", tr.Sources)
	}
	nothingInvented(t, tr)
}

// TestDeniedFolder: the folder that was named may not be entered.
func TestDeniedFolder(t *testing.T) {
	dir := filepath.Join(openDir(t), "node")
	if err := os.Mkdir(dir, 0); err != nil {
		t.Fatal(err)
	}
	r := runAs(t, asNobody, "trace", "svc/web", "-f", dir)
	if r.code != 1 {
		t.Errorf("exit %d", r.code)
	}
	r.oneLine(t)
}
