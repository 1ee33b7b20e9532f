package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// copy puts a command into the clipboard of the terminal (OSC 52, which also works through ssh, and in tmux where it is
// let through), and shows it: a terminal that does not do so says nothing.
func (m *Model) copy(command string) tea.Cmd {
	if command == "" {
		m.say(note, "there is no command that shows this")
		return nil
	}
	// What cannot be typed is not copied: a command with escapes in it would do something else.
	if render.Clean(command) != command {
		m.say(warn, "not copied, it has signs that no terminal shows: "+command)
		return nil
	}
	if m.out == nil {
		m.say(note, command)
		return nil
	}
	m.say(note, "copied, if the terminal lets it: "+command)
	out := m.out
	return func() tea.Msg {
		out(ansi.SetSystemClipboard(command))
		return nil
	}
}

// ShellWord makes text one word of a shell.
func ShellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// printing is the command that prints a document; empty for what no command prints.
func (m *Model) printing(document any) string {
	switch d := document.(type) {
	case *report.Report, *report.Reports:
		return m.command("audit", "-o", "json")
	case *report.NodeStatus:
		return m.command("status", "-o", "json")
	case *report.Trace:
		if d.Metadata.Namespace != "" {
			return m.command("trace", "svc/"+d.Metadata.Name, "-n", d.Metadata.Namespace, "-o", "json")
		}
	}
	return ""
}

// command is one of this program, about the evidence that is shown.
func (m *Model) command(words ...string) string {
	out := m.feed.Name
	for _, w := range words {
		out += " " + ShellWord(w)
	}
	if m.feed.Evidence != "" {
		out += " " + m.feed.Evidence
	}
	return out
}
