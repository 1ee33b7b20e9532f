package netfilter

import "strings"

// clusterMatch is -m cluster: a hash of the client, spread over nodes. Listed as "cluster node_mask=0x1 total_nodes=2 hash_seed=0x0".
var clusterMatch = unevaluated("cluster", "the hash that spreads connections over a cluster is not computed", func(l *listing) bool {
	if !l.word("cluster") {
		return false
	}
	for strings.Contains(l.peek(), "=") {
		l.next()
	}
	return true
})
