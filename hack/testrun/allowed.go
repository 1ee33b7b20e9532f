package main

import (
	"fmt"
	"strings"
)

// allowed is the list of what may be skipped on CI. Every line has four fields between bars:
//
//	package | test | missing kernel feature | what covers it instead
//
// The test names itself and its subtests. Lines that begin with # say something to people.
type allowed struct {
	file  string
	lines []allowedLine
}

type allowedLine struct{ pkg, test, feature, instead string }

func parseAllowed(file, text string) (*allowed, error) {
	a := &allowed{file: file}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "|")
		for j := range fields {
			fields[j] = strings.TrimSpace(fields[j])
		}
		if len(fields) != 4 || fields[0] == "" || fields[1] == "" || fields[2] == "" || fields[3] == "" {
			return nil, fmt.Errorf("%s:%d: want package | test | missing kernel feature | what covers it instead", file, i+1)
		}
		a.lines = append(a.lines, allowedLine{fields[0], fields[1], fields[2], fields[3]})
	}
	return a, nil
}

// has tells whether a test may be skipped for that reason: the reason has to name the missing feature, so that
// a line does not excuse a test that is skipped for another.
func (a *allowed) has(k key, reason string) bool {
	for _, l := range a.lines {
		if !strings.HasSuffix("/"+k.pkg, "/"+l.pkg) {
			continue
		}
		if k.test != l.test && !strings.HasPrefix(k.test, l.test+"/") {
			continue
		}
		if strings.Contains(reason, l.feature) {
			return true
		}
	}
	return false
}
