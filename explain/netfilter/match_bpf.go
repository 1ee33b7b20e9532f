package netfilter

import "strings"

// bpfMatch is -m bpf: a BPF program. Listed as "match bpf 48 0 0 9,21 0 1 6" or "match bpf pinned PATH".
var bpfMatch = unevaluated("bpf", "BPF programs in rules are not evaluated", func(l *listing) bool {
	if !l.word("match", "bpf") {
		return false
	}
	if l.word("pinned") {
		l.next()
		return true
	}
	for isBytecode(l.peek()) {
		l.next()
	}
	return true
})

// isBytecode: the last number has a NUL behind it where the others have a comma.
func isBytecode(w string) bool {
	return w != "" && strings.Trim(w, "0123456789,\x00") == ""
}
