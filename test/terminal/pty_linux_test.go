package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long something may take on a busy machine.
const patience = 30 * time.Second

// tty is a terminal: a program runs on one end of it, and the test sits at the other.
type tty struct {
	t              *testing.T
	keyboard, line *os.File
	modes          unix.Termios

	mu  sync.Mutex
	out bytes.Buffer
}

// newTTY opens a terminal of 120 by 40.
func newTTY(t *testing.T) *tty {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	control(t, keyboard, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		if err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
			return err
		}
		n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	line, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tt := &tty{t: t, keyboard: keyboard, line: line}
	tt.modes = tt.now()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keyboard.Read(b)
			tt.mu.Lock()
			tt.out.Write(b[:n])
			tt.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = keyboard.Close()
		_ = line.Close()
	})
	return tt
}

// control does something with a descriptor. File.Fd would take it from Go's poller, and a Read that waits in the kernel
// then keeps the file open when it is closed.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := c.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// now are the modes of the terminal.
func (tt *tty) now() unix.Termios {
	m, err := unix.IoctlGetTermios(int(tt.line.Fd()), unix.TCGETS)
	if err != nil {
		tt.t.Fatal(err)
	}
	return *m
}

// close takes the terminal away, as who closes a window does.
func (tt *tty) close() {
	_ = tt.line.Close()
	_ = tt.keyboard.Close()
}

// written is what was written to the terminal so far.
func (tt *tty) written() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.out.String()
}

// wait waits until all texts were written since a place, and returns how much was written by then.
func (tt *tty) wait(since int, texts ...string) int {
	tt.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		all := tt.written()
		missing := ""
		for _, text := range texts {
			if !strings.Contains(all[since:], text) {
				missing = text
			}
		}
		if missing == "" {
			return len(all)
		}
		if time.Now().After(end) {
			tt.t.Fatalf("%q was not written within %v; there is: %q", missing, patience, all[since:])
		}
	}
}

// press types.
func (tt *tty) press(keys string) {
	tt.t.Helper()
	if _, err := tt.keyboard.WriteString(keys); err != nil {
		tt.t.Fatal(err)
	}
}

// start runs a program that has the terminal for itself, as its session's leader.
func (tt *tty) start(program string, args ...string) *process {
	tt.t.Helper()
	c := exec.Command(program, args...)
	c.Stdin, c.Stdout, c.Stderr = tt.line, tt.line, tt.line
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tt.t.TempDir(), "TERM=xterm-256color", "LANG=C.UTF-8"}
	return &process{t: tt.t, cmd: c, ended: make(chan error, 1)}
}

// process is a program on a terminal.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan error
}

// with adds to the environment.
func (p *process) with(env ...string) *process {
	p.cmd.Env = append(p.cmd.Env, env...)
	return p
}

func (p *process) begin() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end and returns the exit code.
func (p *process) code(within time.Duration) int {
	p.t.Helper()
	select {
	case err := <-p.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.t.Fatal(err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("it still runs after %v", within)
		return 0
	}
}

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
