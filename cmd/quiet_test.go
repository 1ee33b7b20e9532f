package cmd

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// quiet are runs that succeed, at least one of every command: without a terminal nothing goes to standard error, and -o
// json is one line. Others run svcnet in pods whose log is both streams, and cut long logs.
var quiet = []struct {
	command string
	args    []string
	json    bool
}{
	{"audit", []string{"--demo", "--fail-on", "never", "-o", "json"}, true},
	{"audit", []string{"--demo", "--fail-on", "never"}, false},
	{"collect", []string{"--demo"}, false},
	{"collect", []string{"--demo", "-o", "-"}, false},
	{"completion bash", nil, false},
	{"completion fish", nil, false},
	{"completion powershell", nil, false},
	{"completion zsh", nil, false},
	{"explain", nil, false},
	{"explain", []string{"stale-endpoint-rule"}, false},
	{"status", []string{"--demo", "-o", "json"}, true},
	{"status", []string{"--demo"}, false},
	{"trace", []string{"svc/web", "-n", "store", "--demo", "-o", "json"}, true},
	{"trace", []string{"svc/web", "-n", "store", "--demo"}, false},
	{"version", nil, false},
}

func TestQuiet(t *testing.T) {
	t.Chdir(t.TempDir()) // collect writes
	for _, q := range quiet {
		t.Run(q.command+" "+strings.Join(q.args, " "), func(t *testing.T) {
			got := started(t, "", append(strings.Fields(q.command), q.args...)...)
			// 4 is a document too: of the recorded node not all was collected.
			if got.code != 0 && got.code != 4 || got.err != "" || got.out == "" {
				t.Errorf("exit %d, %d bytes on standard output, on standard error: %s", got.code, len(got.out), got.err)
			}
			if q.json && (strings.Count(got.out, "\n") != 1 || !json.Valid([]byte(got.out))) {
				t.Errorf("not one line of JSON: %d lines, valid: %v", strings.Count(got.out, "\n"), json.Valid([]byte(got.out)))
			}
		})
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), "svcnet-") {
		t.Errorf("collect left %v (%v), want one bundle", left, err)
	}
}

// TestQuietListsAll: a new command has to say how it succeeds without a word.
func TestQuietListsAll(t *testing.T) {
	root := (&app{name: "svcnet"}).root()
	root.InitDefaultCompletionCmd()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
		listed := func(json bool) bool {
			return slices.ContainsFunc(quiet, func(q struct {
				command string
				args    []string
				json    bool
			}) bool {
				return q.command == name && q.json == json
			})
		}
		// cleanup succeeds on a cluster only (test/cluster); hidden commands are not for people.
		if c.Runnable() && c.HasParent() && !c.HasSubCommands() && name != "help" && name != "cleanup" && !c.Hidden {
			o := c.Flags().Lookup("output")
			switch {
			case !listed(false):
				t.Errorf("%s: no line in quiet for it", name)
			case o != nil && strings.Contains(o.Usage, "json") && !listed(true):
				t.Errorf("%s: no line in quiet for its -o json", name)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}
