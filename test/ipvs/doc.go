// Package ipvs holds the walk through virtual servers against the kernel: a guest of test/uml with IPVS, virtual
// servers of every kind, real connections from outside, from pods and from the node itself. What arrived where, with
// which source, and which chains a packet met is compared with the walk over what svcnet's readers read in the guest.
package ipvs
