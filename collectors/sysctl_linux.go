package collectors

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readSysctls reads those sysctls that decide about packets of Services, in the text of `sysctl -a`. Files of
// /proc/sys/net show the thread's network namespace. A first line says of which directories every sysctl is there: one
// that such a directory lacks does not exist, as net.bridge has none where br_netfilter is not loaded.
func readSysctls(ctx context.Context, p *place) []snapshot.Evidence {
	file := p.dir + "sysctl.txt"
	var (
		out    []string
		denied error
		buf    = make([]byte, 4<<10)
		whole  = slices.DeleteFunc(slices.Clone(sysctlDirs), func(dir string) bool { return !sysctlListable(sysctlRoot + dir) })
	)
	for _, name := range sysctlFiles(sysctlRoot) {
		if ctx.Err() != nil {
			return []snapshot.Evidence{couldNot(file, snapshot.Sysctl, "sysctls", ctx.Err())}
		}
		value, err := readSysctl(sysctlRoot+name, buf)
		switch {
		case err == nil:
			out = append(out, sysctlLines(sysctlName(name), value)...)
		case errors.Is(err, fs.ErrPermission):
			denied = err
			fallthrough
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EISDIR):
			whole = slices.DeleteFunc(whole, func(dir string) bool { return strings.HasPrefix(name, dir) })
		}
	}
	if len(out) == 0 {
		if denied == nil {
			denied = errors.New("there is none below " + sysctlRoot)
		}
		return []snapshot.Evidence{couldNot(file, snapshot.Sysctl, "sysctls", denied)}
	}
	slices.Sort(out)
	var b bytes.Buffer
	if len(whole) > 0 {
		b.WriteString("# all of")
		for _, dir := range whole {
			b.WriteString(" " + sysctlName(strings.TrimSuffix(dir, "/")))
		}
		b.WriteByte('\n')
	}
	for _, line := range out {
		b.WriteString(line + "\n")
	}
	return []snapshot.Evidence{evidence(file, snapshot.Sysctl, b.Bytes())}
}

// readSysctl reads one file. It does without the machinery of os.ReadFile, which takes longer than the kernel does,
// and a node with a thousand pods has tens of thousands of them.
func readSysctl(file string, buf []byte) (string, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var value strings.Builder
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return "", err
		case n == 0:
			return value.String(), nil
		}
		value.Write(buf[:n])
	}
}

const sysctlRoot = "/proc/sys/"

// sysctlDirs are the directories of which every file is read.
var sysctlDirs = []string{"net/bridge/", "net/ipv4/vs/", "net/netfilter/"}

// sysctlFiles are the files to read, below root. Those that hold secrets (net.ipv4.tcp_fastopen_key,
// net.ipv6.conf.*.stable_secret) are none of them, nor those that do something when they are touched.
func sysctlFiles(root string) []string {
	files := slices.Clone(sysctlSingle())
	for _, dir := range sysctlDirs {
		for _, name := range entriesOf(root + dir) {
			files = append(files, dir+name)
		}
	}
	for dir, keys := range sysctlOfInterfaces() {
		for _, name := range entriesOf(root + dir) {
			if !sysctlReadable(name) {
				continue
			}
			for _, key := range keys {
				files = append(files, dir+name+"/"+key)
			}
		}
	}
	return files
}

// sysctlReadable is false for interfaces with a name that makes a line of sysctl mean something else: the line
// ends its name with "=".
func sysctlReadable(name string) bool {
	return !strings.ContainsAny(name, "=\"'") && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// sysctlSingle are the sysctls that stand alone; what a kernel lacks is passed over.
func sysctlSingle() []string {
	return []string{
		"kernel/osrelease",
		"net/core/netdev_max_backlog",
		"net/core/somaxconn",
		"net/ipv4/conf/all/accept_redirects",
		"net/ipv4/fib_multipath_hash_fields",
		"net/ipv4/fib_multipath_hash_policy",
		"net/ipv4/fib_multipath_use_neigh",
		"net/ipv4/fwmark_reflect",
		"net/ipv4/icmp_echo_ignore_all",
		"net/ipv4/icmp_errors_use_inbound_ifaddr",
		"net/ipv4/icmp_ratelimit",
		"net/ipv4/ip_early_demux",
		"net/ipv4/ip_forward",
		"net/ipv4/ip_forward_use_pmtu",
		"net/ipv4/ip_local_port_range",
		"net/ipv4/ip_local_reserved_ports",
		"net/ipv4/ip_no_pmtu_disc",
		"net/ipv4/ip_nonlocal_bind",
		"net/ipv4/ip_unprivileged_port_start",
		"net/ipv4/neigh/default/gc_thresh1",
		"net/ipv4/neigh/default/gc_thresh2",
		"net/ipv4/neigh/default/gc_thresh3",
		"net/ipv4/nexthop_compat_mode",
		"net/ipv4/tcp_fin_timeout",
		"net/ipv4/tcp_fwmark_accept",
		"net/ipv4/tcp_keepalive_intvl",
		"net/ipv4/tcp_keepalive_probes",
		"net/ipv4/tcp_keepalive_time",
		"net/ipv4/tcp_l3mdev_accept",
		"net/ipv4/tcp_max_syn_backlog",
		"net/ipv4/tcp_max_tw_buckets",
		"net/ipv4/tcp_mtu_probing",
		"net/ipv4/tcp_syncookies",
		"net/ipv4/tcp_timestamps",
		"net/ipv4/tcp_tw_reuse",
		"net/ipv4/udp_l3mdev_accept",
		"net/ipv6/bindv6only",
		"net/ipv6/fib_multipath_hash_fields",
		"net/ipv6/fib_multipath_hash_policy",
		"net/ipv6/fwmark_reflect",
		"net/ipv6/icmp/echo_ignore_all",
		"net/ipv6/ip_nonlocal_bind",
		"net/ipv6/neigh/default/gc_thresh1",
		"net/ipv6/neigh/default/gc_thresh2",
		"net/ipv6/neigh/default/gc_thresh3",
		"net/ipv6/route/max_size",
		"net/nf_conntrack_max",
	}
}

// sysctlOfInterfaces are the sysctls that every interface has, and "all" and "default".
func sysctlOfInterfaces() map[string][]string {
	return map[string][]string{
		"net/ipv4/conf/": {
			"accept_local", "arp_announce", "arp_filter", "arp_ignore", "disable_policy", "forwarding",
			"ignore_routes_with_linkdown", "log_martians", "proxy_arp", "route_localnet", "rp_filter", "send_redirects",
			"src_valid_mark",
		},
		"net/ipv6/conf/": {
			"accept_dad", "accept_ra", "disable_ipv6", "disable_policy", "force_forwarding", "forwarding",
			"ignore_routes_with_linkdown", "proxy_ndp",
		},
	}
}

func entriesOf(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	// What was read until an error is what there is to see.
	names, _ := d.Readdirnames(-1)
	return names
}

// sysctlListable tells whether a directory shows what it holds; one that is not there holds nothing.
func sysctlListable(dir string) bool {
	d, err := os.Open(dir)
	if err == nil {
		d.Close()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// sysctlName is the name of a file below /proc/sys as sysctl prints it: a dot for a slash, and in the names of
// interfaces a slash for a dot.
func sysctlName(file string) string {
	return strings.Map(func(c rune) rune {
		switch c {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return c
	}, file)
}

// sysctlLines writes a value, which may have several lines, each with the name.
func sysctlLines(name, value string) []string {
	var out []string
	for line := range strings.Lines(value) {
		out = append(out, name+" = "+strings.TrimRight(line, "\n"))
	}
	return out
}
