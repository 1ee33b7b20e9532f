package collectors

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

func TestReadSysctls(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		needs(t, "sysctl", "ip")
		build(t, `
			ip link add eth0 type veth peer name br.two
			sysctl -qw net.ipv4.ip_forward=1
			sysctl -qw net.ipv4.conf.eth0.rp_filter=2
			sysctl -qw net/ipv4/conf/br.two/route_localnet=1
			sysctl -qw net.ipv4.ip_local_port_range="20000 30000"
		`)
		got := readTwice(t, p, readSysctls)
		roundTrips(t, got...)
		ours := parsed(t, anyFamily(host.ParseSysctls), 0, string(got[0].Data), got[0].File).Sysctls
		// sysctl complains about those that cannot be read; that is no line of its output.
		native := parsed(t, anyFamily(host.ParseSysctls), 0, withoutEmptyNames(shell(t, "sysctl -a 2>/dev/null")), "sysctl.txt").Sysctls
		for name, value := range ours {
			if want, ok := native[name]; (!ok || want != value) && !strings.HasSuffix(name, "_count") {
				t.Errorf("%s is %q, and %q (%v) for sysctl", name, value, want, ok)
			}
		}
		for name, value := range map[string]string{
			"net.ipv4.ip_forward": "1", "net.ipv4.conf.eth0.rp_filter": "2", "net.ipv4.conf.br/two.route_localnet": "1",
			"net.ipv4.conf.eth0.route_localnet": "0", "net.ipv4.conf.all.rp_filter": native["net.ipv4.conf.all.rp_filter"],
			"net.ipv4.conf.all.send_redirects": "1", "net.ipv4.conf.eth0.forwarding": "1", "net.ipv6.conf.all.forwarding": "0",
			"net.ipv4.conf.eth0.ignore_routes_with_linkdown": "0", "net.ipv6.conf.eth0.disable_ipv6": "0",
			"net.ipv4.ip_local_port_range": "20000\t30000", "kernel.osrelease": native["kernel.osrelease"],
		} {
			if ours[name] != value || value == "" {
				t.Errorf("%s is %q, want %q", name, ours[name], value)
			}
		}
		captured := parsed(t, anyFamily(host.ParseSysctls), 0, string(got[0].Data), got[0].File)
		for name := range native {
			if strings.HasPrefix(name, "net.bridge.") || strings.HasPrefix(name, "net.netfilter.") || strings.HasPrefix(name, "net.ipv4.vs.") {
				if _, absent := captured.SysctlAbsent(name); absent {
					t.Errorf("%s is there and taken to be absent", name)
				}
			}
		}
		for name, want := range map[string]bool{"net.bridge.no-such": true, "net.netfilter.no_such": true, "net.ipv4.no_such": false} {
			if _, absent := captured.SysctlAbsent(name); absent != want {
				t.Errorf("%s: absent is %t", name, absent)
			}
		}
		lines := strings.Split(strings.TrimSpace(string(got[0].Data)), "\n")
		if !slices.IsSorted(lines) {
			t.Error("not sorted")
		}
	})
}

// withoutEmptyNames leaves out sysctls with names that only the parser of a later day may read.
func withoutEmptyNames(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " ="); ok && !strings.ContainsAny(name, " \"'") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestSysctlNames(t *testing.T) {
	for file, want := range map[string]string{
		"net/ipv4/ip_forward":              "net.ipv4.ip_forward",
		"net/ipv4/conf/eth0.100/rp_filter": "net.ipv4.conf.eth0/100.rp_filter",
	} {
		if got := sysctlName(file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	for name, want := range map[string]bool{"eth0": true, "eth0.100": true, "a=1": false, `a"`: false, "a\x01": false, "café": true} {
		if got := sysctlReadable(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// TestSysctlFiles finds what modules add, and what interfaces there are.
func TestSysctlFiles(t *testing.T) {
	root := t.TempDir() + "/"
	for _, f := range []string{"net/netfilter/nf_conntrack_max", "net/bridge/bridge-nf-call-iptables", "net/ipv4/vs/conntrack", "net/ipv4/conf/all/rp_filter"} {
		if err := os.MkdirAll(filepath.Dir(root+f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+f, []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(sysctlFiles(root), f) {
			t.Errorf("%s is not found", f)
		}
	}
	for _, f := range sysctlFiles(sysctlRoot) {
		if strings.Contains(f, "secret") || strings.Contains(f, "fastopen_key") || strings.Contains(f, "flush") {
			t.Errorf("%s is read", f)
		}
	}
}

func TestReadUname(t *testing.T) {
	got := readTwice(t, &place{dir: "pods/a/b/"}, readUname)
	roundTrips(t, got...)
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	h := parsed(t, anyFamily(host.ParseUname), 0, string(got[0].Data), got[0].File)
	if want := strings.TrimSpace(string(release)); h.Uname.Release != want || h.Uname.System != "Linux" || got[0].File != "pods/a/b/uname.txt" || got[0].Status != snapshot.OK {
		t.Errorf("%+v of %+v, want %s", h.Uname, got, want)
	}
}
