package cmd

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/docs/findings"
	"github.com/svcnet/svcnet/explain/check"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain a finding: what it means, how to confirm it, what to do",
		Long: "Explain a finding: what it means, what clients see of it, how to confirm it by hand, and what to do. The " +
			"pages are part of the program. Without an id all findings are listed, with their severities.",
		Example: fmt.Sprintf(`  %[1]s explain stale-endpoint-rule
  %[1]s explain`, a.name),
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			w := bufio.NewWriter(a.Out)
			if len(args) == 0 {
				listFindings(w)
				return w.Flush()
			}
			if check.Lookup(args[0]) == nil {
				return unknownFinding(args[0], a.name)
			}
			page, _ := findings.Page(args[0])
			plainPage(w, page)
			return w.Flush()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return offered(nil)
			}
			return completeFindings(c, args, word)
		},
	}
}

// listFindings writes every finding of the catalogue, by group.
func listFindings(w io.Writer) {
	width := 0
	for i := range check.Catalogue {
		width = max(width, len(check.Catalogue[i].ID))
	}
	for i, g := range findings.Groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, g.Title)
		for _, id := range g.IDs {
			if c := check.Lookup(id); c != nil {
				fmt.Fprintf(w, "  %-*s  %-8s  %s\n", width, c.ID, c.Severity, c.Title)
			}
		}
	}
}

// plainPage writes a page of Markdown as plain text: headings stand out by themselves, and marks around words go. Code
// keeps its quotes, so that what is to be typed can be told.
func plainPage(w io.Writer, page string) {
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "# "):
			line = line[2:]
		case strings.HasPrefix(line, "## "):
			line = strings.ToUpper(line[3:])
		default:
			line = strings.ReplaceAll(line, "**", "")
		}
		fmt.Fprintln(w, line)
	}
}

// nearest is how many ids are offered for one that is none.
const nearest = 3

// unknownFinding says that there is no such finding, and which ones were perhaps meant.
func unknownFinding(id, program string) error {
	type near struct {
		id       string
		distance int
	}
	var all []near
	for i := range check.Catalogue {
		known := check.Catalogue[i].ID
		d := distance(id, known)
		if strings.Contains(known, id) || strings.Contains(id, known) {
			d = 0
		}
		all = append(all, near{known, d})
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
	var offer []string
	for _, n := range all[:min(nearest, len(all))] {
		if n.distance <= len(id)/2 {
			offer = append(offer, n.id)
		}
	}
	text := fmt.Sprintf("there is no finding %q (`%s explain` lists them)", id, program)
	if len(offer) > 0 {
		text = fmt.Sprintf("there is no finding %q; near it are: %s (`%s explain` lists all)", id, strings.Join(offer, ", "), program)
	}
	return usage("%s", text)
}

// distance is the number of letters to insert, delete or change to make one word of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
