package cmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// quiet are runs that succeed, at least one of every command: without a terminal nothing goes to standard error, and -o
// json is one line. Others run svcnet in pods whose log is both streams, and cut long logs.
// demoNode is a folder that stays where it is when a test changes its own.
var demoNode, _ = filepath.Abs("demo/node-1")

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
	{"diff", []string{demoNode, demoNode, "-o", "json"}, true},
	{"diff", []string{demoNode, demoNode}, false},
	{"explain", nil, false},
	{"explain", []string{"stale-endpoint-rule"}, false},
	{"proxy", []string{"-A", "-f", demoNode, "--node", "node-1", "--show-rules"}, false},
	{"repair", []string{"-A", "--demo", "-o", "json"}, true},
	{"repair", []string{"-A", "--demo"}, false},
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
		if c.Runnable() && c.HasParent() && !c.HasSubCommands() && name != "help" && !c.Hidden && name != cleanupIsQuiet && name != onTerminals {
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

// onTerminals runs on a terminal and nowhere else: test/terminal.
const onTerminals = "tui"

// cleanupIsQuiet needs a cluster: TestCleanupIsQuiet.
const cleanupIsQuiet = "cleanup"

func TestCleanupIsQuiet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[]}`)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(config, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if got := started(t, "", cleanupIsQuiet, "--kubeconfig", config); got.code != 0 || got.err != "" || got.out == "" {
		t.Errorf("exit %d, %d bytes on standard output, on standard error: %s", got.code, len(got.out), got.err)
	}
}
