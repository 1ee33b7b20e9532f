package pty

import (
	"regexp"
	"strings"
)

// What the interactive view turns on, and how each is turned off.
const (
	EntersScreen = "\x1b[?1049h"
	LeavesScreen = "\x1b[?1049l"
	HidesCursor  = "\x1b[?25l"
	ShowsCursor  = "\x1b[?25h"
	Mouse        = "\x1b[?1002h"
	NoMouse      = "\x1b[?1002l"
	Signs        = "\x1b[?1006h"
	NoSigns      = "\x1b[?1006l"
	Paste        = "\x1b[?2004h"
	NoPaste      = "\x1b[?2004l"
)

// Sane holds that the terminal is as it was before: its modes, and what was turned on.
func (tt *Terminal) Sane() {
	tt.t.Helper()
	if now := tt.Now(); now != tt.Modes {
		tt.t.Errorf("the modes of the terminal are others: %+v, they were %+v", now, tt.Modes)
	}
	all := tt.Written()
	for _, turned := range [][2]string{{EntersScreen, LeavesScreen}, {HidesCursor, ShowsCursor}, {Mouse, NoMouse}, {Signs, NoSigns}, {Paste, NoPaste}} {
		if on, off := strings.LastIndex(all, turned[0]), strings.LastIndex(all, turned[1]); on < 0 || off < on {
			tt.t.Errorf("%q was written at %d and %q at %d, want the second one behind the first: %q", turned[0], on, turned[1], off, all[max(0, len(all)-400):])
		}
	}
}

// Left is what stands on the terminal once the screen is left.
func (tt *Terminal) Left() string {
	all := tt.Written()
	all = all[strings.LastIndex(all, LeavesScreen)+len(LeavesScreen):]
	return regexp.MustCompile(`\x1b\[[?0-9;]*[a-zA-Z]`).ReplaceAllString(all, "")
}
