package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// notInstalled is the error of a command that is not on this machine.
type notInstalled struct{ name string }

func (e notInstalled) Error() string { return e.name + " is not installed" }

// sbin is searched after PATH: sudo and minimal images often leave these out.
var sbin = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"}

// lookCommand finds the first of names that this machine has.
func lookCommand(names ...string) (string, error) {
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	for _, name := range names {
		for _, dir := range sbin {
			if p, err := exec.LookPath(dir + "/" + name); err == nil {
				return p, nil
			}
		}
	}
	return "", notInstalled{names[0]}
}

// run runs a command in the thread's network namespace and returns what it printed. The error says why in one
// line: what the command said last on standard error, or how it ended. A command that hangs is killed.
func (p *place) run(ctx context.Context, path string, args ...string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	c := exec.CommandContext(within, path, args...)
	// Words and numbers as the parsers know them, whatever the user's language.
	c.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=C")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	// No terminal signal reaches the command: an interrupted svcnet ends it itself.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	err := c.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		return nil, fmt.Errorf("no answer after %v", p.timeout)
	}
	if line := lastLine(said.String()); line != "" {
		if saysDenied(line) {
			return nil, fmt.Errorf("%s: %w", line, fs.ErrPermission)
		}
		return nil, errors.New(line)
	}
	return nil, err
}

// saysDenied tells whether a command complains of rights that it lacks.
func saysDenied(line string) bool {
	return strings.Contains(line, "Permission denied") || strings.Contains(line, "Operation not permitted") || strings.Contains(line, "must be root")
}

// lastLine is the last line that is not empty; commands say what is wrong before they say "try --help".
func lastLine(s string) string {
	last := ""
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Try `") || strings.HasPrefix(line, "Perhaps iptables") {
			continue
		}
		last = line
	}
	return last
}

// couldNot makes evidence of an error: what was read, why that failed, what to do next.
func couldNot(file string, f snapshot.Format, what string, err error) snapshot.Evidence {
	var gone notInstalled
	switch {
	case errors.Is(err, fs.ErrPermission):
		why := err.Error()
		// A command that was denied says so itself.
		if line, ok := strings.CutSuffix(why, ": "+fs.ErrPermission.Error()); ok && saysDenied(line) {
			why = line
		}
		next := "run as root: sudo, or a privileged container of the host's network"
		if os.Geteuid() == 0 {
			next = "run as root with all capabilities: on the node itself, or in a privileged container of the host's network"
		}
		return missed(file, f, snapshot.Denied, fmt.Errorf("read %s: %s (%s)", what, why, next))
	case errors.As(err, &gone):
		return missed(file, f, snapshot.Failed, fmt.Errorf("read %s: %w (install it, or run svcnet where it is)", what, err))
	case errors.Is(err, context.Canceled):
		return missed(file, f, snapshot.NotCollected, fmt.Errorf("read %s: interrupted", what))
	}
	return missed(file, f, snapshot.Failed, fmt.Errorf("read %s: %w", what, err))
}
