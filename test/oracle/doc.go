// Package oracle proves the packet walk against the kernel itself. It makes a node of its own in a network
// namespace, loads random rulesets into it, sends real packets through it, watches where they come out, and
// compares that with the endings that explain/netfilter.Walker gives for the same rules and packets.
//
// Everything is a test. It needs root and Linux; without them the tests skip and say so. What the walk is given
// is what a user would give it: the text that iptables-save prints back, and the output of ip addr, ip route,
// ip rule and sysctl.
//
//	SVCNET_ORACLE_SEED=7 SVCNET_ORACLE_RULESETS=1000 go test ./test/oracle -run '^TestKernel$' -v
//	SVCNET_ORACLE_FOR=2h go test ./test/oracle -run '^TestKernel$' -timeout 0 -v
//
// The files: lab (the node and its surroundings), wire (packets as bytes), inject and observe (in and out),
// trace (the rules that each packet reached, told by the kernel), matches, targets, chains and services (the
// generators), compare, coverage and shrink.
//
// The files named nft do the same for rulesets of nftables, alone and beside tables of iptables (TestKernelNFT). The walk
// is given what `nft list ruleset` prints, as text or JSON, or the kernel's own netlink messages, by turns. Log statements
// around the rules tell which of them a packet reached and whose tests it passed: rules that the walk names must be among
// the latter, and rules that change something the other way round. What decides between base chains, their priority and
// the order of their registration, has tests of its own (nft_order_test.go).
//
//	SVCNET_ORACLE_SEED=7 SVCNET_ORACLE_RULESETS=1000 SVCNET_ORACLE_FORM=json go test ./test/oracle -run '^TestKernelNFT$' -v
package oracle
