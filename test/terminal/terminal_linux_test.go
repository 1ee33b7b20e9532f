package terminal

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcnet/svcnet/test/terminal/pty"
)

// drawn is on the screen once the recorded node was read.
const drawn = "store/checkout"

// TestEnds holds that the terminal is as it was, whatever ends the screen.
func TestEnds(t *testing.T) {
	for _, end := range []struct {
		name string
		keys string
		sent os.Signal
		code int
	}{
		{"q", "q", nil, 0},
		{"ctrl-c", "\x03", nil, 0},
		{"SIGTERM", "", syscall.SIGTERM, 130},
		{"SIGINT", "", syscall.SIGINT, 130},
		{"SIGHUP", "", syscall.SIGHUP, 130},
	} {
		t.Run(end.name, func(t *testing.T) {
			tt := pty.Open(t)
			p := tt.Command(program(t), "tui", "--demo").Begin()
			tt.Wait(0, drawn, pty.EntersScreen, pty.Mouse)
			if tt.Now() == tt.Modes {
				t.Error("the modes of the terminal did not change: nothing is tested")
			}
			if end.sent != nil {
				p.Signal(end.sent)
			} else {
				tt.Press(end.keys)
			}
			if code := p.Code(); code != end.code {
				t.Errorf("exit code %d, want %d", code, end.code)
			}
			tt.Wait(0, pty.LeavesScreen)
			tt.Sane()
			if left := tt.Left(); left != "" {
				t.Errorf("it leaves %q behind", left)
			}
		})
	}
}

// TestGone holds that the program ends when its terminal does.
func TestGone(t *testing.T) {
	for name, start := range map[string]func(*pty.Terminal) *pty.Process{
		"hangup": func(tt *pty.Terminal) *pty.Process { return tt.Command(program(t), "tui", "--demo") },
		// Nobody says so then; there are no more keys.
		"hangup is ignored": func(tt *pty.Terminal) *pty.Process {
			return tt.Command("/bin/sh", "-c", `trap "" HUP; exec "$0" tui --demo`, program(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt := pty.Open(t)
			p := start(tt).Begin()
			tt.Wait(0, drawn)
			tt.Close()
			p.CodeWithin(5 * time.Second)
		})
	}
}

// TestPanic holds that a mistake of the program is one line on a terminal that can be used.
func TestPanic(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		"reading": `error: this is a mistake of svcnet: runtime error: invalid memory address or nil pointer dereference, terminal\.panics\.func2 at child_linux_test\.go:\d+ ` +
			"\\(please report this line; `svcnet audit` prints what the screen shows\\)\r\n",
		"drawing": `error: this is a mistake of svcnet: the clock stands still, terminal\.panics\.func1 at child_linux_test\.go:\d+ \(please .*\)` + "\r\n",
	} {
		t.Run(where, func(t *testing.T) {
			tt := pty.Open(t)
			p := tt.Command(self).With(child+"=panic", "PANIC="+where).Begin()
			if code := p.Code(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			tt.Wait(0, "error:", pty.LeavesScreen)
			time.Sleep(100 * time.Millisecond) // for what should not come
			tt.Sane()
			if left := tt.Left(); !regexp.MustCompile("^" + want + "$").MatchString(left) {
				t.Errorf("it leaves %q, want %q", left, want)
			}
		})
	}
}

// TestSuspend holds that ctrl-z gives the terminal to the shell, and fg the screen back.
func TestSuspend(t *testing.T) {
	tt := pty.Open(t)
	p := underShell(t, tt).Begin()
	at := tt.Wait(0, drawn)
	for range 2 {
		tt.Press("\x1a")
		at = tt.Wait(at, "shell: stopped")
		tt.Sane()
		tt.Press("fg\n")
		at = tt.Wait(at, pty.EntersScreen, pty.Mouse, pty.Signs, pty.Paste, drawn)
		if tt.Now() == tt.Modes {
			t.Error("the screen is back, and the modes of the terminal are the shell's")
		}
	}
	// It takes keys again.
	tt.Press("2")
	at = tt.Wait(at, "missing-endpoint-rule")
	tt.Press("q")
	tt.Wait(at, "shell: ended 0")
	if code := p.Code(); code != 0 {
		t.Errorf("the shell: exit code %d", code)
	}
	tt.Sane()
}

// TestSuspendedEnds holds that a program that is stopped ends when it is killed, without a hand on the terminal.
func TestSuspendedEnds(t *testing.T) {
	tt := pty.Open(t)
	p := underShell(t, tt).Begin()
	at := tt.Wait(0, drawn)
	tt.Press("\x1a")
	at = tt.Wait(at, "shell: stopped")
	tt.Press("kill\n")
	tt.Wait(at, "shell: ended 130")
	if code := p.Code(); code != 0 {
		t.Errorf("the shell: exit code %d", code)
	}
	tt.Sane()
	if rest := tt.Written()[at:]; rest != "kill\r\nshell: ended 130\r\n" {
		t.Errorf("on the shell's terminal is %q", rest)
	}
}

// TestSuspendNowhere holds that ctrl-z does nothing where no shell could take over.
func TestSuspendNowhere(t *testing.T) {
	tt := pty.Open(t)
	p := tt.Command(program(t), "tui", "--demo").Begin()
	at := tt.Wait(0, drawn)
	tt.Press("\x1a")
	at = tt.Wait(at, "there is nowhere to go back to")
	if strings.Contains(tt.Written(), pty.LeavesScreen) {
		t.Error("it left the screen")
	}
	tt.Press("q")
	tt.Wait(at, pty.LeavesScreen)
	p.Code()
	tt.Sane()
}

func underShell(t *testing.T, tt *pty.Terminal) *pty.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return tt.Command(self).With(child+"=shell", "PROGRAM="+program(t), "ARGS=tui --demo")
}

// TestPiped holds that keys come from the terminal where the evidence comes through a pipe.
func TestPiped(t *testing.T) {
	tt := pty.Open(t)
	p := tt.Command("/bin/sh", "-c", `"$0" collect --demo -o - | "$0" tui -f -`, program(t)).Begin()
	at := tt.Wait(0, drawn, "standard input")
	tt.Press("2")
	tt.Wait(at, "missing-endpoint-rule")
	tt.Press("q")
	if code := p.Code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tt.Sane()
}

// TestNobodyAsksTheTerminal holds that a command writes what it prints to a terminal and nothing else: libraries of the
// screen would ask for colours, and wait for answers.
func TestNobodyAsksTheTerminal(t *testing.T) {
	tt := pty.Open(t)
	p := tt.Command(program(t), "version").Begin()
	if code := p.Code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tt.Wait(0, "\n")
	time.Sleep(100 * time.Millisecond) // for what should not come
	if all := tt.Written(); !regexp.MustCompile(`^svcnet [^\x1b\n]*\r\n$`).MatchString(all) {
		t.Errorf("on the terminal is %q", all)
	}
}

// TestEnvironment holds that the program finds $CI as it was.
func TestEnvironment(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, `CI is "", there: false`},
		{[]string{"CI="}, `CI is "", there: true`},
		{[]string{"CI=yes"}, `CI is "yes", there: true`},
	} {
		tt := pty.Open(t)
		p := tt.Command(self).With(append(c.env, child+"=environment")...).Begin()
		p.Code()
		tt.Wait(0, "\n")
		time.Sleep(100 * time.Millisecond) // for what should not come
		if got := strings.TrimSpace(tt.Written()); got != c.want {
			t.Errorf("%v: on the terminal is %q, want %q", c.env, got, c.want)
		}
	}
}
