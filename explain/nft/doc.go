// Package nft holds nftables rulesets as data: their parsers (the kernel's netlink messages, `nft -j list ruleset`,
// `nft list ruleset`) and their printer, which writes what `nft list ruleset` writes. It knows nothing of packets:
// how a ruleset decides about one is the business of explain/netfilter, and what a table means to kube-proxy that
// of explain/dataplane.
//
// Whatever form a ruleset was captured in, it becomes the same data. Constants are bytes in network order, as wide as
// what they are compared with; a reader that cannot tell a width or a meaning says so (Unreadable) and never guesses.
package nft
