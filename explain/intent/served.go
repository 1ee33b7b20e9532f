package intent

import "net/netip"

// NodePortAddrs are the addresses of the node on which a proxy serves node ports, sorted: those of in.NodeAddrs that its
// settings let in. Services of the input are looked at in IPVS mode only, where the node has their addresses too.
func NodePortAddrs(in Input) []netip.Addr {
	b := &planner{in: in, plan: &Plan{}}
	_, b.release = releases(in.Proxy)
	b.other = b.release
	b.node = b.readNode()
	b.readServed()
	return b.node.serves[NodePort]
}
