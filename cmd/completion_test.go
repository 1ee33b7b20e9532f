package cmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// words are what a shell is offered for a command line.
func words(t *testing.T, line ...string) []string {
	t.Helper()
	got := started(t, "", append([]string{"__complete"}, line...)...)
	if got.code != 0 {
		t.Errorf("%v: exit %d: %s", line, got.code, got.err)
	}
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	if last := lines[len(lines)-1]; last != ":4" { // no files
		t.Errorf("%v: directive %s", line, last)
	}
	return lines[:len(lines)-1]
}

func TestComplete(t *testing.T) {
	// No cluster of this machine answers.
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct{ line, want string }{
		{"trace --demo svc/w", "svc/web"},
		{"trace --demo -n store svc/", "svc/cart svc/checkout svc/db svc/search svc/web"},
		{"trace --demo -n nowhere svc/", ""},
		{"trace --demo svc/web svc/", ""},
		{"audit --demo -n store svc/web svc/", "svc/cart svc/checkout svc/db svc/search"},
		{"audit --demo --node ", "node-1 node-2 node-3"},
		{"status --demo --node node-2", "node-2"},
		{"collect --demo --node node-3", "node-3"},
		{"tui --demo --node node-2", "node-2"},
		{"tui --demo --ignore masquerade-m", "masquerade-missing"},
		{"tui --demo ", ""},
		{"explain stale-e", "stale-endpoint-rule"},
		{"audit --ignore masquerade-m", "masquerade-missing"},
		{"audit -o j", "json jsonpath jsonpath-as-json jsonpath-file"},
		{"trace svc/", ""},          // nobody to ask
		{"trace -f - svc/", ""},     // standard input is the shell's
		{"trace -f /none svc/", ""}, // an error offers nothing
		{"version ", ""},
	} {
		args := strings.Split(tt.line, " ")
		var got []string
		prefix := args[len(args)-1]
		for _, w := range words(t, args...) {
			w, _, _ = strings.Cut(w, "\t")
			if strings.HasPrefix(w, prefix) {
				got = append(got, w)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: offered %q, want %q", tt.line, strings.Join(got, " "), tt.want)
		}
	}
}

// TestCompleteFromAPI asks a server: one that answers, one that refuses, and one that lets the shell wait.
func TestCompleteFromAPI(t *testing.T) {
	asked := ""
	slow := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		switch r.URL.Path {
		case "/api/v1/namespaces/store/services":
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"web"}},{"metadata":{"name":"$(reboot)"}},{"metadata":{"name":"api"}}]}`)
		case "/api/v1/namespaces/slow/services":
			<-slow
		case "/api/v1/nodes":
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	defer close(slow)
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c","namespace":"store"}}],"current-context":"c"}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ line, asked, want string }{
		{"trace svc/", "/api/v1/namespaces/store/services", "svc/api svc/web"},
		{"audit -n slow svc/", "/api/v1/namespaces/slow/services", ""},
		{"audit --node ", "/api/v1/nodes", ""},
	} {
		command, rest, _ := strings.Cut(tt.line, " ")
		asked = ""
		began := time.Now()
		got := words(t, append([]string{command, "--kubeconfig", config}, strings.Split(rest, " ")...)...)
		if strings.Join(got, " ") != tt.want || asked != tt.asked {
			t.Errorf("%s: offered %q after asking %q", tt.line, got, asked)
		}
		if took := time.Since(began); took > completionTime+10*time.Second {
			t.Errorf("%s: took %v", tt.line, took)
		}
	}
}

func TestInstallKubectl(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(dir, "kubectl-svcnet"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "kubectl_complete-svcnet")
	for range 2 { // once more over its own
		got := started(t, "", "completion", "--install-kubectl")
		if got.code != 0 || got.out != script+"\n" || got.err != "" {
			t.Fatalf("%+v", got)
		}
	}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(script)
	if err != nil || info.Mode().Perm() != 0o755 || string(text) != kubectlCompletion {
		t.Errorf("mode %v (%v): %s", info.Mode(), err, text)
	}
	if shipped, err := os.ReadFile("../deploy/completion/" + kubectlCompletionName); err != nil || string(shipped) != kubectlCompletion {
		t.Errorf("what releases carry is something else (%v): %s", err, shipped)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nmine\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := started(t, "", "completion", "--install-kubectl"); got.code != 1 || !strings.Contains(got.err, "there is another file of this name") {
		t.Errorf("over somebody else's file: %+v", got)
	}
	if got := started(t, "", "completion"); got.code != 0 || !strings.Contains(got.out, "--install-kubectl") {
		t.Errorf("without the flag: exit %d: %s", got.code, got.out)
	}
}
