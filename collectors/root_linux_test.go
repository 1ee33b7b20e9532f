package collectors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// TestEnterRootRefuses: what is no root of a node is said at once, and not found later as twenty sources that fail.
func TestEnterRootRefuses(t *testing.T) {
	empty := t.TempDir()
	for dir, want := range map[string]string{
		filepath.Join(empty, "none"): "no such file or directory (mount the host's / there",
		empty:                        "it has no /proc of this kernel (mount",
	} {
		_, err := Collect(t.Context(), Options{Root: dir, Silent: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// TestRootDenied: without the right to enter a root its sources are denied, which is neither an error nor an absence.
func TestRootDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	var s *snapshot.Snapshot
	err := onThread(func() error {
		// The capability is taken from the thread, which nobody uses afterwards; entering needs another one, made like it.
		runtime.LockOSThread()
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var d [2]unix.CapUserData
		if err := unix.Capget(&h, &d[0]); err != nil {
			return err
		}
		d[0].Effective &^= 1 << unix.CAP_SYS_CHROOT
		if err := unix.Capset(&h, &d[0]); err != nil {
			return err
		}
		if err := EnterRoot("/"); !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("entered all the same: %w", err)
		}
		s = rootDenied("n1", fs.ErrPermission)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Evidence {
		if e.Status != snapshot.Denied || e.Error == "" {
			t.Errorf("%s: %s %s", e.File, e.Status, e.Error)
		}
	}
	if len(s.Evidence) == 0 || s.Node != "n1" {
		t.Errorf("%d pieces of node %q", len(s.Evidence), s.Node)
	}
}

// TestRoot reads below a root that has a /proc, a log of kube-proxy and none of this machine's programs. Afterwards the
// process still sees its own root.
func TestRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const inside = "SVCNET_TEST_ROOT"
	if os.Getenv(inside) == "" {
		// Mounts are for the eyes of a process of their own.
		c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRoot$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestRoot") {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	root := t.TempDir()
	log := filepath.Join(root, "var/log/pods/kube-system_kube-proxy-x/kube-proxy")
	proc := filepath.Join(root, "proc")
	for _, dir := range []string{proc, log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(log, "0.log"), []byte("I0101 00:00:00.000000 1 server.go:1] \"Version info\" version=\"v1.36.3\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc", proc, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	// Before the folder is removed with what is in it.
	t.Cleanup(func() {
		if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Collect(t.Context(), Options{Root: root, Silent: true})
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]snapshot.Evidence{}
	for _, e := range s.Evidence {
		status[e.File] = e
	}
	if e := status[toolsFile]; e.Status != snapshot.Absent {
		t.Errorf("%s: %s %q: the programs are those of another root", toolsFile, e.Status, e.Data)
	}
	if e := status["sysctl.txt"]; e.Status != snapshot.OK {
		t.Errorf("sysctl.txt: %s %s", e.Status, e.Error)
	}
	if e := (&proxy{pid: -1}).log(); e.Status != snapshot.NotCollected {
		t.Errorf("another goroutine sees the root too: %s", e.Data)
	}
	var e snapshot.Evidence
	if err := onThread(func() error {
		err := EnterRoot(root)
		e = (&proxy{pid: -1}).log()
		return err
	}); err != nil || e.Status != snapshot.OK {
		t.Errorf("the log below the root: %s %s, %v", e.Status, e.Error, err)
	}
	if now, err := os.Getwd(); err != nil || now != here {
		t.Errorf("working directory is %s, %v: was %s", now, err, here)
	}
}
