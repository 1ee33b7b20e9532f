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
	"github.com/svcnet/svcnet/repair/kubeproxy"
)

// inIPVSMode are the nodes that were recorded with a kube-proxy in IPVS mode, by version.
func inIPVSMode(t *testing.T) map[string]*check.Node {
	t.Helper()
	folders, err := filepath.Glob("../../test/recorded/testdata/kube-proxy-*-ipvs")
	if err != nil || len(folders) < 3 {
		t.Fatalf("%d recordings: %v", len(folders), err)
	}
	out := map[string]*check.Node{}
	for _, f := range folders {
		s, err := snapshot.Load([]string{f}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := explain.Read(s, explain.AuditOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out[strings.Split(filepath.Base(f), "-")[2]] = r.Node()
	}
	return out
}

// TestServersOfRecordings: kube-proxy's own virtual servers are those that are said to be its.
func TestServersOfRecordings(t *testing.T) {
	for version, n := range inIPVSMode(t) {
		t.Run(version, func(t *testing.T) {
			open := 0
			var want, got []string
			skip := map[string]bool{}
			for _, v := range kubeproxy.Servers(n.Plan, &n.Proxy, n.Host, n.IPVS) {
				if v.May {
					continue
				}
				want = append(want, v.String())
				if v.Open != "" {
					open++
					skip[v.String()] = true
					continue
				}
				for i := range v.Dests {
					want = append(want, v.DestString(&v.Dests[i]))
				}
			}
			for i := range n.IPVS.Services {
				s := &n.IPVS.Services[i]
				got = append(got, s.String())
				if skip[s.String()] {
					continue
				}
				slices.SortFunc(s.Dests, kubeproxy.CompareDests)
				for j := range s.Dests {
					got = append(got, s.DestString(&s.Dests[j]))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("said to be kube-proxy's (-), and its own (+):\n%s", diff)
			}
			if len(want) < 400 || open > 2 {
				t.Errorf("only %d lines, %d virtual servers left open", len(want), open)
			}
		})
	}
}

// TestSetsOfRecordings: so are its sets, what they are made with, and their entries.
func TestSetsOfRecordings(t *testing.T) {
	for version, n := range inIPVSMode(t) {
		t.Run(version, func(t *testing.T) {
			sets := kubeproxy.IPSets(n.Plan, &n.Proxy, n.Host, n.Name)
			entries := 0
			var names []string
			for i := range sets {
				s := &sets[i]
				names = append(names, s.Name)
				have := n.Sets[s.Name]
				if have == nil {
					t.Errorf("%s is not there", s.Name)
					continue
				}
				if made := have.Captured.Type + " " + have.Captured.Header; !strings.HasPrefix(made, s.Made()) {
					t.Errorf("%s: made with %q, and kube-proxy with %q", s.Name, s.Made(), made)
				}
				var want, got []string
				for _, e := range s.Entries {
					if !e.Leave && !(s.Open != "" && e.May) && !noNetworkOfAll(e.Text) {
						want = append(want, e.Text)
					}
				}
				for j := range have.Captured.Entries {
					if text := have.Captured.Entries[j].Text; s.Open == "" || s.Entry(text) == nil || !s.Entry(text).May {
						got = append(got, text)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("entries of %s that are said to be kube-proxy's (-), and its own (+):\n%s", s.Name, diff)
				}
				entries += len(want)
			}
			for name := range n.Sets {
				if !slices.Contains(names, name) {
					t.Errorf("%s is not said to be kube-proxy's", name)
				}
			}
			if len(sets) != 34 || entries < 200 {
				t.Errorf("only %d sets with %d entries", len(sets), entries)
			}
		})
	}
}

// noNetworkOfAll tells an entry that ipset does not take (kube-proxy up to 1.33 asks for it, and says so in its log).
func noNetworkOfAll(text string) bool { return strings.HasSuffix(text, "/0") }

// TestAddressesOfRecordings: so are the addresses of kube-ipvs0.
func TestAddressesOfRecordings(t *testing.T) {
	for version, n := range inIPVSMode(t) {
		t.Run(version, func(t *testing.T) {
			var want, got []string
			for _, a := range kubeproxy.Addresses(n.Plan, n.Host) {
				if a.May {
					t.Errorf("%s is left open", a.Addr)
				}
				want = append(want, fmt.Sprint(a.Prefix()))
			}
			for i := range n.Host.Addrs {
				if a := &n.Host.Addrs[i]; a.Link == check.KubeIPVS0 {
					got = append(got, a.Prefix.String())
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" || len(want) < 90 {
				t.Errorf("%d addresses that are said to be kube-proxy's (-), and its own (+):\n%s", len(want), diff)
			}
		})
	}
}
