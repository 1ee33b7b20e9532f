package collectors

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// iptables-nft-save prints whatever stands in the tables that it takes for its own, also rules that somebody wrote
// with nft. Two things go wrong then. It looks for an extension of iptables for expressions that can be written
// without one, and asking for an extension loads it. And what it does not understand it leaves out or prints as
// something else, mostly without a word: with 1.8.9 `ip daddr { 10.0.0.1, 10.0.0.2 } drop` becomes
// `-A INPUT -j DROP`. So the rules are passed over before it is asked.

// tableRules is what the rules of a table need to be printed as rules of iptables.
type tableRules struct {
	rules int
	// foreign counts the rules with an expression that iptables does not write, so that nft wrote them.
	foreign int
	// modules are those that printing would load, sorted.
	modules []string
}

// examine passes over the rules of a table, chain by chain: a list of all rules of a table takes the kernel a time
// that grows with the square of their number. It stops behind limit rules; 0: none.
func (p *place) examine(c *nfnetlink, t nftTable, limit int) (tableRules, error) {
	var found tableRules
	chains, err := c.chains(t)
	if err != nil {
		return found, err
	}
	needs := map[string]bool{}
	ofTable := attribute(nil, unix.NFTA_RULE_TABLE, append([]byte(t.name), 0)...)
	for _, chain := range chains {
		ofChain := attribute(slices.Clone(ofTable), unix.NFTA_RULE_CHAIN, append([]byte(chain), 0)...)
		err := c.dump(unix.NFT_MSG_GETRULE, t.family, ofChain, func() {}, func(_ byte, attrs []byte) {
			rule := ruleOf(t.family, attrs)
			found.rules++
			if rule.foreign {
				found.foreign++
			}
			for _, module := range rule.needs {
				needs[module] = true
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // gone since the list was made: the reading is made again
			return found, err
		}
		if limit > 0 && found.rules > limit {
			break
		}
	}
	if len(needs) == 0 || p.kernel.fixed() {
		return found, nil
	}
	for module := range needs {
		found.modules = append(found.modules, module)
	}
	found.modules = slices.DeleteFunc(append(found.modules, "nft_compat"), p.kernel.has)
	slices.Sort(found.modules)
	return found, nil
}

// chains are the names of a table's chains.
func (c *nfnetlink) chains(t nftTable) ([]string, error) {
	var out []string
	err := c.dump(unix.NFT_MSG_GETCHAIN, t.family, nil, func() { out = nil }, func(_ byte, attrs []byte) {
		var name string
		of := false
		attributes(attrs, func(kind uint16, value []byte) {
			switch kind {
			case unix.NFTA_CHAIN_TABLE:
				of = cString(value) == t.name
			case unix.NFTA_CHAIN_NAME:
				name = cString(value)
			}
		})
		if of {
			out = append(out, name)
		}
	})
	return out, err
}

// nativeRule is what one rule tells of who wrote it.
type nativeRule struct {
	foreign bool
	needs   []string
	// base is the header that was loaded last.
	base uint32
}

func (r *nativeRule) need(module string) {
	if !slices.Contains(r.needs, module) {
		r.needs = append(r.needs, module)
	}
}

func ruleOf(family byte, attrs []byte) nativeRule {
	r := nativeRule{base: unix.NFT_PAYLOAD_LL_HEADER}
	attributes(attrs, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_RULE_EXPRESSIONS:
			attributes(value, func(_ uint16, e []byte) { r.expression(family, e) })
		case unix.NFTA_RULE_USERDATA:
			// A comment of nft is printed as one of iptables.
			r.need("xt_comment")
		}
	})
	return r
}

// expression takes in one expression.
func (r *nativeRule) expression(family byte, e []byte) {
	var name string
	var data []byte
	attributes(e, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			name = cString(value)
		case unix.NFTA_EXPR_DATA:
			data = value
		}
	})
	switch name {
	case "match", "target": // an extension, which its rule keeps loaded
	case "counter", "bitwise", "immediate":
	case "cmp":
		// More and less than, of ports only.
		op, _ := number(data, unix.NFTA_CMP_OP)
		r.foreign = r.foreign || op > unix.NFT_CMP_NEQ && r.base != unix.NFT_PAYLOAD_TRANSPORT_HEADER
	case "payload":
		at, _ := number(data, unix.NFTA_PAYLOAD_OFFSET)
		r.base, _ = number(data, unix.NFTA_PAYLOAD_BASE)
		_, written := number(data, unix.NFTA_PAYLOAD_SREG)
		switch {
		case written:
			r.foreign = true
		case r.base == unix.NFT_PAYLOAD_NETWORK_HEADER:
			r.foreign = r.foreign || !slices.Contains(fieldsOfIPTables(family), at)
		case r.base == unix.NFT_PAYLOAD_TRANSPORT_HEADER:
			r.need("xt_tcpudp")
			// Ports and the flags of TCP.
			r.foreign = r.foreign || at != 0 && at != 2 && at != 13
		}
	case "range":
		// Of ports only.
		r.foreign = r.foreign || r.base != unix.NFT_PAYLOAD_TRANSPORT_HEADER
	case "meta":
		r.meta(data)
	case "limit":
		r.need("xt_limit")
	case "log":
		r.need("xt_NFLOG")
	default:
		r.foreign = true
	}
}

func (r *nativeRule) meta(data []byte) {
	// What is loaded now is no header.
	r.base = unix.NFT_PAYLOAD_LL_HEADER
	_, set := number(data, unix.NFTA_META_SREG)
	switch key, _ := number(data, unix.NFTA_META_KEY); {
	case set && key == unix.NFT_META_NFTRACE:
		r.need("xt_TRACE")
	case set:
		r.foreign = true
	case key == unix.NFT_META_MARK:
		r.need("xt_mark")
	case !slices.Contains([]uint32{unix.NFT_META_PROTOCOL, unix.NFT_META_IIF, unix.NFT_META_OIF, unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME, unix.NFT_META_L4PROTO}, key):
		r.foreign = true
	}
}

// fieldsOfIPTables are the offsets of what iptables matches in a network header without an extension: the
// protocol, fragments, addresses.
func fieldsOfIPTables(family byte) []uint32 {
	if family == unix.NFPROTO_IPV6 {
		return []uint32{6, 8, 24}
	}
	return []uint32{6, 9, 12, 16}
}

// number is an attribute that is a number.
func number(data []byte, attr uint16) (n uint32, ok bool) {
	attributes(data, func(kind uint16, value []byte) {
		if kind == attr && len(value) == 4 {
			n, ok = binary.BigEndian.Uint32(value), true
		}
	})
	return n, ok
}
