//go:build linux

package oracle

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// aside are the matches and targets of the kernel that the oracle leaves out, with the reason and what covers them
// instead. TestEverythingIsCovered holds the list to what the kernel has.
var aside = map[string]string{
	"match ah":           "needs IPsec packets; its parser is tested",
	"match connlabel":    "needs a file of label names in /etc/xtables; its parser is tested",
	"match dst":          "needs IPv6 extension headers; its parser is tested",
	"match esp":          "needs IPsec packets; its parser is tested",
	"match eui64":        "needs addresses made from link-layer addresses; its parser is tested",
	"match frag":         "needs IPv6 fragments; its parser is tested",
	"match hbh":          "needs IPv6 extension headers; its parser is tested",
	"match ipcomp":       "needs IPsec packets; its parser is tested",
	"match ipvs":         "needs virtual servers; its parser is tested",
	"match l2tp":         "iptables has no such match",
	"match mh":           "needs Mobile IPv6; its parser is tested",
	"match osf":          "needs fingerprints in the kernel; its parser is tested",
	"match rateest":      "needs seconds of traffic for an estimate; its parser is tested",
	"match rt":           "needs IPv6 extension headers; its parser is tested",
	"match srh":          "needs IPv6 extension headers; its parser is tested",
	"match udplite":      "iptables has no such match: -p udplite has ports by -m multiport",
	"target CONNSECMARK": "needs a security module in force",
	"target ERROR":       "marks the start of a chain inside the kernel",
	"target RATEEST":     "feeds -m rateest",
	"target SECMARK":     "needs a security module in force",
	"target TEE":         "sends a second packet that cannot be told from the first",
}

// TestEverythingIsCovered: every match and target of this kernel is drawn by the generators or set aside by name.
func TestEverythingIsCovered(t *testing.T) {
	l := requireLab(t)
	if _, lacking := l.probe(t); len(lacking) > 0 {
		t.Log("not loadable here: ", strings.Join(lacking, "; "))
	}
	names := make(map[string]bool)
	err := l.node.do(func() error {
		for _, f := range []string{"ip_tables_matches", "ip6_tables_matches", "ip_tables_targets", "ip6_tables_targets"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + f)
			if err != nil {
				return fmt.Errorf("read what the kernel has: %w", err)
			}
			for name := range lines(string(text)) {
				kind := "match "
				if strings.HasSuffix(f, "targets") {
					kind = "target "
				}
				names[kind+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		kind, short, _ := strings.Cut(name, " ")
		drawn := kind == "match" && slices.ContainsFunc(matchKinds, func(m matchKind) bool { return m.name == short }) ||
			kind == "target" && slices.ContainsFunc(targetKinds, func(k targetKind) bool { return k.name == short })
		switch why := aside[name]; {
		case drawn && why == "":
		case drawn:
			t.Errorf("%s is drawn and set aside", name)
		case why == "":
			t.Errorf("the kernel has %s, which no generator draws", name)
		default:
			t.Logf("%s is set aside: %s", name, why)
		}
	}
}
