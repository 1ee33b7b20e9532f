// Package netfilter holds rules as data and walks packets through them as the kernel does: the parsers for every form
// in which iptables rules are printed, matches and targets, hooks, chains, translation, routing decisions and replies.
// It knows nothing of Services: what a rule means to kube-proxy is other packages' business.
//
// The package is pure. What evidence does not decide is never guessed: a walk forks there, and every ending says what
// it assumes. The kernel oracle (test/oracle) holds the walk against the kernel.
package netfilter
