package terminal

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the screen turns on, and how each is turned off.
const (
	entersScreen, leavesScreen = "\x1b[?1049h", "\x1b[?1049l"
	hidesCursor, showsCursor   = "\x1b[?25l", "\x1b[?25h"
	mouse, noMouse             = "\x1b[?1002h", "\x1b[?1002l"
	signs, noSigns             = "\x1b[?1006h", "\x1b[?1006l"
	paste, noPaste             = "\x1b[?2004h", "\x1b[?2004l"
)

// drawn is on the screen once the recorded node was read.
const drawn = "store/checkout"

// sane holds that the terminal is as it was before: its modes, and what was turned on.
func (tt *tty) sane() {
	tt.t.Helper()
	if now := tt.now(); now != tt.modes {
		tt.t.Errorf("the modes of the terminal are others: %+v, they were %+v", now, tt.modes)
	}
	all := tt.written()
	for _, turned := range [][2]string{{entersScreen, leavesScreen}, {hidesCursor, showsCursor}, {mouse, noMouse}, {signs, noSigns}, {paste, noPaste}} {
		if on, off := strings.LastIndex(all, turned[0]), strings.LastIndex(all, turned[1]); on < 0 || off < on {
			tt.t.Errorf("%q was written at %d and %q at %d, want the second one behind the first: %q", turned[0], on, turned[1], off, all[max(0, len(all)-400):])
		}
	}
}

// left is what stands on the terminal once the screen is left.
func (tt *tty) left() string {
	all := tt.written()
	all = all[strings.LastIndex(all, leavesScreen)+len(leavesScreen):]
	return regexp.MustCompile(`\x1b\[[?0-9;]*[a-zA-Z]`).ReplaceAllString(all, "")
}

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
			tt := newTTY(t)
			p := tt.start(program(t), "tui", "--demo").begin()
			tt.wait(0, drawn, entersScreen, mouse)
			if tt.now() == tt.modes {
				t.Error("the modes of the terminal did not change: nothing is tested")
			}
			if end.sent != nil {
				p.signal(end.sent)
			} else {
				tt.press(end.keys)
			}
			if code := p.code(patience); code != end.code {
				t.Errorf("exit code %d, want %d", code, end.code)
			}
			tt.wait(0, leavesScreen)
			tt.sane()
			if left := tt.left(); left != "" {
				t.Errorf("it leaves %q behind", left)
			}
		})
	}
}

// TestGone holds that the program ends when its terminal does.
func TestGone(t *testing.T) {
	for name, start := range map[string]func(*tty) *process{
		"hangup": func(tt *tty) *process { return tt.start(program(t), "tui", "--demo") },
		// Nobody says so then; there are no more keys.
		"hangup is ignored": func(tt *tty) *process {
			return tt.start("/bin/sh", "-c", `trap "" HUP; exec "$0" tui --demo`, program(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newTTY(t)
			p := start(tt).begin()
			tt.wait(0, drawn)
			tt.close()
			p.code(5 * time.Second)
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
			tt := newTTY(t)
			p := tt.start(self).with(child+"=panic", "PANIC="+where).begin()
			if code := p.code(patience); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			tt.wait(0, "error:", leavesScreen)
			time.Sleep(100 * time.Millisecond) // for what should not come
			tt.sane()
			if left := tt.left(); !regexp.MustCompile("^" + want + "$").MatchString(left) {
				t.Errorf("it leaves %q, want %q", left, want)
			}
		})
	}
}

// TestSuspend holds that ctrl-z gives the terminal to the shell, and fg the screen back.
func TestSuspend(t *testing.T) {
	tt := newTTY(t)
	p := underShell(tt).begin()
	at := tt.wait(0, drawn)
	for range 2 {
		tt.press("\x1a")
		at = tt.wait(at, "shell: stopped")
		tt.sane()
		tt.press("fg\n")
		at = tt.wait(at, entersScreen, mouse, signs, paste, drawn)
		if tt.now() == tt.modes {
			t.Error("the screen is back, and the modes of the terminal are the shell's")
		}
	}
	// It takes keys again.
	tt.press("2")
	at = tt.wait(at, "missing-endpoint-rule")
	tt.press("q")
	tt.wait(at, "shell: ended 0")
	if code := p.code(patience); code != 0 {
		t.Errorf("the shell: exit code %d", code)
	}
	tt.sane()
}

// TestSuspendedEnds holds that a program that is stopped ends when it is killed, without a hand on the terminal.
func TestSuspendedEnds(t *testing.T) {
	tt := newTTY(t)
	p := underShell(tt).begin()
	at := tt.wait(0, drawn)
	tt.press("\x1a")
	at = tt.wait(at, "shell: stopped")
	tt.press("kill\n")
	tt.wait(at, "shell: ended 130")
	if code := p.code(patience); code != 0 {
		t.Errorf("the shell: exit code %d", code)
	}
	tt.sane()
	if rest := tt.written()[at:]; rest != "kill\r\nshell: ended 130\r\n" {
		t.Errorf("on the shell's terminal is %q", rest)
	}
}

// TestSuspendNowhere holds that ctrl-z does nothing where no shell could take over.
func TestSuspendNowhere(t *testing.T) {
	tt := newTTY(t)
	p := tt.start(program(t), "tui", "--demo").begin()
	at := tt.wait(0, drawn)
	tt.press("\x1a")
	at = tt.wait(at, "there is nowhere to go back to")
	if strings.Contains(tt.written(), leavesScreen) {
		t.Error("it left the screen")
	}
	tt.press("q")
	tt.wait(at, leavesScreen)
	p.code(patience)
	tt.sane()
}

func underShell(tt *tty) *process {
	tt.t.Helper()
	self, err := os.Executable()
	if err != nil {
		tt.t.Fatal(err)
	}
	return tt.start(self).with(child+"=shell", "PROGRAM="+program(tt.t), "ARGS=tui --demo")
}

// TestPiped holds that keys come from the terminal where the evidence comes through a pipe.
func TestPiped(t *testing.T) {
	tt := newTTY(t)
	p := tt.start("/bin/sh", "-c", `"$0" collect --demo -o - | "$0" tui -f -`, program(t)).begin()
	at := tt.wait(0, drawn, "standard input")
	tt.press("2")
	tt.wait(at, "missing-endpoint-rule")
	tt.press("q")
	if code := p.code(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tt.sane()
}

// TestNobodyAsksTheTerminal holds that a command writes what it prints to a terminal and nothing else: libraries of the
// screen would ask for colours, and wait for answers.
func TestNobodyAsksTheTerminal(t *testing.T) {
	tt := newTTY(t)
	p := tt.start(program(t), "version").begin()
	if code := p.code(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tt.wait(0, "\n")
	time.Sleep(100 * time.Millisecond) // for what should not come
	if all := tt.written(); !regexp.MustCompile(`^svcnet [^\x1b\n]*\r\n$`).MatchString(all) {
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
		tt := newTTY(t)
		p := tt.start(self).with(append(c.env, child+"=environment")...).begin()
		p.code(patience)
		tt.wait(0, "\n")
		time.Sleep(100 * time.Millisecond) // for what should not come
		if got := strings.TrimSpace(tt.written()); got != c.want {
			t.Errorf("%v: on the terminal is %q, want %q", c.env, got, c.want)
		}
	}
}
