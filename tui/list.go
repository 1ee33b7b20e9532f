package tui

import tea "github.com/charmbracelet/bubbletea"

// list is a cursor among n rows of which height are drawn, from top on. It knows nothing of the rows.
type list struct {
	n, cursor, top, height int
}

// begun is a row that begins with the sign of the cursor, where it is on it.
func begun(cursor bool) row {
	if cursor {
		return row{{"›", accent}}
	}
	return row{{" ", accent}}
}

// resize says how many rows there are and how many fit; the cursor stays among them and in sight.
func (l *list) resize(n, height int) {
	l.n, l.height = n, max(height, 1)
	l.move(0)
}

// move moves the cursor.
func (l *list) move(by int) {
	l.cursor = min(max(l.cursor+by, 0), max(l.n-1, 0))
	switch {
	case l.cursor < l.top:
		l.top = l.cursor
	case l.cursor >= l.top+l.height:
		l.top = l.cursor - l.height + 1
	}
	l.top = min(max(l.top, 0), max(l.n-l.height, 0))
}

// to puts the cursor on a row.
func (l *list) to(i int) { l.move(i - l.cursor) }

// visible are the first row that is drawn and the one behind the last.
func (l *list) visible() (from, to int) { return l.top, min(l.top+l.height, l.n) }

// key moves by the keys that move, and tells whether this was one.
func (l *list) key(k *keyMap, msg tea.KeyMsg) bool {
	switch {
	case k.up.matches(msg):
		l.move(-1)
	case k.down.matches(msg):
		l.move(1)
	case k.pageUp.matches(msg):
		l.move(-l.height)
	case k.pageDown.matches(msg):
		l.move(l.height)
	case k.top.matches(msg):
		l.to(0)
	case k.bottom.matches(msg):
		l.to(l.n - 1)
	default:
		return false
	}
	return true
}

// mouse moves by the wheel and to the row that is clicked on; y counts from the first row drawn. It tells whether a row
// was clicked on that had the cursor already: a second click opens.
func (l *list) mouse(msg tea.MouseMsg, y int) (open bool) {
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		l.move(-3)
	case msg.Button == tea.MouseButtonWheelDown:
		l.move(3)
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress && y >= 0 && y < l.height && l.top+y < l.n:
		open = l.top+y == l.cursor
		l.to(l.top + y)
	}
	return open
}
