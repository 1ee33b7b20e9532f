// Package findings holds a page for every finding: what it means, how to confirm it by hand, how to fix it, and in
// which versions it occurs. The program carries them, so that `svcnet explain ID` needs no network at 3 a.m.
package findings

import "embed"

//go:embed *.md
var pages embed.FS

// Page is the text of a finding's page, in Markdown; false when there is none.
func Page(id string) (string, bool) {
	text, err := pages.ReadFile(id + ".md")
	return string(text), err == nil
}
