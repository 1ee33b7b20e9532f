package cmd

import (
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/tui"
)

// colorModes are the values of --color.
var colorModes = []string{"always", "auto", "never"}

// isTerminal tells whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// renderOptions decides, once for the whole program, how text for people looks on out. A width is known for
// terminals only: what goes into a file or a pipe is neither wrapped nor truncated.
func renderOptions(out io.Writer, color string, env func(string) string) render.Options {
	o := render.Options{ASCII: asciiOnly(env)}
	tty := isTerminal(out)
	o.Color = colored(color, tty, env)
	if tty {
		if width, _, err := term.GetSize(int(out.(*os.File).Fd())); err == nil && width >= minWidth {
			o.Width = width
		}
	}
	return o
}

// minWidth is the narrowest terminal for which lines are wrapped: below it there would be a word on each.
const minWidth = 40

// colored decides about colour: --color, then NO_COLOR (no-color.org: any value but the empty one), then
// CLICOLOR_FORCE, then whether this is a terminal that can and CLICOLOR does not say 0.
func colored(flag string, tty bool, env func(string) string) bool {
	switch {
	case flag == "always":
		return true
	case flag == "never", env("NO_COLOR") != "":
		return false
	case env("CLICOLOR_FORCE") != "" && env("CLICOLOR_FORCE") != "0":
		return true
	case !tty, env("TERM") == "dumb", env("CLICOLOR") == "0":
		return false
	case runtime.GOOS == "windows":
		// Old consoles print the codes instead of obeying them; Windows Terminal and the ports of Unix
		// terminals set one of these.
		return env("WT_SESSION") != "" || env("TERM") != ""
	}
	return true
}

// asciiOnly tells whether the locale (LC_ALL, else LC_CTYPE, else LANG) names another encoding than UTF-8.
// No locale at all says nothing about the terminal: containers have none, and the terminals they are seen
// on show UTF-8.
func asciiOnly(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env(name); v != "" {
			v = strings.ToLower(v)
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return false
}

// lookOf decides how the interactive view looks on a terminal.
func lookOf(env func(string) string) tui.Look {
	l := tui.Look{Colors: tui.Colors16, ASCII: asciiOnly(env)}
	switch term, color := env("TERM"), env("COLORTERM"); {
	case !colored("auto", true, env):
		l.Colors = tui.NoColors
	case strings.Contains(term, "256color"), strings.Contains(term, "direct"), color == "truecolor", color == "24bit", env("WT_SESSION") != "":
		l.Colors = tui.Colors256
	}
	return l
}
