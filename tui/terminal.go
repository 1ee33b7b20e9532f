package tui

import (
	"os"
	"sync"
	"sync/atomic"
)

// nowhere is the descriptor of no file.
const nowhere = ^uintptr(0)

// keyboard is the terminal that keys come from; bubbletea knows a terminal by the methods of a file.
type keyboard struct {
	*os.File
	// gone is told why no more keys come.
	gone func(error)
	// away is true once the terminal is somebody else's: its modes are left alone.
	away atomic.Bool
}

// Read waits for keys. A terminal that was closed gives an end of file, on which bubbletea would wait for ever.
func (k *keyboard) Read(b []byte) (int, error) {
	n, err := k.File.Read(b)
	if err != nil {
		k.gone(err)
	}
	return n, err
}

// Fd is the terminal whose modes are set.
func (k *keyboard) Fd() uintptr {
	if k.away.Load() {
		return nowhere
	}
	return k.File.Fd()
}

// display is the terminal that is drawn on. Each write is whole: what is written aside does not get into a frame.
type display struct {
	*os.File
	mu sync.Mutex
	// released is true while the terminal is the shell's, away once it stays that.
	released, away bool
}

// Write writes a frame, or a part of none.
func (d *display) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away {
		return len(b), nil
	}
	return d.File.Write(b)
}

// WriteString is there because that of the file would be taken.
func (d *display) WriteString(s string) (int, error) { return d.Write([]byte(s)) }

// aside writes what is no part of a frame and moves no cursor, such as text for the clipboard.
func (d *display) aside(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.released && !d.away {
		// Who copies sees that nothing came of it.
		_, _ = d.File.WriteString(s)
	}
}

// release is told that the terminal is the shell's, or this program's again.
func (d *display) release(released bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = released
}

// leave leaves the terminal to the shell for good.
func (d *display) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = true
}
