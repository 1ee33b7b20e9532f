package findings

// Group is findings that are about the same thing.
type Group struct {
	Title string
	// IDs in the order in which people meet them.
	IDs []string
}

// Groups are all groups. An id that the program does not raise yet may be in one.
var Groups = []Group{
	{"Observed differs from intended", []string{
		"missing-service-rule", "stale-service-rule", "missing-endpoint-rule", "stale-endpoint-rule",
		"not-ready-endpoint-used", "reject-rule-with-ready-endpoints", "wrong-translation", "probability-skewed",
		"selection-incomplete", "masquerade-missing", "masquerade-unexpected", "frontend-unreachable",
		"service-without-endpoints", "selector-matches-no-pods", "pods-not-ready", "pod-missing-from-slices",
		"no-route-to-backend", "no-route-to-service", "reply-blocked", "local-policy-no-local-endpoints",
		"affinity-mismatch", "affinity-to-unready-endpoint", "excluded-endpoint-used", "refusal-missing",
		"nodeport-reply-bypasses-node",
	}},
	{"Proxy and sync", []string{
		"proxy-not-running", "proxy-watch-stalled", "proxy-sync-failed", "proxy-sync-slow",
		"proxy-cannot-list-endpointslices", "proxy-api-unreachable", "xtables-lock-contention", "node-name-mismatch",
		"local-endpoint-not-used", "cluster-cidr-not-set", "two-service-proxies", "leftover-proxy-mode-rules",
		"iptables-legacy-and-nft-both-have-kube-rules", "iptables-backend-split",
	}},
	{"API objects", []string{
		"duplicate-endpoint-address", "endpoint-without-pod", "endpoint-extra-addresses-ignored",
		"endpoints-differ-from-slices", "endpointslice-manager-conflict", "endpointslice-labelled-for-other-proxy",
		"target-port-unresolved", "target-port-not-in-pod", "topology-hints-absent", "address-family-mismatch",
		"duplicate-external-address", "external-ip-is-node-ip", "nodeport-allocated-twice", "nodeport-in-ephemeral-range",
		"nodeport-collides-with-host-listener", "localhost-nodeport-unsupported", "source-ranges-exclude-cluster",
		"lb-ip-short-circuited", "service-cidr-overlaps-pod-cidr", "service-ip-on-interface", "cluster-dns-mismatch",
		"load-balancer-pending", "nothing-listens",
	}},
	{"Rules around kube-proxy's", []string{
		"kube-jump-missing", "duplicate-rules", "dangling-or-orphan-chain", "unreadable-target",
		"unconditional-drop-in-kube-firewall", "forward-policy-drop", "early-accept-hides-reject",
		"foreign-dnat-before-kube-services", "hostport-shadows-service", "hostport-rule-missing",
		"fwmark-set-before-service-dnat", "local-policy-masquerade-order", "invalid-drop-missing",
		"invalid-drop-hits-traffic", "notrack-missing-in-output", "notrack-breaks-reply-translation",
	}},
	{"Kernel and host", []string{
		"conntrack-stale-udp", "conntrack-stale-tcp", "conntrack-untranslated-service-flow",
		"conntrack-table-full", "conntrack-insert-failed",
		"ip-forward-off", "neighbour-discovery-dropped", "bridge-nf-call-iptables-off", "hairpin-mode-off", "rp-filter-strict-multi-interface",
		"vxlan-checksum-offload-bug", "mtu-exceeds-underlay",
	}},
	{"Not ours, but named", []string{
		"other-dataplane", "policy-drop",
	}},
	{"IPVS, nftables, BPF", []string{
		"ipvs-vip-without-service", "ipvs-ready-endpoint-weight-zero", "ipvs-conn-reuse-mode", "ipvs-conntrack-off", "ipvs-strict-arp-off",
		"ipset-missing", "ipset-type-mismatch", "ipset-entry-missing", "ipset-entry-stale", "nft-map-entry-missing",
		"nft-map-entry-stale", "bpf-backend-state-mismatch", "bpf-nat-id-shared", "bpf-service-incomplete",
	}},
	{"Windows", []string{
		"hns-policy-not-applied", "hns-endpoint-unknown", "hns-policy-duplicate",
	}},
}
