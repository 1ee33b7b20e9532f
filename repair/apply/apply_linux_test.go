package apply

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/report"
)

// TestLocked: two runs are not at work at the same time, and the second says who is.
func TestLocked(t *testing.T) {
	folder := t.TempDir()
	held, err := hold(folder, "the first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdWithin(folder, "the second", 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the first (pid %d)", os.Getpid())) {
		t.Errorf("held twice: %v", err)
	}
	// A program that was started holds it too, and longer.
	ended := make(chan error, 1)
	begun := time.Now()
	go func() { ended <- execute(t.Context(), []string{"/bin/sleep", "0.6"}, "", held) }()
	time.Sleep(200 * time.Millisecond)
	held.release()
	if _, err := holdWithin(folder, "the second", 0); err == nil {
		t.Error("free while a program is at work")
	}
	next, err := hold(folder, "the second")
	if err != nil {
		t.Fatal(err)
	}
	next.release()
	if took := time.Since(begun); took < 600*time.Millisecond {
		t.Errorf("free after %v", took)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// mounted runs f with a folder that is a file system of its own.
func mounted(t *testing.T, options string, f func(folder string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	folder := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its mounts with that
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("tmpfs", folder, "tmpfs", 0, options)
		}
		if err != nil {
			done <- err
			return
		}
		f(folder)
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestNoRoom: without room for the header nothing is written to the machine. Where the room ends later, what was done is
// taken back.
func TestNoRoom(t *testing.T) {
	m := newMachine(t)
	p := m.plan(t)
	before := m.state()
	refused := func(folder, want string) {
		t.Helper()
		run, err := Apply(t.Context(), p, m.options(t, folder))
		var r *Refusal
		if !errors.As(err, &r) || !strings.Contains(err.Error(), want) || run.State != report.RepairNotApplied || len(m.ran) > 0 {
			t.Errorf("%v, ran %v; want a refusal with %q", err, m.ran, want)
		}
		left, err := filepath.Glob(filepath.Join(folder, "*"+journalEnd))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v (%v)", left, err)
		}
	}
	mounted(t, "size=4k", func(folder string) { refused(folder, "no space left on device") })
	mounted(t, "size=1m", func(folder string) {
		if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
			return
		}
		refused(folder, "read-only file system")
	})

	// How long the header is, and so where the room ends.
	run, err := Apply(t.Context(), p, m.options(t, t.TempDir()))
	if err != nil || run.State != report.RepairApplied {
		t.Fatal(err)
	}
	const page = 4096
	for room := 20; room < 500; room += 97 {
		m := newMachine(t)
		scratch := t.TempDir()
		o := m.options(t, scratch)
		if _, err := Apply(t.Context(), p, o); err != nil {
			t.Fatal(err)
		}
		head := headLength(t, scratch)
		m = newMachine(t)
		pages := (head+page)/page + 1
		mounted(t, fmt.Sprintf("size=%dk", 4*pages), func(folder string) {
			o := m.options(t, folder)
			o.Program += strings.Repeat("x", pages*page-head-room)
			run, err := Apply(t.Context(), p, o)
			if err == nil || !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("room for %d bytes: %v", room, err)
			}
			if d := cmp.Diff(before, m.state()); d != "" {
				t.Errorf("room for %d bytes, %s, -before +now:\n%s", room, run.State, d)
			}
		})
	}
}

// headLength is how long the header of the only journal of a folder is.
func headLength(t *testing.T, folder string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*"+journalEnd))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	text, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.IndexByte(string(text), '\n') + 1
}

// TestTools: commands that are done without a program are understood whole or not at all, and programs read what they are
// given.
func TestTools(t *testing.T) {
	for _, argv := range []string{
		"sysctl -w", "sysctl net.ipv4.ip_forward=1", "sysctl -w kernel.panic=1", "sysctl -w net.ipv4.ip_forward", "sysctl -w net.../../../etc/passwd=1",
		"sysctl -w net.ipv4.conf.//.forwarding=1",
		"conntrack -F", "conntrack -D", "conntrack -D -p udp --orig-dst 10.0.0.1", "conntrack -D -p udp --orig-dst 10.0.0.1 --orig-port-dst 53 --reply-src 10.0.0.2",
		"conntrack -D -p icmp --orig-dst 10.0.0.1 --orig-port-dst 53 --reply-src 10.0.0.2 --reply-port-src 53",
		"conntrack -D -f ipv5 -p udp --orig-dst 10.0.0.1 --orig-port-dst 53 --reply-src 10.0.0.2 --reply-port-src 53",
		"no-such-program",
	} {
		if err := (native{}).check("", report.RepairCommand{Command: strings.Fields(argv)}); err == nil {
			t.Errorf("%s is understood", argv)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	input := strings.Repeat("0123456789abcdef\n", 1<<16)
	if err := execute(t.Context(), []string{"/bin/sh", "-c", "cat > " + out}, input, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != input {
		t.Errorf("%d of %d bytes: %v", len(got), len(input), err)
	}
	err := execute(t.Context(), []string{"/bin/sh", "-c", "echo what went wrong >&2; exit 7"}, "", nil)
	if err == nil || !strings.Contains(err.Error(), "what went wrong") {
		t.Errorf("%v", err)
	}
}
