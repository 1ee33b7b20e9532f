package check

import "github.com/svcnet/svcnet/explain/report"

// replyBlocked: the request arrives, the answer is dropped or not translated back on this node.
var replyBlocked = Check{
	ID: "reply-blocked", Severity: Error, Rests: onGrid,
	Title: "answers that are dropped, or not translated back",
	Rest: func(n *Node, found Findings) []report.Finding {
		return leftover(n, found, true, "let answers pass: a rule for established connections (conntrack state RELATED,ESTABLISHED) before the one that stops them, and connection tracking for both directions")
	},
}
