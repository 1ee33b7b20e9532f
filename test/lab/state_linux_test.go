package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

// TestDownLeftover cleans up behind a lab whose process died, and spares a process that got a dead one's pid.
func TestDownLeftover(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	name := fmt.Sprintf("dead%d", os.Getpid())
	if found, err := DownLeftover(name); found || err != nil {
		t.Fatalf("before there is one: %v, %v", found, err)
	}
	s, err := newState(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newState(name); err == nil {
		t.Error("two labs of one name")
	}
	left, stranger := sleeper(t), sleeper(t)
	space := name + "-n1"
	err = errors.Join(s.addProcess("left", left.Process.Pid), s.addProcess("recycled", stranger.Process.Pid),
		s.addNamespace(space), s.addNamespace(name+"-never-made"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", space).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Processes[1].Start++
	owner := sleeper(t)
	start, err := startTime(owner.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s.Owner = Process{"lab", owner.Process.Pid, start}
	if err := errors.Join(s.save(), owner.Process.Kill()); err != nil {
		t.Fatal(err)
	}

	if found, err := DownLeftover(name); !found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := startTime(left.Process.Pid); err == nil {
		t.Error("a program is left")
	}
	if _, err := startTime(stranger.Process.Pid); err != nil {
		t.Errorf("a process that only has the pid of a program: %v", err)
	}
	for _, path := range []string{"/run/netns/" + space, folderOf(name)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
}

func TestReadStateOfStrangers(t *testing.T) {
	name := fmt.Sprintf("open%d", os.Getpid())
	if err := os.Mkdir(folderOf(name), 0o700); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folderOf(name)) }()
	if err := os.Chmod(folderOf(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := DownLeftover(name); err == nil {
		t.Error("a note that anybody can write is taken")
	}
}

// sleeper is a process that does nothing for long.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}
