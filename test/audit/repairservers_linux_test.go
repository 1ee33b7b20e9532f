package audit

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// damage breaks what a kube-proxy in IPVS mode keeps for one family, of each kind something, so that a plan has steps of
// each kind with many lines.
func (x *ipvsNode) damage(ctx context.Context, family int, half string) error {
	r := x.clean[family].clone()
	nat, filter := r.table("nat"), r.table("filter")
	nat.rules = slices.DeleteFunc(nat.rules, func(rule string) bool { return isJump(rule) || chainOf(rule) == "KUBE-LOAD-BALANCER" })
	filter.rules = slices.DeleteFunc(filter.rules, func(rule string) bool { return chainOf(rule) == "KUBE-FORWARD" })
	filter.insert(0, "-A FORWARD -s "+half+" -j DROP")

	six := family == 6
	all, err := virtualServers(x.n1)
	if err != nil {
		return err
	}
	of := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		v := all[key]
		if v.at.Addr().Is6() != six || len(x.servedAt(v.at, strings.ToLower(v.proto))) == 0 {
			continue
		}
		switch of++; {
		case of%3 == 0:
			delete(all, key)
		case of%3 == 1 && serves(v):
			w := v.clone()
			w.reals[0].weight = 0
			w.reals = append(w.reals, realServer{netip.AddrPortFrom(x.pods["client-1b"].Addr(six), w.reals[0].to.Port()), "Masq", 1})
			all[key] = w
		case of%3 == 2:
			w := v.clone()
			w.scheduler, w.persistent = "sh", 77
			all[key] = w
		}
	}
	prefix, stale := "KUBE-", "10.96.7.99,tcp:7777"
	if six {
		prefix, stale = "KUBE-6-", "fd00:96::799,tcp:7777"
	}
	out := []error{
		x.load(family, r)(ctx), program(x.n1, all),
		x.ipset("flush "+prefix+"CLUSTER-IP", "add "+prefix+"EXTERNAL-IP "+stale)(ctx),
		x.run("", "ip", "addr", "add", map[bool]string{false: "10.96.7.99/32", true: "fd00:96::799/128"}[six], "dev", kubeDevice)(ctx),
	}
	for _, a := range x.acts[:3] {
		addr := netip.MustParseAddr(a.addresses()[family/2-2])
		out = append(out, x.run("", "ip", "addr", "del", prefixed(addr), "dev", kubeDevice)(ctx))
	}
	return errors.Join(out...)
}
