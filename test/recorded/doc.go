// Package recorded holds nodes as real versions of kube-proxy left them, and what svcnet says of them. The objects are
// the same for all, so that what differs is what kube-proxy did with them.
//
// A recording is a folder of testdata: a bundle of `svcnet collect`, unpacked. Its files are text, so that a change of
// a recording can be read, and `svcnet audit -f test/recorded/testdata/kube-proxy-1.29-iptables-nft` works on it as on
// any bundle. `make fixtures` records all of them anew (root, Linux): it builds each kube-proxy, starts it on a node of
// package lab and collects. Tests only read them.
package recorded
