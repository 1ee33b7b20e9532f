package main

import (
	"strings"
	"testing"
)

// TestDraw holds that styles end where they end, and that text of the screen is no markup.
func TestDraw(t *testing.T) {
	var b strings.Builder
	if err := draw(&b, strings.NewReader("\x1b[1m\x1b[38;5;203m✗ <b>\x1b[39m\x1b[0m fine\n\x1b[7mrow\x1b[27m\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`fill="#ff5f5f" font-weight="bold" textLength="39.15" xml:space="preserve">✗ &lt;b&gt;</text>`,
		`fill="#d0d0d0" textLength="39.15" xml:space="preserve"> fine</text>`,
		`height="17" fill="#d0d0d0"/><text x="12.00" y="42" fill="#171717"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in:\n%s", want, b.String())
		}
	}
}
