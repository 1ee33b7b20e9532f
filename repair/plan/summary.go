package plan

import (
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/explain/report"
)

// summary says in prose what a plan comes to.
func summary(p *report.RepairPlan) string {
	if len(p.Findings) == 0 {
		return "Nothing to repair: the audit finds nothing."
	}
	var done, advice, consent int
	for _, s := range p.Steps {
		switch {
		case s.Kind == KindAdvice:
			advice++
		case s.Consent != "":
			consent++
			fallthrough
		default:
			done++
		}
	}
	var out []string
	switch {
	case done == 0:
		out = append(out, fmt.Sprintf("No step of svcnet mends what the audit finds (%s).", plural(len(p.Findings), "finding")))
	default:
		text := fmt.Sprintf("%s for %s", plural(done, "step"), plural(len(p.Findings)-len(p.Left), "finding"))
		if consent > 0 {
			text += fmt.Sprintf("; %d of them %s what is not kube-proxy's and %s consent (%s)", consent, agree(consent, "changes", "change"), agree(consent, "needs", "need"), AllowForeign)
		}
		out = append(out, text+".")
	}
	if advice > 0 {
		out = append(out, fmt.Sprintf("%s for others come first.", plural(advice, "thing")))
		if advice == 1 {
			out[len(out)-1] = "One thing that others have to do comes first."
		}
	}
	if n := len(p.Left); n > 0 {
		out = append(out, fmt.Sprintf("%s %s left.", plural(n, "finding"), agree(n, "is", "are")))
	}
	return strings.Join(out, " ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// agree is the form of a verb for a number of things.
func agree(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
