// Package table says what svcnet's own tables of nftables hold while the fallback proxy runs: the chains and rules that
// never change, and for each service port the elements of sets and maps (or, with affinity or source ranges, the chains)
// by which the kernel serves or refuses it. What has to change for one service port follows from what it was and what it
// ought to be, and from nothing else, so that a change costs the same whatever else is served.
//
// The package is pure. What ought to happen it is told by explain/intent; package kernel makes its transactions happen.
//
// # How a connection is served
//
// All service ports with as many backends share one set and one chain, "any-3": a frontend is an element of the set, its
// backends are elements of the map endpoints, numbered from 0, and the chain translates to the one whose number it draws.
// The chains any and here hold a rule for each number of backends that there is. So serving a frontend takes no chain, no
// rule and no verdict of its own, and what the kernel has to check of a transaction does not grow with the table.
//
// The tables are ip svcnet and ip6 svcnet. Their chains come before those of kube-proxy, and of the chains that translate
// the first counts. Connections that ought to be refused are "translated" to where they go anyhow, so that nothing behind
// translates them; then they are refused.
package table
