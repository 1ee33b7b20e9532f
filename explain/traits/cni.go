package traits

import "strings"

// readCNILog claims the pod range that weave logs with its options: "ipalloc-range:10.32.0.0/12".
func (l *ledger) readCNILog(src Source) {
	const option = "ipalloc-range:"
	src.lines(func(n int, line string) bool {
		if _, rest, ok := strings.Cut(line, option); ok {
			rest, _, _ = strings.Cut(rest, " ")
			l.claimRanges("podCIDR", strings.TrimSuffix(rest, "]"), logged, Fact{File: src.File, Line: n, Text: line})
		}
		return true
	})
}
