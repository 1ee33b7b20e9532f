package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// parser is one of the package's parsers.
type parser func(h *Host, text, file string) ([]Problem, error)

func routes(h *Host, text, file string) ([]Problem, error) { return ParseRoutes(h, 0, text, file) }
func rules(h *Host, text, file string) ([]Problem, error)  { return ParseRules(h, 0, text, file) }

// parserOf tells by a test file's name which parser reads it.
func parserOf(name string) parser {
	switch {
	case strings.Contains(name, "addr"):
		return ParseAddrs
	case strings.Contains(name, "bridge"):
		return ParseBridgeLinks
	case strings.Contains(name, "link"):
		return ParseLinks
	case strings.Contains(name, "route"):
		return routes
	case strings.Contains(name, "rule"):
		return rules
	case strings.Contains(name, "sysctl"):
		return ParseSysctls
	case strings.Contains(name, "conntrack-S"), strings.Contains(name, "stat-nf_conntrack"):
		return ParseFlowStats
	case strings.Contains(name, "dmesg"):
		return ParseKernelLog
	case strings.Contains(name, "ethtool"):
		return ParseOffloads
	case strings.Contains(name, "conntrack"):
		return ParseConntrack
	case strings.Contains(name, "ss"):
		return ParseSockets
	case strings.Contains(name, "recent"):
		return ParseRecent
	case strings.Contains(name, "brctl"):
		return ParseBridges
	case strings.Contains(name, "hairpin"):
		return ParseHairpin
	case strings.Contains(name, "uname"):
		return ParseUname
	}
	return nil
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// load parses test files into one host; any problem fails the test.
func load(t testing.TB, names ...string) *Host {
	t.Helper()
	h := &Host{}
	for _, name := range names {
		problems, err := parserOf(name)(h, read(t, name), name)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, problems %v", name, err, problems)
		}
	}
	return h
}

// host parses texts given by the name of what they are.
func host(t testing.TB, files map[string]string) *Host {
	t.Helper()
	h := &Host{}
	for name, text := range files {
		problems, err := parserOf(name)(h, text, name)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, problems %v", name, err, problems)
		}
	}
	return h
}

// TestEveryFixture reads every file of the corpus without a problem, with Windows line ends and a byte order
// mark just the same.
func TestEveryFixture(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d test files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			text := read(t, name)
			plain, other := &Host{}, &Host{}
			problems, err := parserOf(name)(plain, text, name)
			if err != nil || len(problems) > 0 {
				t.Fatalf("%v, problems %v", err, problems)
			}
			if _, err := parserOf(name)(other, "\ufeff"+strings.ReplaceAll(text, "\n", "\r\n"), name); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain, other, ignoreIndexes, compareAddrs, cmpopts.IgnoreFields(Evidence{}, "Text")); diff != "" {
				t.Errorf("with CRLF and BOM (-plain +other):\n%s", diff)
			}
			n := len(plain.Links) + len(plain.Addrs) + len(plain.Routes) + len(plain.Rules) + len(plain.Sysctls) + len(plain.Flows) +
				len(plain.Sockets) + len(plain.Recent) + len(plain.Uname.Release) + len(plain.FlowStats) + len(plain.KernelLog) + len(plain.Offloads)
			if n == 0 {
				t.Error("nothing was read")
			}
			for _, line := range evidenceOf(plain) {
				if line.File != name || line.Line < 1 || line.Text == "" {
					t.Errorf("incomplete evidence %+v", line)
				}
			}
		})
	}
}

func evidenceOf(h *Host) []Evidence {
	var out []Evidence
	for _, x := range h.Addrs {
		out = append(out, x.Evidence)
	}
	for _, x := range h.Routes {
		out = append(out, x.Evidence)
	}
	for _, x := range h.Rules {
		out = append(out, x.Evidence)
	}
	for _, x := range h.Flows {
		out = append(out, x.Evidence)
	}
	for _, x := range h.Sockets {
		out = append(out, x.Evidence)
	}
	for _, x := range h.SysctlEvidence {
		out = append(out, x)
	}
	for _, x := range h.FlowStats {
		out = append(out, x.Evidence)
	}
	for _, x := range h.KernelLog {
		out = append(out, x.Evidence)
	}
	for _, features := range h.Offloads {
		for _, x := range features {
			out = append(out, x.Evidence)
		}
	}
	return out
}

var (
	ignoreIndexes  = cmpopts.IgnoreUnexported(Host{})
	ignoreEvidence = cmpopts.IgnoreTypes(Evidence{})
	compareAddrs   = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
)

// TestFormsAgree reads captures of one moment in all their forms: they say the same.
func TestFormsAgree(t *testing.T) {
	// Forms that leave something out are compared without it.
	without := func(fields ...string) cmp.Option { return cmpopts.IgnoreFields(Link{}, fields...) }
	detailed := []string{"Kind", "Hairpin", "Carrier", "CallsIPTables", "CallsIP6Tables"} // what -d adds
	for _, c := range []struct {
		name   string
		files  []string
		ignore cmp.Options
	}{
		{"ip addr", []string{"lab-ip-addr.txt", "lab-ip-j-addr.json", "lab-ip-d-addr.txt"}, cmp.Options{without(detailed...), cmpopts.IgnoreFields(Addr{}, "Flags")}},
		{"ip addr with flags", []string{"lab-ip-addr.txt", "lab-ip-d-addr.txt"}, cmp.Options{without(detailed...)}},
		{"ip -o addr", []string{"lab-ip-addr.txt", "lab-ip-o-addr.txt"}, cmp.Options{cmpopts.IgnoreFields(Host{}, "Links", "HasLinks")}},
		{"ip link", []string{"lab-ip-link.txt", "lab-ip-o-link.txt"}, nil},
		{"ip -d link", []string{"lab-ip-d-link.txt", "lab-ip-d-j-link.json"}, nil},
		{"ip route show table all", []string{"lab-ip-route-all.txt", "lab-ip-d-route-all.txt", "lab-ip-j-route-all.json"}, cmp.Options{cmpopts.IgnoreFields(Route{}, "Scope")}},
		{"ip route", []string{"lab-ip-route.txt", "lab-ip-o-route.txt"}, nil},
		{"ip rule", []string{"lab-ip-rule.txt", "lab-ip-j-rule.json"}, nil},
		{"bridge link", []string{"lab-bridge-link.txt", "lab-bridge-j-link.json"}, nil},
		{"conntrack", []string{"lab-conntrack.txt", "lab-conntrack-extended.txt", "lab-nf_conntrack.txt"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := load(t, c.files[0])
			for _, f := range c.files[1:] {
				opts := append(cmp.Options{ignoreIndexes, ignoreEvidence, compareAddrs, cmpopts.EquateEmpty()}, c.ignore...)
				if diff := cmp.Diff(first, load(t, f), opts); diff != "" {
					t.Errorf("-%s +%s:\n%s", c.files[0], f, diff)
				}
			}
		})
	}
}

// TestTwiceIsOnce reads one capture twice, as when a bundle holds `ip route` and `ip route show table all`.
func TestTwiceIsOnce(t *testing.T) {
	once := load(t, "lab-ip-addr.txt", "lab-ip-route-all.txt", "lab-ip-rule-both.txt", "lab-ss-lntup.txt")
	twice := load(t, "lab-ip-addr.txt", "lab-ip-o-addr.txt", "lab-ip-route-all.txt", "lab-ip-route.txt", "lab-ip-6-route.txt",
		"lab-ip-route-table-local.txt", "lab-ip-rule-both.txt", "lab-ip-rule.txt", "lab-ip-6-rule.txt", "lab-ss-lntup.txt", "lab-ss-lntup.txt")
	if diff := cmp.Diff(once, twice, ignoreIndexes, ignoreEvidence, compareAddrs); diff != "" {
		t.Errorf("-once +twice:\n%s", diff)
	}
}
