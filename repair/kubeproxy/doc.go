// Package kubeproxy says what a kube-proxy writes into the kernel, by its version, mode and settings, for what the
// objects ask of a node: chains and rules of iptables, tables of nftables, IP sets and virtual servers, each in the form
// in which the native tool prints it. A plan is the difference between that and what is there.
//
// The package is pure. It is held against what every recorded kube-proxy left on a node (test/recorded) and, for random
// objects, against a running one.
package kubeproxy
