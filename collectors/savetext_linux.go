package collectors

import (
	"bytes"
	"fmt"
	"strings"
)

// saveText is what the text of iptables-save says of itself, without its rules being read.
type saveText struct {
	// open is the table that has no COMMIT: the text was cut in it.
	open string
	// refused are lines by which iptables-nft-save says what it does not print: rules that were written by nft.
	refused []string
}

// lookOver passes over the lines of a save.
func lookOver(text []byte) saveText {
	var s saveText
	for line := range bytes.Lines(text) {
		switch {
		case line[0] == '*':
			if s.open == "" {
				s.open = strings.TrimSpace(string(line[1:]))
			}
		case bytes.Equal(line, []byte("COMMIT\n")):
			s.open = ""
		case bytes.HasPrefix(line, []byte("# Table `")):
			s.refused = append(s.refused, strings.TrimSpace(strings.TrimPrefix(string(line), "#")))
		}
	}
	if s.open == "" && len(text) > 0 && text[len(text)-1] != '\n' {
		s.open = "its last line"
	}
	return s
}

// lack is why the text does not hold all rules, in words; empty for one that does.
func (s saveText) lack() string {
	switch {
	case s.open != "":
		return fmt.Sprintf("the output was cut: %s has no end (run svcnet again)", s.open)
	case len(s.refused) > 0:
		return strings.Join(s.refused, "; ")
	}
	return ""
}
