// Command reference writes the reference of the command line: docs/man, a manual page for each command, and docs/cli, the
// same as Markdown. Run it from the root of the repository:
//
//	go run ./hack/reference
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/svcnet/svcnet/cmd"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dated is what manual pages carry as their date: the same commands give the same bytes.
const dated = "2026-01-01"

// write makes both folders below root anew.
func write(root string) error {
	man, cli := filepath.Join(root, "docs", "man"), filepath.Join(root, "docs", "cli")
	for _, dir := range []string{man, cli} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("write the reference: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write the reference: %w", err)
		}
	}
	if err := pages(tree("# "), man); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	if err := doc.GenMarkdownTree(tree("### "), cli); err != nil {
		return fmt.Errorf("write the reference: %w", err)
	}
	return nil
}

// pages writes the manual page of a command and those of the commands below it.
func pages(c *cobra.Command, dir string) error {
	var page bytes.Buffer
	var date time.Time
	if err := doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "svcnet", Manual: "svcnet", Date: &date}, &page); err != nil {
		return err
	}
	// An option's text is a paragraph with a tab, which is no indent in running text; and the date is a month.
	text := firstOption.ReplaceAll(page.Bytes(), []byte("$1.PP\n$2"))
	text = option.ReplaceAll(text, []byte(".TP\n$1\n"))
	text = bytes.Replace(text, []byte(`"`+date.Format("Jan 2006")+`"`), []byte(`"`+dated+`"`), 1)
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := pages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// How package doc writes an option, and the first of a section.
var (
	option      = regexp.MustCompile(`(?m)^\.PP\n(\\fB.*)\n\t`)
	firstOption = regexp.MustCompile(`(?m)^(\.SH .*OPTIONS.*\n)(\\fB)`)
)

// tree is the command tree with texts in which sections are headings of this kind.
func tree(heading string) *cobra.Command {
	root := cmd.Tree()
	root.DisableAutoGenTag = true
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.Long = sections(c.Long, heading)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return root
}

// sections makes Markdown of a help text: its lines in capitals are headings, its indented lines keep their form.
func sections(text, heading string) string {
	var out []string
	indented := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " \n")
		switch {
		case line != "" && strings.ToUpper(line) == line && strings.HasPrefix(heading, "# "):
			out = append(out, heading+line)
		case line != "" && strings.ToUpper(line) == line:
			out = append(out, heading+line[:1]+strings.ToLower(line[1:]))
		case strings.HasPrefix(line, "  "):
			if !indented {
				out = append(out, "") // a block begins behind an empty line
			}
			out = append(out, "  "+line)
		default:
			out = append(out, line)
		}
		indented = strings.HasPrefix(line, "  ")
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}
