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
// The nodes are those of package lab. Both tests run a sample by default and all of it by `make full`; both print the
// seed and the number with which a failure is had again.
package audit
