package collectors

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nftTable is the name of a table of nf_tables. Names are whatever somebody chose.
type nftTable struct {
	family byte
	name   string
}

// nftFamilies are the kernel's numbers and nft's words for them.
var nftFamilies = map[byte]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP: "arp", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

func (t nftTable) String() string { return nftFamilies[t.family] + " " + t.name }

// iptablesTables are the tables of iptables, and of its variant that keeps them in nf_tables.
var iptablesTables = []string{"filter", "mangle", "nat", "raw", "security"}

// ofIPTables is 4 or 6 for a table that iptables-nft or ip6tables-nft takes for its own, which it does by the
// name alone; else 0.
func (t nftTable) ofIPTables() int {
	switch {
	case !slices.Contains(iptablesTables, t.name):
		return 0
	case t.family == unix.NFPROTO_IPV4:
		return 4
	case t.family == unix.NFPROTO_IPV6:
		return 6
	}
	return 0
}

// noSubsystem is the reason why there is nothing to ask: a part of the kernel is not there, or that cannot be
// seen.
type noSubsystem struct {
	reason  string
	certain bool
}

func (e noSubsystem) Error() string { return e.reason }

// open connects to nfnetlink if all parts are there, and loads none.
func (p *place) open(parts ...string) (*nfnetlink, error) {
	for _, part := range parts {
		if !p.kernel.has(part) {
			reason, certain := p.kernel.why(part)
			return nil, noSubsystem{reason, certain}
		}
	}
	return openNFNetlink()
}

// openNFTables connects to nf_tables.
func (p *place) openNFTables() (*nfnetlink, error) { return p.open("nfnetlink", "nf_tables") }

// generation is the number of the ruleset: every change of any table counts it up.
func (c *nfnetlink) generation() (uint32, error) {
	var id uint32
	err := c.ask(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, false, nil, func(_ byte, attrs []byte) {
		attributes(attrs, func(kind uint16, value []byte) {
			if kind == unix.NFTA_GEN_ID && len(value) == 4 {
				id = binary.BigEndian.Uint32(value)
			}
		})
	})
	return id, err
}

// tables lists the tables of all families.
func (c *nfnetlink) tables() ([]nftTable, error) {
	var out []nftTable
	err := c.dump(unix.NFT_MSG_GETTABLE, unix.AF_UNSPEC, nil, func() { out = nil }, func(family byte, attrs []byte) {
		attributes(attrs, func(kind uint16, value []byte) {
			if kind == unix.NFTA_TABLE_NAME {
				out = append(out, nftTable{family, cString(value)})
			}
		})
	})
	slices.SortFunc(out, func(a, b nftTable) int { return strings.Compare(a.String(), b.String()) })
	return out, err
}

// dump asks for a list, again where it changed meanwhile.
func (c *nfnetlink) dump(message int, family byte, attrs []byte, begin func(), each func(family byte, attrs []byte)) error {
	for tries := 1; ; tries++ {
		begin()
		err := c.ask(unix.NFNL_SUBSYS_NFTABLES, message, family, true, attrs, each)
		if !errors.Is(err, errInterrupted) || tries == maxTries {
			return err
		}
	}
}
