package kubeproxy_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// recorded are the nodes that each version of kube-proxy left in nftables mode.
func recorded(t *testing.T) []string {
	t.Helper()
	folders, err := filepath.Glob("../../test/recorded/testdata/kube-proxy-1.*-nftables")
	if err != nil || len(folders) < 5 {
		t.Fatalf("%d recordings of nftables mode, error %v", len(folders), err)
	}
	return folders
}

func readNode(t *testing.T, folder string) *check.Node {
	t.Helper()
	s, err := snapshot.Load([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Node()
}

var families = map[netfilter.Family]nft.Family{netfilter.IPv4: nft.IP, netfilter.IPv6: nft.IP6}

// TestNFTablesRecorded: what is said that each version writes is what it wrote, object by object.
func TestNFTablesRecorded(t *testing.T) {
	for _, folder := range recorded(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			n := readNode(t, folder)
			releases, err := kubeproxy.NFTReleases(&n.Proxy)
			if err != nil || len(releases) != 1 {
				t.Fatalf("%d releases, error %v", len(releases), err)
			}
			for family, ip := range families {
				table := n.NFT[0].Table(ip, kubeproxy.NFTName)
				if table == nil {
					t.Fatalf("no table %s kube-proxy", ip)
				}
				want, err := kubeproxy.NFTables(family, releases[0], n.Plan, &n.Proxy, kubeproxy.NFTNode{Table: table, Host: n.Host})
				if err != nil {
					t.Fatal(err)
				}
				// Up to 1.35 chance decides which of two copies of an endpoint counts.
				known := func(lines []string) []string {
					return slices.DeleteFunc(lines, func(l string) bool {
						return want.Unknown("store/leaving-and-back") && strings.Contains(l, "-store/leaving-and-back/")
					})
				}
				w, r := known(lines(generated(want))), known(lines(table))
				if len(w) < 350 {
					t.Errorf("table %s has %d lines: the recording is too small to tell", want, len(w))
				}
				if d := cmp.Diff(w, r); d != "" {
					t.Errorf("table %s (-generated +recorded):\n%s", want, d)
				}
			}
		})
	}
}

// generated is a table as data of nftables, so that both are printed by one printer. Rules are read back from their text.
func generated(k *kubeproxy.NFTable) *nft.Table {
	rs := &nft.Ruleset{}
	t := rs.AddTable(k.Family, kubeproxy.NFTName)
	t.Comment = k.Comment
	for _, s := range k.Sets {
		set := &nft.Set{
			Name: s.Name, Comment: s.Comment, Key: s.Key, IsMap: s.IsMap, Interval: s.Interval, Dynamic: s.Dynamic, HasTimeout: s.HasTimeout,
			Timeout: s.Timeout, Size: s.Size,
		}
		for _, e := range s.Entries {
			set.Entries = append(set.Entries, e.Entry)
		}
		t.Sets = append(t.Sets, set)
	}
	for _, c := range k.Chains {
		chain := t.AddChain(c.Name)
		chain.Comment, chain.Base = c.Comment, c.Base
		for _, text := range c.Rules {
			chain.Rules = append(chain.Rules, &nft.Rule{Text: text})
		}
	}
	return t
}

// lines are a table in a form to compare: what has no order is sorted, and what rules put into sets is left out.
func lines(t *nft.Table) []string {
	out := []string{"comment " + t.Comment}
	for _, s := range t.Sets {
		declared := &nft.Set{
			Name: s.Name, Comment: s.Comment, Key: s.Key, IsMap: s.IsMap, Interval: s.Interval, Dynamic: s.Dynamic, HasTimeout: s.HasTimeout,
			Timeout: s.Timeout, Size: s.Size,
		}
		one := &nft.Table{Family: t.Family, Name: t.Name, Sets: []*nft.Set{declared}}
		for line := range strings.Lines(one.Print()) {
			out = append(out, fmt.Sprintf("set %s: %s", s.Name, line))
		}
		for i := range s.Entries {
			if !s.Dynamic {
				out = append(out, fmt.Sprintf("set %s entry %s", s.Name, s.EntryText(&s.Entries[i])))
			}
		}
	}
	for i, c := range t.Chains {
		if c.Base != nil {
			out = append(out, fmt.Sprintf("base chain %02d is %s", i, c.Name))
		}
		out = append(out, fmt.Sprintf("chain %s: comment %q base %+v", c.Name, c.Comment, c.Base))
		for i, r := range c.Rules {
			out = append(out, fmt.Sprintf("chain %s: rule %02d %s", c.Name, i, r.Text))
		}
	}
	slices.Sort(out)
	return out
}
