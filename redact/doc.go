// Package redact renames what a snapshot says about whose cluster it is, so that it can be given away: names and
// addresses become others, the same ones everywhere, and the rules still lead where they led. A redacted snapshot
// gives the graph and the findings of the original, in other words.
//
// Words are kept for a reason and renamed without one. A word stays where it belongs to the language of the format
// (an option of iptables, a field of the API, a word of kube-proxy's messages: words.txt) or is one of Kubernetes'
// own names (names.go); everything else is a name, known or not. So a format that this package understands badly
// loses words, and gives none away.
//
// What is derived from names and addresses is derived again: the hashes in the names of kube-proxy's chains, the names
// of its chains and sets in nftables, and the bytes of tables as the kernel gave them.
package redact
