package netfilter

// NFAcct is -m nfacct: a named counter. It always passes, unless the counter was created with a quota; then it
// passes once the quota is used up (xt_nfacct.c).
type NFAcct struct{ Name string }

var nfacctMatch = extension{
	name: "nfacct",
	save: func(*arena) saved { return new(NFAcct) },
	list: listNFAcct,
}

// Test passes for the counters of kube-proxy (1.31 and later), which it creates without a quota.
func (m *NFAcct) Test(*Kernel, Hook, *Packet) Answer {
	switch m.Name {
	case "ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts":
		return Yes
	}
	return Maybe(Fact{
		Key: "nfacct " + m.Name, Yes: "the counter " + m.Name + " has no quota, or has used it up", No: "the quota of the counter " + m.Name + " is not used up",
		Because: "whether the counter has a quota is not known (nfacct list)",
	})
}

func (m *NFAcct) option(o *option) bool {
	if o.name != "--nfacct-name" {
		return false
	}
	m.Name = o.value()
	return true
}

// listNFAcct reads "nfacct-name NAME".
func listNFAcct(l *listing) Match {
	name, ok := l.after("nfacct-name")
	if !ok {
		return nil
	}
	return &NFAcct{Name: name}
}
