package audit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/test/lab"
)

// leftover puts rules of iptables mode beside the tables.
func (x *nftables) leftover() *mutant {
	family := choose(x.dice, []int{4, 6})
	backend := choose(x.dice, []lab.Backend{lab.NFT, lab.NFT, lab.Legacy})
	if backend == lab.Legacy {
		empty := &ruleText{}
		empty.table("nat")
		empty.table("filter")
		return x.beside(family, x.old[family].clone(), backend, x.restore(backend, family, empty.String()))
	}
	return x.beside(family, x.old[family].clone(), backend, x.nft(withoutTables("nat", "filter")))
}

// foreign is a mutant with a table of another program, of one chain with one rule.
func (x *nftables) foreign(family int, kind, hook string, priority int, rule string) *mutant {
	name := choose(x.dice, []string{ipWord(family), ipWord(family), "inet"}) + " hostfw"
	text := fmt.Sprintf("table %s { chain guard { type %s hook %s priority %d; policy accept; %s; }; }", name, kind, hook, priority, rule)
	return &mutant{family: family, what: text, do: x.nft(text), undo: x.nft("delete table " + name), places: []string{rule, "hostfw"}}
}

// matches are those of a frontend of some Service.
func (x *nftables) matches(family int) (service, matches, protocol string) {
	service, addr, port, protocol := x.frontend(family)
	matches = fmt.Sprintf("%s dport %d", protocol, port)
	if addr.IsValid() {
		matches = fmt.Sprintf("%s daddr %s %s", ipWord(family), addr, matches)
	}
	return service, matches, protocol
}

// aroundDNAT are priorities before and behind those of kube-proxy's chains that translate, and theirs: the table that
// came last is first.
var aroundDNAT = []int{-150, -101, -100, -99, -50}

func (x *nftables) foreignDNAT() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, protocol := x.matches(family)
	port := map[string]uint16{"tcp": 8080, "udp": 5353}[protocol]
	to := netip.AddrPortFrom(x.pods[choose(x.dice, []string{"client-1b", "a2", "c2"})].Addr(family == 6), port)
	dnat := fmt.Sprintf("dnat %s to %s", ipWord(family), to)
	how := choose(x.dice, []string{dnat, dnat, "redirect to :9999"})
	u := x.foreign(family, "nat", choose(x.dice, []string{"prerouting", "prerouting", "output"}), choose(x.dice, aroundDNAT), matches+" "+how)
	// In a table of one family nft leaves out which one it is.
	u.places = append(u.places, strings.Replace(u.places[0], "dnat "+ipWord(family)+" to", "dnat to", 1))
	u.about = []string{service}
	return u
}

func (x *nftables) half() *mutant {
	family := choose(x.dice, []int{4, 6})
	at := choose(x.dice, []struct {
		hook     string
		priority []int
	}{
		{"prerouting", []int{-310, -150, -105, -95, 0}},
		{"forward", []int{-10, 0, 10}},
		{"input", []int{-10, 0, 10}},
		{"output", []int{-310, -150, -105, -95, 10}},
		{"postrouting", []int{-10, 90, 110}},
	})
	protocol := choose(x.dice, []string{"", "", " meta l4proto tcp", " meta l4proto udp"})
	if family == 6 && at.hook != "forward" && protocol == "" {
		return nil // neighbour discovery
	}
	end := "drop"
	if at.hook == "forward" || at.hook == "input" || at.hook == "output" {
		end = choose(x.dice, []string{"drop", "drop", "reject"})
	}
	side := choose(x.dice, []string{"saddr", "daddr"})
	rule := fmt.Sprintf("%s %s %s%s %s", ipWord(family), side, choose(x.dice, x.halves(family)), protocol, end)
	return x.foreign(family, "filter", at.hook, choose(x.dice, at.priority), rule)
}

func (x *nftables) foreignNotrack() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, protocol := x.matches(family)
	hook, priority := choose(x.dice, []string{"prerouting", "output"}), choose(x.dice, []int{-300, -300, -250, -150})
	if x.dice.IntN(2) == 0 {
		u := x.foreign(family, "filter", hook, priority, matches+" notrack")
		u.about = []string{service}
		return u
	}
	// The answers of a backend.
	backend := x.pods[choose(x.dice, []string{"a1", "a2", "c1", "c2"})].Addr(family == 6)
	return x.foreign(family, "filter", hook, priority, fmt.Sprintf("%s saddr %s meta l4proto %s notrack", ipWord(family), backend, protocol))
}

func (x *nftables) foreignAccept() *mutant {
	family := choose(x.dice, []int{4, 6})
	hook := choose(x.dice, []string{"prerouting", "prerouting", "output", "postrouting"})
	match := choose(x.dice, []string{"", "meta l4proto tcp ", fmt.Sprintf("%s saddr %s ", ipWord(family), x.halves(family)[0])})
	priority := choose(x.dice, aroundDNAT)
	if hook == "postrouting" {
		priority = choose(x.dice, []int{50, 100, 110})
	}
	return x.foreign(family, choose(x.dice, []string{"nat", "nat", "filter"}), hook, priority, match+"accept")
}

func (x *nftables) foreignMasquerade() *mutant {
	family := choose(x.dice, []int{4, 6})
	some := fmt.Sprintf("%s saddr %s ", ipWord(family), x.halves(family)[0])
	match := choose(x.dice, []string{"", "", `oifname "eth0" `, `oifname "cni0" `, some})
	return x.foreign(family, "nat", "postrouting", choose(x.dice, []int{50, 99, 100, 101, 150}), match+"masquerade")
}

func (x *nftables) foreignMark() *mutant {
	family := choose(x.dice, []int{4, 6})
	service, matches, _ := x.matches(family)
	at := choose(x.dice, []struct {
		hook     string
		priority int
	}{{"prerouting", -150}, {"prerouting", -50}, {"forward", 0}, {"postrouting", 50}, {"postrouting", 150}, {"output", -150}})
	set := "meta mark set " + choose(x.dice, []string{"meta mark | 0x00004000", "0x00004000", "meta mark & 0xffffbfff", "0x00000000"})
	if x.dice.IntN(2) == 0 {
		return x.foreign(family, "filter", at.hook, at.priority, set)
	}
	u := x.foreign(family, "filter", at.hook, at.priority, matches+" "+set)
	u.about = []string{service}
	return u
}
