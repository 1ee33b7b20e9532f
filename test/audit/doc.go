// Package audit holds svcnet's audit against the real kube-proxy and the real kernel, in both directions.
//
// TestRandomObjects: whatever Services and EndpointSlices a cluster has, a node whose kube-proxy is in sync gives no
// finding but those that the objects deserve, and these it gives. What they deserve is computed here, from the
// objects alone, by a model that shares no code with the program.
//
// TestMutants: one change at a time to a node that is as it should be. Packets tell whether it matters: where any
// connection fares otherwise than before there is a finding that names the Service, or the node, and the place of the
// change; where none does there is no error. This is done to three nodes: kube-proxy in iptables mode with either
// backend, and in nftables mode.
//
// TestIPVS: both, in IPVS mode, in a guest of package uml, where the kernel has it. It takes long, and stands behind the build
// tag guest.
//
// The nodes are those of package lab. The tests run a sample by default and all of it by `make full`; they print the
// seed and the number with which a failure is had again. SVCNET_AUDIT_KEEP names a folder for what was read of a node
// where an audit was wrong: `svcnet audit -f FILE` says it again.
package audit
