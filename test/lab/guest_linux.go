package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/svcnet/svcnet/test/uml"
)

// guestModules are those that a lab needs.
const guestModules = "ipv6 bridge br_netfilter veth dummy nf_conntrack nf_conntrack_netlink ip_vs ip_vs_rr ip_vs_wrr ip_vs_sh ip_set " +
	"iptable_nat iptable_filter iptable_mangle iptable_raw ip6table_nat ip6table_filter ip6table_mangle ip6table_raw"

// InGuest is a guest of package uml that a lab can be brought up in, with the beginning of its script. The lab's binaries
// are found there, not built. The guest can write to the folders.
func InGuest(folders ...string) (g uml.Guest, begin string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return uml.Guest{}, "", fmt.Errorf("find the lab's binaries: %w; set HOME or XDG_CACHE_HOME", err)
	}
	begin = fmt.Sprintf("export XDG_CACHE_HOME=%s\nfor m in %s; do modprobe $m || exit; done\n", cache, guestModules)
	return uml.Guest{Memory: 3072, Writable: append(folders, filepath.Join(cache, "svcnet-lab"))}, begin, nil
}
