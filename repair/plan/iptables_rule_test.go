package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSameRule(t *testing.T) {
	for _, tt := range []struct {
		a, b           string
		same, verbatim bool // without comments, with them
	}{
		{"-A X -j Y", "-A X -j Y", true, true},
		{"-A X -j Y", "-A X -j Z", false, false},
		{"-A X -j Y", "-A X -g Y", false, false},
		{"-A X -s 10.0.0.1/32 -j Y", "-A X ! -s 10.0.0.1/32 -j Y", false, false},
		{"-A X -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j Y", "-A X -p tcp -m tcp --dport 80 -j Y", true, false},
		{"-A X -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j Y", "-A X -p tcp -m tcp --dport 80 -m comment --comment \"a b\" -j Y", true, true},
		{"-A X -p tcp -m comment --comment a -m tcp --dport 80 -j Y", "-A X -p tcp -m comment --comment b -m tcp --dport 80 -j Y", true, false},
		{"-A X -p tcp -m tcp --dport 80 -j Y", "-A X -p tcp -m tcp --dport 81 -j Y", false, false},
		{"-A X -p tcp -m tcp -j DNAT --to-destination 10.0.0.1:80", "-A X -p tcp -j DNAT --to-destination 10.0.0.1:80", true, true},
		{"-A X -p tcp -j DNAT --to-destination 10.0.0.1:80", "-A X -p tcp -j DNAT --to-destination 10.0.0.1:81", false, false},
		{"-A X -m nfacct --nfacct-name  n -j DROP", "-A X -m nfacct --nfacct-name n -j DROP", true, true},
		{"-A X -m mark ! --mark 0x4000/0x4000 -j RETURN", "-A X -m mark --mark 0x4000/0x4000 -j RETURN", false, false},
		{"-A X -m conntrack --ctstate NEW -m comment --comment \"x\" -j Y", "-A X -m comment --comment \"x\" -m conntrack --ctstate NEW -j Y", true, true},
		{"-A X ! -i cni0 -d 10.0.0.1/32 -j Y", "-A X -d 10.0.0.1/32 ! -i cni0 -j Y", true, true},
		{"-A X -d 10.0.0.1/32 -i cni0 -j Y", "-A X -d 10.0.0.1/32 -o cni0 -j Y", false, false},
		{`-A X -m comment --comment "-j Z \" -m tcp" -j Y`, "-A X -j Y", true, false},
		{`-A X -m comment --comment "a" -j Y`, `-A X -m comment --comment "open -j Y`, false, false},
		{"-A X -m comment --comment \"other traffic\"", "-A X", true, false},
		{"", "-A X", false, false},
	} {
		for _, swapped := range []bool{false, true} {
			a, b := tt.a, tt.b
			if swapped {
				a, b = b, a
			}
			if got := sameRule(a, b, false); got != tt.same {
				t.Errorf("%q and %q: %v", a, b, got)
			}
			if got := sameRule(a, b, true); got != tt.verbatim {
				t.Errorf("%q and %q with comments: %v", a, b, got)
			}
		}
	}
}

// The quick comparison agrees with the thorough one.
func FuzzSameRule(f *testing.F) {
	f.Add("-A X -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j Y", "-A X -p tcp -m tcp --dport 80 -j Y")
	f.Add(`-A X -m comment --comment "a`, `-A X -m comment --comment \`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if a != b && sameButComment(a, b) && sameRule(a, b, true) != slices.Equal(ruleParts(a, true), ruleParts(b, true)) {
			t.Errorf("%q and %q", a, b)
		}
		ruleParts(a, true)
		serviceOfRule(a)
		jumpOf(a)
		chosen(a)
		aroundComment(a)
	})
}

// Whatever the two lists are, the commands turn the one into the other.
func TestEditsOf(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var from, to []*xtRule
		for range dice.IntN(12) {
			r := &xtRule{text: fmt.Sprintf("-A C -s 10.0.0.%d/32%s -j X", dice.IntN(6), []string{"", " -m recent --name a"}[dice.IntN(2)])}
			from = append(from, r)
			if dice.IntN(3) > 0 {
				to = append(to, r)
			}
		}
		for range dice.IntN(5) {
			to = slices.Insert(to, dice.IntN(len(to)+1), &xtRule{text: fmt.Sprintf("-A C -s 10.0.0.%d/32 -j X", dice.IntN(6))})
		}
		chains := map[string][]string{"C": {"-"}}
		for _, r := range from {
			chains["C"] = append(chains["C"], r.text)
		}
		want := []string{"-"}
		for _, r := range to {
			want = append(want, r.text)
		}
		edits := editsOf("C", from, to)
		for _, e := range edits {
			if err := restoreLine(nil, &chains, e); err != nil {
				t.Fatalf("%s: %v", e, err)
			}
		}
		if !slices.Equal(chains["C"], want) {
			t.Fatalf("%v\nby %v\nis %v\nnot %v", from, edits, chains["C"], want)
		}
	}
}

func TestObjects(t *testing.T) {
	c := &xtChain{there: true, policy: "DROP", rules: []*xtRule{
		{text: `-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "a/b:c cluster IP" -m tcp --dport 80 -j X`},
		{text: `-A KUBE-SERVICES -j Y`},
		{text: `-A KUBE-SERVICES -m comment --comment a/b -j Z`},
	}}
	for _, o := range []struct {
		object
		name string
		want []int
	}{
		{object{}, "chain KUBE-SERVICES", []int{-1, 0, 1, 2}},
		{object{service: "a/b"}, "rules of a/b in chain KUBE-SERVICES", []int{0, 2}},
		{object{service: "a/c"}, "rules of a/c in chain KUBE-SERVICES", nil},
		{object{shared: true}, "rules of no Service in chain KUBE-SERVICES", []int{1}},
		{object{last: true}, "last rule in chain KUBE-SERVICES", []int{2}},
	} {
		if o.object.name("KUBE-SERVICES") != o.name {
			t.Errorf("%q", o.object.name("KUBE-SERVICES"))
		}
		chain, back, ok := objectNamed(o.name)
		if chain != "KUBE-SERVICES" || back != o.object || !ok {
			t.Errorf("%q: %q %+v %v", o.name, chain, back, ok)
		}
		var want []string
		for _, i := range o.want {
			if i < 0 {
				want = append(want, ":KUBE-SERVICES DROP")
				continue
			}
			want = append(want, c.rules[i].text)
		}
		if got, there := o.of("KUBE-SERVICES", c); !slices.Equal(got, want) || !there {
			t.Errorf("%q: %q", o.name, got)
		}
		if got, there := o.of("KUBE-SERVICES", &xtChain{}); len(got) > 0 || there {
			t.Errorf("%q of no chain: %q", o.name, got)
		}
	}
	for _, name := range []string{"", "chains", "rules of a/b", "rule in chain X", strings.Repeat("x", 100)} {
		if _, _, ok := objectNamed(name); ok {
			t.Errorf("%q is an object", name)
		}
	}
}
