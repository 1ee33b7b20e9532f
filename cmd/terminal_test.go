package cmd

import (
	"bytes"
	"testing"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestColored(t *testing.T) {
	for _, c := range []struct {
		name string
		flag string
		tty  bool
		env  []string
		want bool
	}{
		{"terminal", "auto", true, []string{"TERM", "xterm"}, true},
		{"pipe", "auto", false, []string{"TERM", "xterm"}, false},
		{"always on a pipe", "always", false, nil, true},
		{"always beats NO_COLOR", "always", true, []string{"NO_COLOR", "1"}, true},
		{"never on a terminal", "never", true, []string{"CLICOLOR_FORCE", "1"}, false},
		{"NO_COLOR", "auto", true, []string{"TERM", "xterm", "NO_COLOR", "0"}, false},
		{"NO_COLOR beats CLICOLOR_FORCE", "auto", true, []string{"NO_COLOR", "yes", "CLICOLOR_FORCE", "1"}, false},
		{"CLICOLOR_FORCE on a pipe", "auto", false, []string{"CLICOLOR_FORCE", "1"}, true},
		{"CLICOLOR_FORCE beats CLICOLOR", "auto", true, []string{"CLICOLOR_FORCE", "1", "CLICOLOR", "0"}, true},
		{"CLICOLOR_FORCE=0", "auto", false, []string{"CLICOLOR_FORCE", "0"}, false},
		{"CLICOLOR=0", "auto", true, []string{"TERM", "xterm", "CLICOLOR", "0"}, false},
		{"dumb", "auto", true, []string{"TERM", "dumb"}, false},
	} {
		if got := colored(c.flag, c.tty, environment(c.env...)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestASCIIOnly(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want bool
	}{
		{nil, false},
		{[]string{"LANG", "en_GB.UTF-8"}, false},
		{[]string{"LANG", "C.utf8"}, false},
		{[]string{"LANG", "C"}, true},
		{[]string{"LC_ALL", "POSIX", "LANG", "en_GB.UTF-8"}, true},
		{[]string{"LC_CTYPE", "de_DE.ISO-8859-1", "LANG", "en_GB.UTF-8"}, true},
		{[]string{"LC_ALL", "en_US.UTF-8", "LC_CTYPE", "C"}, false},
	} {
		if got := asciiOnly(environment(c.env...)); got != c.want {
			t.Errorf("%v: %v, want %v", c.env, got, c.want)
		}
	}
}

func TestNoWidthWithoutTerminal(t *testing.T) {
	if o := renderOptions(&bytes.Buffer{}, "auto", environment("COLUMNS", "80")); o.Width != 0 || o.Color {
		t.Errorf("a buffer gets %+v", o)
	}
}

func TestDisplayName(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/local/bin/kubectl-svcnet": "kubectl svcnet",
		"kubectl-svcnet.exe":            "kubectl svcnet",
		"./svcnet":                      "svcnet",
		"renamed":                       "svcnet",
	} {
		if got := displayName([]string{in}); got != want {
			t.Errorf("displayName(%q) = %q, want %q", in, got, want)
		}
	}
	if got := displayName(nil); got != "svcnet" {
		t.Errorf("no name gives %q", got)
	}
}
