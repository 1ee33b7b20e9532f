package cmd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOutputPage runs the examples of docs/output.md: what stands behind each command is what it prints.
func TestOutputPage(t *testing.T) {
	text, err := os.ReadFile("../docs/output.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i, part := range strings.Split(string(text), "```console\n") {
		if i == 0 {
			continue
		}
		block, _, _ := strings.Cut(part, "```")
		var got strings.Builder
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			ran++
			got.WriteString(line)
			command, echo, echoes := strings.Cut(strings.TrimSpace(command), "; echo ")
			args := shellWords(t, command)
			if args[0] != "svcnet" {
				t.Fatalf("%s: not svcnet", line)
			}
			e := started(t, "", args[1:]...)
			out := e.err + e.out
			if echoes {
				out += strings.ReplaceAll(strings.Trim(echo, `"`), "$?", fmt.Sprint(e.code)) + "\n"
			}
			got.WriteString(out)
			if !strings.HasSuffix(out, "\n") {
				got.WriteString("\n") // the next prompt stands on a line of its own
			}
		}
		if diff := cmp.Diff(block, got.String()); diff != "" {
			t.Errorf("docs/output.md (-page +program):\n%s", diff)
		}
	}
	if ran < 8 {
		t.Errorf("%d examples", ran)
	}
}

// shellWords cuts a command line at blanks, but not within single quotes.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			if out[len(out)-1] == "" {
				out[len(out)-1] = part
			} else {
				out[len(out)-1] += part
			}
			continue
		}
		if i > 0 {
			part = strings.TrimPrefix(part, " ")
		}
		if part != "" {
			out = append(out, strings.Split(part, " ")...)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no words in %q", line)
	}
	return out
}
