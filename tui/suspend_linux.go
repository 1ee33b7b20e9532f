package tui

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"golang.org/x/sys/unix"
)

// suspend gives the terminal back to the shell, stops this program and those that started it, as ctrl-z does, and comes
// back once it is in the foreground. Bubbletea's own would wait for ever where nobody can stop it, and take the terminal
// from the shell when it goes on in the background, for `kill` to end it.
func (r *running) suspend(tea.Msg) tea.Msg {
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() || signal.Ignored(unix.SIGTSTP) {
		return saidMsg{"no shell with jobs started this program: there is nowhere to go back to", note}
	}
	if err := r.program.ReleaseTerminal(); err != nil {
		r.end(fmt.Errorf("%w: %w", errGone, err))
		return nil
	}
	r.screen.release(true)
	defer r.screen.release(false)
	on := make(chan os.Signal, 1)
	signal.Notify(on, unix.SIGCONT)
	defer signal.Stop(on)
	if err := unix.Kill(0, unix.SIGTSTP); err == nil {
		select {
		case <-on:
		case <-r.ctx.Done():
		case <-time.After(stopped): // nobody stopped us
		}
	}
	for !r.foreground() {
		select {
		case <-on:
		case <-time.After(stopped / 4):
		case <-r.ctx.Done():
			// The modes of the terminal are the shell's now, and so is what is on it.
			r.keys.away.Store(true)
			r.screen.leave()
			return nil
		}
	}
	if err := r.program.RestoreTerminal(); err != nil {
		r.end(fmt.Errorf("%w: %w", errGone, err))
		return nil
	}
	return tea.EnableMouseCellMotion() // RestoreTerminal does not
}

// stopped is how long a signal that stops takes at most.
const stopped = time.Second

// foreground tells whether this program has the terminal. One that does not say is not waited for.
func (r *running) foreground() bool {
	group, err := unix.IoctlGetInt(int(r.keys.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
