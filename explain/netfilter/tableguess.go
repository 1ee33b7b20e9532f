package netfilter

import "strings"

// settleTable names the table of a part. Where neither "*table" nor the command nor the hint says it, the
// built-in chains do if all are shown, else the chains and targets: each rule by itself if it can, else like the other rules of its chain, else like
// most of the part. Rules of several tables (a grep over iptables-save) are taken apart.
func (c *capture) settleTable(p *part) []*part {
	if p.header.table == "" {
		p.header.table = tableOfBuiltins(p.table)
	}
	if p.header.table != "" {
		p.table.Name = p.header.table
		p.table.Complete = p.saved && p.committed && !p.left
		return []*part{p}
	}
	votes := make(map[string]int)
	ruleTable := make([][]string, len(p.table.Chains))
	chainTable := make([]string, len(p.table.Chains))
	for i, chain := range p.table.Chains {
		chainTable[i] = tableOfChain(chain.Name)
		ruleTable[i] = make([]string, len(chain.Rules))
		for j := range chain.Rules {
			t := tableOfRule(&chain.Rules[j])
			if t == "" || chainTable[i] != "" {
				t = chainTable[i]
			}
			ruleTable[i][j] = t
			if t != "" {
				votes[t]++
			}
		}
		if chainTable[i] == "" {
			chainTable[i] = most(ruleTable[i])
		}
		if chainTable[i] != "" {
			votes[chainTable[i]]++
		}
	}
	section := ""
	for _, t := range tableOrder {
		if votes[t] > votes[section] {
			section = t
		}
	}
	if section == "" {
		section = "filter"
		c.open = p
		c.problem(p.line, "", "nothing says which table this is: taken as filter, the one that iptables prints by itself")
		c.open = nil
	}

	tables := make(map[string]*part)
	var out []*part
	of := func(name string) *Table {
		q := tables[name]
		if q == nil {
			q = &part{header: p.header, line: p.line, table: NewTable(name)}
			q.header.table = name
			tables[name] = q
			out = append(out, q)
		}
		return q.table
	}
	for i, chain := range p.table.Chains {
		home := chainTable[i]
		if home == "" {
			home = section
		}
		if chain.Declared || len(chain.Rules) == 0 {
			d := of(home).AddChain(chain.Name)
			d.Declared, d.Line, d.Policy = chain.Declared, chain.Line, chain.Policy
		}
		for j := range chain.Rules {
			t := ruleTable[i][j]
			if t == "" {
				t = home
			}
			d := of(t).AddChain(chain.Name)
			d.Rules = append(d.Rules, chain.Rules[j])
		}
	}
	if len(out) == 0 {
		of(section)
	}
	out[0].problems = p.problems
	return out
}

// tableOfBuiltins knows a table by its built-in chains, which iptables always prints in full. (The chains of the
// security table are those of filter; hardly any system uses it.)
func tableOfBuiltins(t *Table) string {
	shown := ""
	for _, c := range t.Chains {
		if c.Declared && c.Policy != "" && hookOrder(c.Name) <= int(Postrouting) {
			shown += c.Name + " "
		}
	}
	switch shown {
	case "INPUT FORWARD OUTPUT ":
		return "filter"
	case "PREROUTING INPUT OUTPUT POSTROUTING ":
		return "nat"
	case "PREROUTING INPUT FORWARD OUTPUT POSTROUTING ":
		return "mangle"
	case "PREROUTING OUTPUT ":
		return "raw"
	}
	return ""
}

var tableOrder = [...]string{"nat", "filter", "mangle", "raw", "security"}

func most(names []string) string {
	best := ""
	count := make(map[string]int)
	for _, n := range names {
		if n != "" {
			count[n]++
		}
	}
	for _, t := range tableOrder {
		if count[t] > count[best] {
			best = t
		}
	}
	return best
}

// tableOfChain knows the chains that live in one table only (kube-proxy's, kubelet's, and those of common
// network plugins). KUBE-SERVICES and KUBE-NODEPORTS exist in nat and filter, the canaries everywhere.
func tableOfChain(name string) string {
	switch name {
	case "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-POSTROUTING", "KUBE-LOAD-BALANCER", "KUBE-HOSTPORTS",
		"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST",
		"DOCKER_OUTPUT", "DOCKER_POSTROUTING", "KIND-MASQ-AGENT", "IP-MASQ-AGENT", "FLANNEL-POSTRTG":
		return "nat"
	case "FORWARD", "KUBE-FORWARD", "KUBE-FIREWALL", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL",
		"KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-NODEPORT-NON-LOCAL", "DOCKER-USER", "DOCKER-FORWARD", "FLANNEL-FWD":
		return "filter"
	case "KUBE-IPTABLES-HINT":
		return "mangle"
	}
	for _, beginning := range [...]struct{ prefix, table string }{
		{"KUBE-SVC-", "nat"}, {"KUBE-SVL-", "nat"}, {"KUBE-EXT-", "nat"}, {"KUBE-XLB-", "nat"}, {"KUBE-FW-", "nat"},
		{"KUBE-SEP-", "nat"}, {"KUBE-HP-", "nat"}, {"CNI-", "nat"}, {"cali-nat-", "nat"}, {"AWS-SNAT-CHAIN", "nat"},
		{"DOCKER-ISOLATION-", "filter"}, {"KUBE-POD-FW-", "filter"}, {"KUBE-NWPLCY-", "filter"}, {"KUBE-ROUTER-", "filter"},
		{"cali-fw-", "filter"}, {"cali-tw-", "filter"}, {"cali-pi-", "filter"}, {"cali-po-", "filter"}, {"ufw-", "filter"}, {"ufw6-", "filter"},
		{"WEAVE-NPC", "filter"}, {"AWS-CONNMARK-CHAIN", "nat"},
	} {
		if strings.HasPrefix(name, beginning.prefix) {
			return beginning.table
		}
	}
	return ""
}

// tableOfRule knows the targets that are allowed in one table only, and takes a jump for the chain it names.
func tableOfRule(r *Rule) string {
	switch t := r.Target.(type) {
	case *Translate:
		return "nat"
	case Reject:
		return "filter"
	case CT:
		return "raw"
	case *TProxy, Rewrite:
		return "mangle"
	case Unreadable:
		switch t.Name {
		case "DNAT", "SNAT", "REDIRECT", "MASQUERADE", "NETMAP":
			return "nat"
		}
	case Continue:
		switch t.Name {
		case "TRACE":
			return "raw"
		case "TTL", "CHECKSUM":
			return "mangle"
		}
	case Jump:
		return tableOfChain(t.Chain)
	}
	return ""
}
