package netfilter

import (
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
)

// Physdev is -m physdev: the ports of a bridge that a bridged packet came in by and leaves by.
type Physdev struct {
	In, Out IfaceMatch
	// IsIn, IsOut and IsBridged are --physdev-is-in, -is-out and -is-bridged.
	IsIn, IsOut, IsBridged Trait
}

// Trait is a yes-or-no test.
type Trait uint8

// The values of Trait.
const (
	AnyTrait Trait = iota
	WithTrait
	WithoutTrait
)

func trait(not bool) Trait {
	if not {
		return WithoutTrait
	}
	return WithTrait
}

var physdevMatch = extension{
	name: "physdev",
	save: func(*arena) saved { return new(Physdev) },
	list: listPhysdev,
}

// Test follows physdev_mt of xt_physdev.c. A packet that did not come through a bridge port passes exactly the
// negated tests. One that did, and is met by the IP hooks on the bridge (net.bridge.bridge-nf-call-iptables),
// has an incoming port in PREROUTING and no outgoing one; which port, and what is left of it at later hooks,
// is not decided here.
func (m *Physdev) Test(k *Kernel, hook Hook, p *Packet) Answer {
	switch bridged, why := bridged(k, p); {
	case bridged == WithoutTrait:
		return Is(m.unbridged())
	case bridged == WithTrait && hook == Prerouting && m.In.Name == "" && m.Out.Name == "":
		return Is(m.IsIn != WithoutTrait && m.IsOut != WithTrait && m.IsBridged != WithTrait)
	default:
		return Maybe(Fact{
			Key:     "physdev " + m.String(),
			Yes:     "the packet passes physdev " + m.String(),
			No:      "the packet does not pass physdev " + m.String(),
			Because: why,
		})
	}
}

func (m *Physdev) unbridged() bool {
	return m.IsIn != WithTrait && m.IsOut != WithTrait && m.IsBridged != WithTrait &&
		(m.In.Name == "" || m.In.Not) && (m.Out.Name == "" || m.Out.Not)
}

// bridged tells whether the packet came in by a port of a bridge and is met by the IP hooks there.
func bridged(k *Kernel, p *Packet) (is Trait, why string) {
	if p.Local {
		return WithoutTrait, ""
	}
	calls := func(bridge *host.Link) host.Finding { return k.Host.CallsRules(bridge, int(p.Family)) }
	set := func(l host.Link) bool { return calls(&l).Is != host.No }
	if calls(nil).Is == host.No && !slices.ContainsFunc(k.Host.Links, set) {
		return WithoutTrait, ""
	}
	if !p.In.Known {
		return AnyTrait, "the incoming interface is not known"
	}
	if !k.Host.HasLinks {
		return AnyTrait, "whether " + p.In.Name + " is a bridge is not known: no links were captured"
	}
	if link := k.Host.Link(p.In.Name); link != nil {
		switch is := calls(link); {
		case link.Kind != "" && link.Kind != "bridge" || is.Is == host.No:
			return WithoutTrait, ""
		case link.Kind == "":
			return AnyTrait, "whether " + p.In.Name + " is a bridge is not known: the links were captured without their kind (ip -d link)"
		case is.Is == host.Unknown:
			return AnyTrait, is.Because
		}
		return WithTrait, "which port of " + p.In.Name + " the packet came by is not known"
	}
	return AnyTrait, "interface " + p.In.Name + " is not in the capture"
}

// String is the test as a rule writes it.
func (m *Physdev) String() string {
	var parts []string
	add := func(not bool, s string) {
		if not {
			s = "! " + s
		}
		parts = append(parts, s)
	}
	if m.IsIn != AnyTrait {
		add(m.IsIn == WithoutTrait, "--physdev-is-in")
	}
	if m.In.Name != "" {
		add(m.In.Not, "--physdev-in "+m.In.Name)
	}
	if m.IsOut != AnyTrait {
		add(m.IsOut == WithoutTrait, "--physdev-is-out")
	}
	if m.Out.Name != "" {
		add(m.Out.Not, "--physdev-out "+m.Out.Name)
	}
	if m.IsBridged != AnyTrait {
		add(m.IsBridged == WithoutTrait, "--physdev-is-bridged")
	}
	return strings.Join(parts, " ")
}

func (m *Physdev) option(o *option) bool {
	switch o.name {
	case "--physdev-in":
		m.In.Name = o.value()
		m.In.Not = o.not
	case "--physdev-out":
		m.Out.Name = o.value()
		m.Out.Not = o.not
	case "--physdev-is-in":
		m.IsIn = trait(o.not)
	case "--physdev-is-out":
		m.IsOut = trait(o.not)
	case "--physdev-is-bridged":
		m.IsBridged = trait(o.not)
	default:
		return false
	}
	return true
}

// listPhysdev reads "PHYSDEV match" with the options of the save form.
func listPhysdev(l *listing) Match {
	if !l.word("PHYSDEV", "match") {
		return nil
	}
	m := new(Physdev)
	for {
		start := l.i
		not := l.not()
		switch w := l.next(); w {
		case "--physdev-in":
			m.In = IfaceMatch{Name: l.next(), Not: not}
		case "--physdev-out":
			m.Out = IfaceMatch{Name: l.next(), Not: not}
		case "--physdev-is-in":
			m.IsIn = trait(not)
		case "--physdev-is-out":
			m.IsOut = trait(not)
		case "--physdev-is-bridged":
			m.IsBridged = trait(not)
		default:
			l.i = start
			return m
		}
	}
}
