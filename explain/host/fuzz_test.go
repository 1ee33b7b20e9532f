package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/svcnet/svcnet/explain/paste"
)

// fuzz feeds a parser with changed captures. Whatever they hold, it returns, what it read can be asked, and
// an error leaves nothing that counts as captured.
func fuzz(f *testing.F, parse parser, words ...string) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, w := range words {
			if strings.Contains(filepath.Base(file), w) {
				b, err := os.ReadFile(file)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(string(b))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := &Host{}
		problems, err := parse(h, text, "fuzz")
		for _, p := range problems {
			if !utf8.ValidString(p.Text) || len(p.Text) > 2*paste.Longest || p.Why == "" {
				t.Errorf("problem %+v", p)
			}
		}
		if err != nil && (h.HasAddrs || h.HasLinks || h.HasFlows || h.HasSockets || len(h.HasRoutes)+len(h.HasRules)+len(h.Sysctls) > 0) {
			t.Errorf("an error, and yet captured: %v", err)
		}
		for _, dst := range parseAddrs("10.0.0.1 10.244.1.7 255.255.255.255 fd00:1::1 fe80::1 ff02::1") {
			h.Type(dst)
			h.Route(Query{Dst: dst, Local: true})
			h.Route(Query{Src: addr("10.1.1.1"), Dst: dst, In: "eth0", InKnown: true, Mark: 0x4000})
			h.ReversePath("eth0", dst, dst, 0)
			h.MasqueradeAddr("eth0", dst, dst)
		}
		h.OwnAddrs(4)
		h.OwnAddrs(6)
		h.FlowsTo(17, addr("10.0.0.2"), 53)
		h.SysctlAbsent("net.bridge.bridge-nf-call-iptables")
		h.StrictSourceCheck("eth0")
		h.FlowCounter("insert_failed")
		h.KernelSaid(TableFull)
		h.FlowOf(6, addr("10.0.0.1"), 1, addr("10.0.0.2"), 2)
		h.NewestStamp()
	})
}

func FuzzParseAddrs(f *testing.F)       { fuzz(f, ParseAddrs, "addr") }
func FuzzParseLinks(f *testing.F)       { fuzz(f, ParseLinks, "link") }
func FuzzParseRoutes(f *testing.F)      { fuzz(f, routes, "route") }
func FuzzParseRules(f *testing.F)       { fuzz(f, rules, "rule") }
func FuzzParseSysctls(f *testing.F)     { fuzz(f, ParseSysctls, "sysctl") }
func FuzzParseConntrack(f *testing.F)   { fuzz(f, ParseConntrack, "conntrack") }
func FuzzParseSockets(f *testing.F)     { fuzz(f, ParseSockets, "-ss") }
func FuzzParseRecent(f *testing.F)      { fuzz(f, ParseRecent, "recent") }
func FuzzParseBridges(f *testing.F)     { fuzz(f, ParseBridges, "brctl") }
func FuzzParseBridgeLinks(f *testing.F) { fuzz(f, ParseBridgeLinks, "bridge") }
func FuzzParseHairpin(f *testing.F)     { fuzz(f, ParseHairpin, "hairpin") }
func FuzzParseUname(f *testing.F)       { fuzz(f, ParseUname, "uname") }
func FuzzParseFlowStats(f *testing.F)   { fuzz(f, ParseFlowStats, "conntrack-S", "stat-nf_conntrack") }
func FuzzParseKernelLog(f *testing.F)   { fuzz(f, ParseKernelLog, "dmesg") }
func FuzzParseOffloads(f *testing.F)    { fuzz(f, ParseOffloads, "ethtool") }
