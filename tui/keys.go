package tui

import (
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
)

// binding is a key, or several that do the same, and what it does: in a few words as its help, and where that does not
// say it all, in a sentence. Help and hints are made of these and of nothing else.
type binding struct {
	key.Binding
	more string
}

func (b *binding) matches(msg tea.KeyMsg) bool { return key.Matches(msg, b.Binding) }

// shown is what the key is called, does what it does.
func (b *binding) shown() string { return b.Help().Key }
func (b *binding) does() string  { return b.Help().Desc }

func bind(keys, shown, does, more string) binding {
	names := strings.Fields(keys)
	if keys == " " {
		names = []string{keys}
	}
	return binding{key.NewBinding(key.WithKeys(names...), key.WithHelp(shown, does)), more}
}

// meaning is a key that does something of its own on one screen.
func meaning(b binding, does string) binding {
	b.SetHelp(b.shown(), does)
	b.more = ""
	return b
}

// keyMap is every key of the program. Names follow k9s and lazygit where these have one.
type keyMap struct {
	up, down, pageUp, pageDown, top, bottom                    binding
	open, back, next, previous, left, right                    binding
	services, findings, nodes, status, sources, diff           binding
	filter, problems, namespaces, order, reverse               binding
	packet, copy, json, save, pause, refresh, mark, page, wide binding
	expand, frontends, clients, evidence, repair, apply        binding
	command, help, suspend, quit                               binding
}

func newKeyMap() *keyMap {
	return &keyMap{
		up:       bind("up k", "↑ k", "up", ""),
		down:     bind("down j", "↓ j", "down", ""),
		pageUp:   bind("pgup ctrl+b", "pgup", "a page up", ""),
		pageDown: bind("pgdown ctrl+f", "pgdn", "a page down", ""),
		top:      bind("home g <", "g", "first", "to the first row (also home, <)"),
		bottom:   bind("end G >", "G", "last", "to the last row (also end, >)"),
		open:     bind("enter", "enter", "open", "open what is under the cursor"),
		back:     bind("esc", "esc", "back", "back to where you came from; drops a filter first"),
		next:     bind("tab", "tab", "next", "the next screen"),
		previous: bind("shift+tab", "shift-tab", "previous", "the previous screen"),
		left:     bind("left h", "← h", "left", "the frontend before"),
		right:    bind("right l", "→ l", "right", "the next frontend"),
		services: bind("1", "1", "Services", "every Service port of the node"),
		findings: bind("2", "2", "Findings", "what differs from what is asked for, by cause"),
		nodes:    bind("3", "3", "Nodes", "the nodes that were read, odd ones first"),
		status:   bind("4", "4", "Status", "what serves Services here, and how that is known"),
		sources:  bind("5", "5", "Sources", "what was read, and what could not be"),
		diff:     bind("6", "6", "Diff", "what changed since the marked moment"),
		filter:   bind("/", "/", "filter", "show rows with these words only; !word without; sev:error, ns:shop, node:n1, type:NodePort"),
		problems: bind("p", "p", "problems only", "show only what has warnings or errors, or is not known"),
		namespaces: bind("n", "n", "namespaces",
			"choose one namespace, or all of them"),
		order:     bind("o", "o", "order by", "order rows by the next column"),
		reverse:   bind("O", "O", "reverse order", ""),
		packet:    bind("t", "t", "trace a packet", "ask for one packet: source, destination, protocol"),
		copy:      bind("c", "c", "copy command", "copy the command that shows this by hand"),
		json:      bind("y", "y", "JSON", "the document that is shown, as JSON"),
		save:      bind("s", "s", "save bundle", "write everything that was read into a bundle"),
		pause:     bind(" ", "space", "pause", "stop reading the node again, or go on"),
		refresh:   bind("r ctrl+r", "r", "read now", "read the node again now"),
		mark:      bind("m", "m", "mark moment", "what the Diff screen compares with, from now on this moment"),
		page:      bind("d", "d", "docs page", "the page of the finding: what it means, how to confirm and to mend it"),
		frontends: bind("left right h l", "← →", "frontend", "the frontend before, the next one: where clients connect to"),
		clients:   bind("tab shift+tab", "tab", "clients", "the next clients, with shift the previous: who connects"),
		evidence:  bind("e", "e", "all evidence", "all that the row under the cursor rests on, where it is cut below"),
		expand:    bind("enter", "enter", "rules of a backend", "the rules of the backend under the cursor; of a finding its page"),
		repair:    bind("R", "R", "plan a repair", "what would mend what is under the cursor, step by step; nothing is written"),
		apply:     bind("A", "A", "apply", "do the steps of the plan, after you typed that you want it"),
		wide:      bind("w", "w", "all rules", "the rules of every backend, or of none"),
		command:   bind(":", ":", "command", "type where to go: services, findings, nodes, status, sources, diff, packet, ns NAME, quit"),
		help:      bind("?", "?", "help", "this help"),
		suspend:   bind("ctrl+z", "ctrl-z", "suspend", "back to the shell; fg returns"),
		quit:      bind("q ctrl+c", "q", "quit", "back where something lies over a screen, else end; ctrl-c always ends"),
	}
}

// everywhere are the keys that work on every screen.
func (k *keyMap) everywhere() []binding {
	return []binding{
		k.help, k.command, k.services, k.findings, k.nodes, k.status, k.sources, k.diff, k.next, k.previous, k.back,
		k.packet, k.repair, k.json, k.save, k.pause, k.refresh, k.mark, k.suspend, k.quit,
	}
}

// moving are the keys that move the cursor.
func (k *keyMap) moving() []binding {
	return []binding{k.up, k.down, k.pageUp, k.pageDown, k.top, k.bottom}
}
