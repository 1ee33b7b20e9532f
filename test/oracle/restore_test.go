//go:build linux

package oracle

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

func requireTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("the kernel oracle needs %s, which is not installed", name)
	}
}

// program is the iptables program of a family and backend: iptables-nft-save and the like.
func program(fam netfilter.Family, backend netfilter.Backend, verb string) string {
	base := "iptables"
	if fam == netfilter.IPv6 {
		base = "ip6tables"
	}
	return base + "-" + string(backend) + "-" + verb
}

// load loads rulesets of one family; a backend that is not among them is emptied. It returns what the kernel then
// holds, as the save programs print it, by backend.
func (l *lab) load(fam netfilter.Family, traced bool, rulesets ...*ruleset) (map[netfilter.Backend]string, error) {
	saved := make(map[netfilter.Backend]string)
	for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
		rs := empty(fam, backend)
		trace := false
		for _, given := range rulesets {
			if given.backend == backend {
				rs, trace = given, traced
			}
		}
		text := rs.text(trace)
		if _, err := l.node.run(text, program(fam, backend, "restore")); err != nil {
			return nil, fmt.Errorf("load rules: %w\n%s", err, numbered(text))
		}
		out, err := l.node.run("", program(fam, backend, "save"), "-c")
		if err != nil {
			return nil, fmt.Errorf("read rules back: %w", err)
		}
		saved[backend] = out
	}
	if err := l.forget(); err != nil {
		return nil, err
	}
	return saved, nil
}

// forget ends all tracked connections of the node.
func (l *lab) forget() error {
	_, err := l.node.run("", "conntrack", "-F")
	return err
}

func numbered(text string) string {
	out, n := "", 1
	for line := range lines(text) {
		out += fmt.Sprintf("%4d %s\n", n, line)
		n++
	}
	return out
}
