//go:build linux

package oracle

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/netfilter"
)

// captureHost reads the node by the commands that a user would run, through the parsers that read a user's files.
func (l *lab) captureHost() (*host.Host, error) {
	h := &host.Host{}
	for _, c := range []struct {
		argv  []string
		parse func(text, file string) ([]host.Problem, error)
	}{
		{[]string{"ip", "-d", "addr"}, func(text, file string) ([]host.Problem, error) { return host.ParseAddrs(h, text, file) }},
		{[]string{"ip", "-4", "route", "show", "table", "all"}, func(text, file string) ([]host.Problem, error) { return host.ParseRoutes(h, 4, text, file) }},
		{[]string{"ip", "-6", "route", "show", "table", "all"}, func(text, file string) ([]host.Problem, error) { return host.ParseRoutes(h, 6, text, file) }},
		{[]string{"ip", "-4", "rule"}, func(text, file string) ([]host.Problem, error) { return host.ParseRules(h, 4, text, file) }},
		{[]string{"ip", "-6", "rule"}, func(text, file string) ([]host.Problem, error) { return host.ParseRules(h, 6, text, file) }},
		{[]string{"sysctl", "-a"}, func(text, file string) ([]host.Problem, error) { return host.ParseSysctls(h, text, file) }},
	} {
		text, err := l.node.run("", c.argv...)
		if err != nil && c.argv[0] != "sysctl" { // sysctl fails on the names that root may not read
			return nil, err
		}
		file := fmt.Sprint(c.argv)
		problems, err := c.parse(text, file)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		for _, p := range problems {
			return nil, fmt.Errorf("parse %s: line %d %q: %s", file, p.Line, p.Text, p.Why)
		}
	}
	return h, nil
}

// recentLists are the lists of -m recent as they are now. All stamps are of the last seconds, and the rules ask
// for an hour: what counts is how many there are.
func (l *lab) recentLists() (map[string]*netfilter.RecentList, error) {
	h := &host.Host{}
	out := make(map[string]*netfilter.RecentList)
	err := l.node.do(func() error {
		files, err := filepath.Glob("/proc/thread-self/net/xt_recent/*")
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return fmt.Errorf("read list of recent: %w", err)
			}
			if _, err := host.ParseRecent(h, string(text), f); err != nil {
				return fmt.Errorf("parse %s: %w", f, err)
			}
		}
		return nil
	})
	for _, list := range h.Recent {
		r := &netfilter.RecentList{Name: list.Name, Ages: make(map[string][]float64)}
		for _, e := range list.Entries {
			for range e.Stamps {
				r.Ages[e.Addr.String()] = append(r.Ages[e.Addr.String()], 1)
			}
		}
		out[list.Name] = r
	}
	return out, err
}

// walker is the walk over rules as saved and the host as captured.
func (l *lab) walker(fam netfilter.Family, saved map[netfilter.Backend]string) (*netfilter.Walker, error) {
	w := &netfilter.Walker{Kernel: &netfilter.Kernel{Host: l.host(), Sets: sets()}}
	for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
		file := program(fam, backend, "save")
		rulesets, err := netfilter.ParseSave(saved[backend], file, netfilter.Hint{Family: fam, Backend: backend})
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		for _, rs := range rulesets {
			if rs.Family != fam || rs.Backend != backend {
				return nil, fmt.Errorf("parse %s: taken for IPv%d %s", file, rs.Family, rs.Backend)
			}
			for _, p := range rs.Problems {
				return nil, fmt.Errorf("parse %s: line %d %q: %s", file, p.Line, p.Text, p.Why)
			}
			w.Rulesets = append(w.Rulesets, rs)
		}
	}
	return w, nil
}
