package pty

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long something may take on a busy machine, where a test does not say otherwise.
const Patience = 30 * time.Second

// Terminal is a terminal: a program runs on one end of it, and the test sits at the other.
type Terminal struct {
	// Patience is how long the terminal waits for what it is told to wait for.
	Patience time.Duration
	// Modes are those that it had at first.
	Modes unix.Termios

	t              *testing.T
	keyboard, line *os.File

	mu     sync.Mutex
	out    bytes.Buffer
	screen *Screen
}

// What the terminal's size is.
const (
	Width  = 120
	Height = 40
)

// Open opens a terminal for a test.
func Open(t *testing.T) *Terminal {
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
		if err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: Height, Col: Width}); err != nil {
			return err
		}
		n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	line, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tt := &Terminal{t: t, keyboard: keyboard, line: line, Patience: Patience, screen: NewScreen(Width, Height)}
	tt.Modes = tt.Now()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keyboard.Read(b)
			tt.mu.Lock()
			tt.out.Write(b[:n])
			_, _ = tt.screen.Write(b[:n])
			tt.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(tt.Close)
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

// Now are the modes of the terminal.
func (tt *Terminal) Now() unix.Termios {
	m, err := unix.IoctlGetTermios(int(tt.line.Fd()), unix.TCGETS)
	if err != nil {
		tt.t.Fatal(err)
	}
	return *m
}

// Close takes the terminal away, as who closes a window does.
func (tt *Terminal) Close() {
	_ = tt.line.Close()
	_ = tt.keyboard.Close()
}

// Written is what was written to the terminal so far.
func (tt *Terminal) Written() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.out.String()
}

// Wait waits until all texts were written since a place, and returns how much was written by then.
func (tt *Terminal) Wait(since int, texts ...string) int {
	tt.t.Helper()
	for end := time.Now().Add(tt.Patience); ; time.Sleep(10 * time.Millisecond) {
		all := tt.Written()
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
			tt.t.Fatalf("%q was not written within %v; there is: %q", missing, tt.Patience, all[since:])
		}
	}
}

// Lines are what is on the screen now.
func (tt *Terminal) Lines() []string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.screen.Lines()
}

// See waits until what is on the screen is as it should be; what says how that is.
func (tt *Terminal) See(what string, is func(lines []string) bool) []string {
	tt.t.Helper()
	for end := time.Now().Add(tt.Patience); ; time.Sleep(50 * time.Millisecond) {
		lines := tt.Lines()
		if is(lines) {
			return lines
		}
		if time.Now().After(end) {
			tt.t.Fatalf("the screen does not show %s within %v:\n%s", what, tt.Patience, strings.TrimRight(strings.Join(lines, "\n"), "\n"))
		}
	}
}

// Press types.
func (tt *Terminal) Press(keys string) {
	tt.t.Helper()
	if _, err := tt.keyboard.WriteString(keys); err != nil {
		tt.t.Fatal(err)
	}
}

// Command is a program that has the terminal for itself, as its session's leader, once it begins.
func (tt *Terminal) Command(program string, args ...string) *Process {
	tt.t.Helper()
	c := exec.Command(program, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tt.t.TempDir()}
	return tt.Process(c)
}

// Process is a command that has the terminal for itself once it begins. Its environment gets a few variables more.
func (tt *Terminal) Process(c *exec.Cmd) *Process {
	c.Stdin, c.Stdout, c.Stderr = tt.line, tt.line, tt.line
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p := &Process{t: tt.t, cmd: c, patience: tt.Patience, ended: make(chan error, 1)}
	return p.With("TERM=xterm-256color", "LANG=C.UTF-8")
}

// Process is a program on a terminal.
type Process struct {
	t        *testing.T
	cmd      *exec.Cmd
	patience time.Duration
	ended    chan error
}

// With adds to the environment.
func (p *Process) With(env ...string) *Process {
	p.cmd.Env = append(p.cmd.Env, env...)
	return p
}

// Begin starts it. What still runs at the end of the test is killed.
func (p *Process) Begin() *Process {
	p.t.Helper()
	// A signal that the tests ignore, as they do below nohup, would be ignored by what they start; one that they listen to is as
	// it is by default.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// Signal sends it a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Code waits for its end and returns the exit code, -1 where a signal ended it. It is asked once.
func (p *Process) Code() int {
	p.t.Helper()
	return p.CodeWithin(p.patience)
}

// CodeWithin is Code for who has another patience.
func (p *Process) CodeWithin(within time.Duration) int {
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
