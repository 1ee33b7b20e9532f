// Package quiet keeps the libraries of the interactive view from asking the terminal anything before main runs.
//
// Package bubbletea has an init function that asks which background the terminal has: with standard output on a
// terminal every command of the program, `version` too, would write two questions to it and wait for the answers, and
// what was typed ahead meanwhile would be lost. It does not ask where $CI is set. So $CI is set from the time that this
// package is ready until bubbletea is.
//
// That is in time because packages become ready in the order of their import paths, each after those that it imports
// (the Go specification, "Program initialization"), and this one waits for os alone: it imports nothing else, and must
// not. A test looks at the order for every system, and another at what the program writes (test/terminal).
//
// Telling lipgloss the background in place of that is not possible: who imports lipgloss is ready after bubbletea.
package quiet

import "os"

// variable is the one that makes a terminal no terminal for termenv, which all others ask.
const variable = "CI"

// before is what Over puts back. It is a variable because its value has to be there before any function is called: this
// is where $CI is set.
var before = begin()

// setting is an environment variable as it was.
type setting struct {
	value string
	there bool
}

func begin() setting {
	var s setting
	s.value, s.there = os.LookupEnv(variable)
	if s.value == "" {
		// What cannot be set is not: a question is asked, and nothing else goes wrong.
		_ = os.Setenv(variable, "true")
	}
	return s
}

// Over puts $CI back as the program found it. It is for a package that imports bubbletea, in a variable's value: then
// bubbletea is ready, and main did not begin.
func Over() struct{} {
	switch {
	case !before.there:
		_ = os.Unsetenv(variable)
	default:
		_ = os.Setenv(variable, before.value)
	}
	return struct{}{}
}
