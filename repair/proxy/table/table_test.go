package table

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/nft"
)

var update = flag.Bool("update", false, "write what is printed into the golden files")

// facts are those of a node with pods in two ranges.
func facts() Facts {
	return Facts{
		LocalMode: "ClusterCIDR", LocalRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		Mark: 0x4000, NodePortIPs: []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:30::11")},
	}
}

func backends(all ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, b := range all {
		out = append(out, netip.MustParseAddrPort(b))
	}
	return out
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestTables compares the tables of each kind of Service with what was looked at once.
func TestTables(t *testing.T) {
	two := backends("10.244.1.20:8080", "10.244.3.20:8080")
	here := backends("10.244.1.20:8080")
	plain := func(change func(*Port)) *Port {
		p := &Port{
			Key: "shop/web:http", Namespace: "shop", Name: "web", Protocol: "TCP", ClusterIP: addr("10.96.0.20"), Port: 80, Any: two, Usable: true,
			Hairpins: here,
		}
		change(p)
		return p
	}
	for _, c := range []struct {
		name   string
		family nft.Family
		facts  func(*Facts)
		ports  []*Port
	}{
		{"empty", nft.IP, nil, nil},
		{"cluster-ip", nft.IP, nil, []*Port{plain(func(*Port) {})}},
		{"node-port", nft.IP, nil, []*Port{plain(func(p *Port) { p.NodePort = 30080 })}},
		{"local-policy", nft.IP, nil, []*Port{plain(func(p *Port) {
			p.NodePort, p.ExternalLocal, p.Here = 30080, true, here
			p.External = []External{{addr("198.51.100.1"), false}}
		})}},
		{"nobody", nft.IP, nil, []*Port{plain(func(p *Port) {
			p.Any, p.Usable, p.Hairpins, p.NodePort = nil, false, nil, 30080
			p.External = []External{{addr("198.51.100.1"), true}}
		})}},
		{"nobody-here", nft.IP, nil, []*Port{plain(func(p *Port) { p.InternalLocal, p.Hairpins = true, nil; p.Any = nil })}},
		{"source-ranges", nft.IP, nil, []*Port{plain(func(p *Port) {
			p.External = []External{{addr("198.51.100.1"), true}}
			p.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.128/25"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("203.0.113.0/24")}
		})}},
		{"affinity", nft.IP6, nil, []*Port{{
			Key: "shop/web:http", Namespace: "shop", Name: "web", Protocol: "UDP", ClusterIP: addr("fd00:96::20"), Port: 53, Usable: true, Affinity: time.Hour,
			Any: backends("[fd00:244:1::20]:5353", "[fd00:244:3::20]:5353"), Here: backends("[fd00:244:1::20]:5353"), ExternalLocal: true, NodePort: 30053,
		}}},
		{"no-detector", nft.IP, func(f *Facts) { f.LocalMode = "-" }, []*Port{plain(func(*Port) {})}},
		{"masquerade-all", nft.IP, func(f *Facts) { f.MasqueradeAll = true }, []*Port{plain(func(*Port) {})}},
		{"bridge", nft.IP, func(f *Facts) { f.LocalMode, f.LocalInterface = "BridgeInterface", "cni0" }, []*Port{plain(func(*Port) {})}},
		{"prefix", nft.IP, func(f *Facts) { f.LocalMode, f.LocalInterface = "InterfaceNamePrefix", "veth" }, []*Port{plain(func(*Port) {})}},
		{"owned", nft.IP6, func(f *Facts) { f.Owned = true }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts()
			if c.facts != nil {
				c.facts(&f)
			}
			s := NewState(c.family, f)
			s.Update(Service{"shop", "web"}, c.ports)
			got := s.Table().Print()
			if s.Plan(false); s.Table().Print() != got {
				t.Error("the table prints otherwise once it is written")
			}
			file := filepath.Join("testdata", c.name+".nft")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBackendsKeepTheirNumbers: a change touches the elements of what changed, and no others.
func TestBackendsKeepTheirNumbers(t *testing.T) {
	for _, c := range []struct{ before, want, got string }{
		{"", "a b c", "a b c"},
		{"a b c", "a b c d", "a b c d"},
		{"a b c", "a c", "a c"},
		{"a b c d", "d c b", "d b c"},
		{"a b c", "x y z", "x y z"},
		{"b a c", "a b c", "b a c"},
		{"a b c", "", ""},
		{"a b c", "d a", "a d"},
	} {
		list := func(s string) []netip.AddrPort {
			var out []netip.AddrPort
			for _, w := range strings.Fields(s) {
				out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, w[0]}), 80))
			}
			return out
		}
		if got := arrange(list(c.before), list(c.want)); !slices.Equal(got, list(c.got)) {
			t.Errorf("%q to %q: %v", c.before, c.want, got)
		}
	}
}

// replay is what a kernel has after transactions, as far as elements, sets and chains are concerned. It refuses what the
// kernel refuses.
type replay struct {
	elements map[element]string
	sets     map[string]bool
	chains   map[string]string
	rules    map[SetKind][]int
}

func (r *replay) apply(tx *Transaction) error {
	if tx.Whole {
		*r = replay{map[element]string{}, map[string]bool{}, map[string]string{}, map[SetKind][]int{}}
	}
	for _, s := range tx.NewSizes {
		if r.sets[s.Name()] {
			return fmt.Errorf("set %s is there", s.Name())
		}
		r.sets[s.Name()] = true
	}
	for _, name := range tx.ChangedSets {
		if !r.sets[name] {
			return fmt.Errorf("set %s is not there", name)
		}
	}
	for _, s := range tx.NewSets {
		r.sets[s.Name] = true
	}
	for _, d := range tx.Dispatch {
		if d.Flush {
			r.rules[d.Kind] = nil
		}
		for _, n := range d.Sizes {
			if !r.sets[(Set{d.Kind, n}).Name()] {
				return fmt.Errorf("a rule for set %s, which is not there", (Set{d.Kind, n}).Name())
			}
			r.rules[d.Kind] = append(r.rules[d.Kind], n)
		}
	}
	for _, c := range tx.NewChains {
		if _, there := r.chains[c.Name]; there {
			return fmt.Errorf("chain %s is there", c.Name)
		}
		r.chains[c.Name] = chainText(c)
	}
	for _, c := range tx.ChangedChains {
		if _, there := r.chains[c.Name]; !there {
			return fmt.Errorf("chain %s is not there", c.Name)
		}
		r.chains[c.Name] = chainText(c)
	}
	for _, e := range tx.Delete {
		at := element{e.Set, e.Key}
		if v, there := r.elements[at]; !there || v != e.Value {
			return fmt.Errorf("element %x of %s is %x and not %x", e.Key, e.Set.Name(), v, e.Value)
		}
		delete(r.elements, at)
	}
	for _, e := range tx.Add {
		at := element{e.Set, e.Key}
		if _, there := r.elements[at]; there {
			return fmt.Errorf("element %x of %s is there", e.Key, e.Set.Name())
		}
		if e.Set.Kind.sized() && !r.sets[e.Set.Name()] {
			return fmt.Errorf("an element of set %s, which is not there", e.Set.Name())
		}
		r.elements[at] = e.Value
	}
	for _, s := range tx.OldSizes {
		if slices.Contains(r.rules[s.Kind], s.Size) {
			return fmt.Errorf("chain %s is used", s.Name())
		}
		delete(r.sets, s.Name())
	}
	for _, name := range tx.OldChains {
		if _, there := r.chains[name]; !there {
			return fmt.Errorf("chain %s is not there", name)
		}
		delete(r.chains, name)
	}
	for _, name := range tx.OldSets {
		delete(r.sets, name)
	}
	return nil
}

// found is which backends a frontend's packets may be led to, as they stand in the tables: nil where some number leads
// nowhere.
func (r *replay) found(kind SetKind, key string) (sizes int, complete bool) {
	complete = true
	for at := range r.elements {
		if at.set.Kind != kind || at.key != key {
			continue
		}
		sizes++
		for i := range at.set.Size {
			slot := key + string([]byte{0, 0, byte(i >> 8), byte(i)})
			if _, ok := r.elements[element{Set{Kind: kind.backends()}, slot}]; !ok {
				complete = false
			}
		}
	}
	return sizes, complete
}

// TestStates puts random changes of random ports through a state: every transaction is one that the kernel takes, at any
// moment every frontend that is led somewhere finds all backends that it may draw, also the ones of before, and what is
// there in the end does not depend on how it came about.
func TestStates(t *testing.T) {
	for seed := range uint64(30) {
		dice := rand.New(rand.NewPCG(seed, 1))
		s := NewState(nft.IP, facts())
		var r replay
		wanted := map[Service][]*Port{}
		check := func(step int, tx *Transaction) {
			t.Helper()
			if err := r.apply(tx); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for at := range r.elements {
				if !at.set.Kind.sized() {
					continue
				}
				if _, complete := r.found(at.set.Kind, at.key); !complete {
					t.Fatalf("seed %d, step %d: a frontend of %s may draw a number that leads nowhere", seed, step, at.set.Name())
				}
			}
		}
		for step := range 120 {
			for range 1 + dice.IntN(3) {
				service := Service{"ns", fmt.Sprintf("s%d", dice.IntN(6))}
				ports := randomPorts(dice, service)
				wanted[service] = ports
				s.Update(service, ports)
			}
			check(step, s.Plan(dice.IntN(2) == 0))
		}
		for range 3 {
			check(999, s.Plan(true))
		}
		if s.Retiring() != 0 {
			t.Fatalf("seed %d: %d elements stay", seed, s.Retiring())
		}
		fresh := NewState(nft.IP, facts())
		for service, ports := range wanted {
			fresh.Update(service, ports)
		}
		var straight replay
		if err := straight.apply(fresh.Plan(false)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(normal(&straight), normal(&r)); diff != "" {
			t.Fatalf("seed %d: what is there depends on how it came about: %s", seed, diff)
		}
		// The same again changes nothing.
		for service, ports := range wanted {
			s.Update(service, ports)
		}
		if tx := s.Plan(false); !tx.Empty() {
			t.Fatalf("seed %d: nothing changed, and %d elements are added", seed, len(tx.Add))
		}
		s.Restart()
		check(1000, s.Plan(false))
		if diff := cmp.Diff(normal(&straight), normal(&r)); diff != "" {
			t.Fatalf("seed %d: made anew it is another: %s", seed, diff)
		}
	}
}

// normal is what is there in one text. In which order backends are numbered does not matter.
func normal(r *replay) []string {
	var out []string
	numbered := map[string][]string{}
	for at, v := range r.elements {
		if forms[at.set.Kind].slot {
			key := at.set.Name() + fmt.Sprintf(" %x", at.key[:len(at.key)-4])
			numbered[key] = append(numbered[key], fmt.Sprintf("%x", v))
			continue
		}
		out = append(out, fmt.Sprintf("%s %x: %x", at.set.Name(), at.key, v))
	}
	for key, all := range numbered {
		slices.Sort(all)
		out = append(out, key+": "+strings.Join(all, " "))
	}
	for name := range r.sets {
		out = append(out, "set "+name)
	}
	for name, text := range r.chains {
		out = append(out, "chain "+name+": "+text)
	}
	for kind, sizes := range r.rules {
		sizes = slices.Sorted(slices.Values(sizes))
		if len(sizes) > 0 {
			out = append(out, fmt.Sprint("rules ", forms[kind].name, sizes))
		}
	}
	slices.Sort(out)
	return out
}

// randomPorts are those of one Service. Some claim what others claim too.
func randomPorts(dice *rand.Rand, service Service) []*Port {
	var out []*Port
	n := int(service.Name[1] - '0')
	for i := range dice.IntN(3) {
		p := &Port{
			Key: fmt.Sprintf("%s/%s:p%d", service.Namespace, service.Name, i), Namespace: service.Namespace, Name: service.Name, Protocol: "TCP", Index: i,
			Created: time.Unix(int64(n%2), 0), ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(n + 1)}), Port: uint16(80 + i),
		}
		for b := range dice.IntN(6) {
			p.Any = append(p.Any, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(b % 2), byte(dice.IntN(9))}), 8080))
		}
		slices.SortFunc(p.Any, netip.AddrPort.Compare)
		p.Any = slices.Compact(p.Any)
		p.Usable = len(p.Any) > 0
		for _, b := range p.Any {
			if b.Addr().As4()[2] == 1 {
				p.Here, p.Hairpins = append(p.Here, b), append(p.Hairpins, b)
			}
		}
		p.ExternalLocal, p.InternalLocal = dice.IntN(3) == 0, dice.IntN(4) == 0
		if dice.IntN(2) == 0 {
			p.NodePort = uint16(30000 + dice.IntN(4))
		}
		if dice.IntN(2) == 0 {
			p.External = append(p.External, External{netip.AddrFrom4([4]byte{198, 51, 100, byte(dice.IntN(3))}), dice.IntN(2) == 0})
		}
		if dice.IntN(4) == 0 {
			p.Affinity = time.Duration(1+dice.IntN(2)) * time.Hour
		}
		if dice.IntN(3) == 0 {
			p.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}
		out = append(out, p)
	}
	return out
}

// TestOneServiceCostsWhatItIsWorth: what a change puts into a transaction does not depend on how much there is.
func TestOneServiceCostsWhatItIsWorth(t *testing.T) {
	size := func(services int) (int, int) {
		s := NewState(nft.IP, facts())
		for i := range services {
			service := Service{"ns", fmt.Sprintf("s%d", i)}
			s.Update(service, []*Port{{
				Key: service.Namespace + "/" + service.Name, Namespace: service.Namespace, Name: service.Name, Protocol: "TCP", Port: 80, Usable: true,
				ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(i % 250)}), Any: backends("10.244.1.20:8080", "10.244.1.21:8080"),
			}})
		}
		s.Plan(false)
		service := Service{"ns", "s1"}
		s.Update(service, []*Port{{
			Key: "ns/s1", Namespace: "ns", Name: "s1", Protocol: "TCP", Port: 80, Usable: true,
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, 1}), Any: backends("10.244.1.20:8080", "10.244.1.22:8080", "10.244.1.23:8080"),
		}})
		tx := s.Plan(false)
		return len(tx.Add), len(tx.Delete)
	}
	add, del := size(10)
	if a, d := size(3000); a != add || d != del {
		t.Errorf("a change takes %d and %d elements among 10 Services, %d and %d among 3000", add, del, a, d)
	}
	if add != 3 || del != 1 { // the set of its size, one new backend, one in the place of another
		t.Errorf("a change takes %d elements to add and %d to delete", add, del)
	}
}

// TestOldestClaims: of two Services that claim a frontend the older one has it, the other when that is gone.
func TestOldestClaims(t *testing.T) {
	port := func(name string, created int64) *Port {
		return &Port{
			Key: "ns/" + name, Namespace: "ns", Name: name, Protocol: "TCP", Port: 80, Usable: true, Created: time.Unix(created, 0),
			Any: backends("10.244.1." + name + ":80"), External: []External{{addr("198.51.100.1"), false}},
		}
	}
	s := NewState(nft.IP, facts())
	var r replay
	serves := func(want string) {
		t.Helper()
		if err := r.apply(s.Plan(true)); err != nil {
			t.Fatal(err)
		}
		for at, v := range r.elements {
			if at.set.Kind == endpoints {
				if got := fmt.Sprint(v[3]); got != want {
					t.Errorf("backend %s serves and not %s", got, want)
				}
				return
			}
		}
		t.Error("nobody serves")
	}
	s.Update(Service{"ns", "2"}, []*Port{port("2", 200)})
	serves("2")
	s.Update(Service{"ns", "1"}, []*Port{port("1", 100)})
	serves("1")
	s.Update(Service{"ns", "3"}, []*Port{port("3", 50)})
	serves("3")
	if lost := s.Lost(); len(lost) != 2 || lost[0].To.Name != "3" {
		t.Errorf("lost: %v", lost)
	}
	s.Update(Service{"ns", "3"}, nil)
	serves("1")
	s.Update(Service{"ns", "2"}, nil)
	serves("1")
	if contested, _ := s.Contested(); contested {
		t.Error("still contested")
	}
}
