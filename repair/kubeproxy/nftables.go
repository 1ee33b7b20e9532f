package kubeproxy

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/traits"
)

// NFTable is what a kube-proxy keeps in its table of one family in nftables mode: "ip kube-proxy" or "ip6 kube-proxy".
// The two are programmed by two proxies that know nothing of each other.
type NFTable struct {
	Family  nft.Family
	Comment string
	// Sets are its sets and maps, those of all Services first.
	Sets []*NFTSet
	// Chains are base chains in the order in which they are registered, then others that serve all, then those of Services.
	Chains []*NFTChain

	sets   map[string]*NFTSet
	chains map[string]*NFTChain
	// unknown are the Services whose endpoints the evidence does not tell.
	unknown map[string]bool
}

// NFTName is the name of kube-proxy's tables.
const NFTName = "kube-proxy"

// NFTChain is a chain of such a table.
type NFTChain struct {
	Name, Comment string
	// Base says where it hooks in; nil for a chain that only rules and maps lead to.
	Base *nft.Base
	// Rules as nft 1.0.6 prints them.
	Rules []string
	// Service is "namespace/name" of the Service whose chain it is; empty for one that serves all.
	Service string
}

// NFTSet is a set or map of such a table.
type NFTSet struct {
	// Set is its declaration; it holds no entries.
	*nft.Set
	// Entries are those that kube-proxy puts in, each key once, in the order of the plan.
	Entries []*NFTEntry
	// Open is true where others may be there too, because it is not known which addresses the node has. Where rules put
	// the entries in (Set.Dynamic) kube-proxy puts in none.
	Open bool
	// Service is "namespace/name" of the Service whose set it is; empty for one that serves all.
	Service string

	at map[string]*NFTEntry
}

// NFTEntry is an entry of a set or map.
type NFTEntry struct {
	nft.Entry
	// Service is "namespace/name" of the Service that asks for it; empty for the addresses of the node.
	Service string
	// Others are other entries for the same key, where Services claim one address: which of them is there is chance.
	Others []nft.Entry
}

// Chain is the chain of that name, nil where kube-proxy makes none.
func (t *NFTable) Chain(name string) *NFTChain { return t.chains[name] }

// Set is the set or map of that name, nil where kube-proxy makes none.
func (t *NFTable) Set(name string) *NFTSet { return t.sets[name] }

// Unknown tells whether the evidence does not say what kube-proxy keeps of a Service ("namespace/name"): it holds no
// endpoints, or two copies of one of which chance decides.
func (t *NFTable) Unknown(service string) bool { return t.unknown[service] }

// AnyUnknown tells whether there is such a Service.
func (t *NFTable) AnyUnknown() bool { return len(t.unknown) > 0 }

// Entry is the entry that kube-proxy keeps for a key, nil for none.
func (s *NFTSet) Entry(key []byte) *NFTEntry { return s.at[string(key)] }

// String is the table as nft names it.
func (t *NFTable) String() string { return string(t.Family) + " " + NFTName }

func (t *NFTable) add(c *NFTChain) *NFTChain {
	t.Chains = append(t.Chains, c)
	t.chains[c.Name] = c
	return c
}

func (t *NFTable) addSet(s *NFTSet) *NFTSet {
	s.at = make(map[string]*NFTEntry)
	t.Sets = append(t.Sets, s)
	t.sets[s.Name] = s
	return s
}

func (s *NFTSet) put(e nft.Entry, service string) {
	key := string(e.Start)
	if e.End != nil {
		key += "-" + string(e.End)
	}
	was := s.at[key]
	if was == nil {
		was = &NFTEntry{Entry: e, Service: service}
		s.at[key] = was
		s.Entries = append(s.Entries, was)
		return
	}
	if e.Verdict != nil && *e.Verdict != *was.Verdict {
		was.Others = append(was.Others, e)
	}
}

// NFTNode is what the table depends on beside objects and the proxy's settings.
type NFTNode struct {
	// Table is the table as it is, nil where it is gone. It tells what nobody can be asked: which ranges of cluster IPs the
	// API had, which addresses the interfaces.
	Table *nft.Table
	Host  *host.Host
}

// NFTables is what a kube-proxy of that release keeps in its table of a family (setupNFTables and syncProxyRules of
// pkg/proxy/nftables/proxier.go, 1.29 to 1.36). The error says in words what is not known of the proxy.
func NFTables(family netfilter.Family, r NFTRelease, plan *intent.Plan, p *traits.Proxy, on NFTNode) (*NFTable, error) {
	s, err := nftSettingsOf(family, r, plan, p, on)
	if err != nil {
		return nil, err
	}
	t := &NFTable{Family: nft.Family(s.ip), sets: make(map[string]*NFTSet), chains: make(map[string]*NFTChain), unknown: make(map[string]bool)}
	if r.Minor >= 30 {
		t.Comment = "rules for kube-proxy"
	}
	s.stockSets(t)
	s.stockChains(t)
	w := nftPortWriter{nftSettings: s, table: t, proxy: r.proxy(p)}
	for _, sp := range plan.Ports {
		if sp.Family != int(family) {
			continue
		}
		service := sp.Namespace + "/" + sp.Name
		if sp.EndpointsUnknown || sp.ByChance {
			t.unknown[service] = true
		}
		w.port(sp, service)
	}
	return t, nil
}

// NFTRelease is a release of kube-proxy by what it writes in nftables mode.
type NFTRelease struct {
	// Minor is that of Kubernetes 1.x.
	Minor int
	// Early is true for 1.33 up to 1.33.5, whose chains that refuse stand before translation as those of 1.32.
	Early bool
}

// The minor releases of Kubernetes 1.x whose nftables mode is known here.
const (
	oldestNFTables = 29
	newestNFTables = 36
)

// NFTReleases are those that a proxy may be of, the newest first: one where its version is known. The error says why
// there is none.
func NFTReleases(p *traits.Proxy) ([]NFTRelease, error) {
	low, high := p.Version, p.Version
	if p.VersionFromRules {
		high = p.Newest
	}
	from, to := oldestNFTables, newestNFTables
	if low != (traits.Version{}) {
		from = max(from, low.Minor)
	}
	if high != (traits.Version{}) {
		to = min(to, high.Minor)
	}
	if low.Major > 1 || high.Major > 1 || from > to || high.Minor > newestNFTables && !p.VersionFromRules {
		return nil, fmt.Errorf("what kube-proxy %s writes in nftables mode is not known here: tables can be written as those of 1.%d to 1.%d", p.VersionText(), oldestNFTables, newestNFTables)
	}
	var out []NFTRelease
	for minor := to; minor >= from; minor-- {
		if minor != 33 {
			out = append(out, NFTRelease{Minor: minor})
			continue
		}
		exact := !p.VersionFromRules && low.Patch >= 0
		if !exact || low.Patch > 5 {
			out = append(out, NFTRelease{Minor: minor})
		}
		if !exact || low.Patch <= 5 {
			out = append(out, NFTRelease{Minor: minor, Early: true})
		}
	}
	return out, nil
}

// beforeDNAT tells whether the chains that refuse stand before translation at every hook.
func (r NFTRelease) beforeDNAT() bool { return r.Minor <= 32 || r.Early }

// proxy is a proxy of which it is known to be of the release.
func (r NFTRelease) proxy(p *traits.Proxy) *traits.Proxy {
	out := *p
	out.Version, out.VersionFromRules = traits.Version{Major: 1, Minor: r.Minor, Patch: -1}, false
	return &out
}
