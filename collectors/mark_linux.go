package collectors

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// markNFT is the generation of nf_tables' rules.
func markNFT(p *place) (string, error) {
	c, err := p.openNFTables()
	var unseen noSubsystem
	switch {
	case errors.As(err, &unseen) && unseen.certain:
		return "none", nil
	case err != nil:
		return "", err
	}
	defer c.close()
	generation, err := c.generation()
	return fmt.Sprint(generation), err
}

// markLegacy is a digest of the rules behind the old interface, counters left out.
func markLegacy() (string, error) {
	var marks []string
	for _, family := range []int{4, 6} {
		f := legacyFamilies[family]
		tables, err := f.tables()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			marks = append(marks, "none")
			continue
		case err != nil:
			return "", err
		}
		mark, err := f.mark(tables)
		if err != nil {
			return "", err
		}
		marks = append(marks, strings.Join(tables, " ")+" "+mark)
	}
	return strings.Join(marks, "\n"), nil
}

// markIPTables says what is there of rules of iptables, in both places where they may be.
func markIPTables(p *place) (string, error) {
	nft, err := markNFT(p)
	if err != nil {
		return "", err
	}
	legacy, err := markLegacy()
	return nft + "\n" + legacy, err
}

// markIPVS is a digest of the virtual servers without their connections.
func markIPVS() (string, error) {
	if _, err := firstLine(procIPVS); errors.Is(err, fs.ErrNotExist) {
		return "none", nil
	} else if err != nil {
		return "", err
	}
	c, err := openGeneric()
	if err != nil {
		return "", err
	}
	defer c.close()
	family, err := c.genericFamily("IPVS")
	if err != nil {
		return "", err
	}
	servers, err := c.virtualServers(family)
	if err != nil && !errors.Is(err, errInterrupted) {
		return "", err
	}
	// The kernel gives them out in the order of its hash table, which holds as long as nobody changes them.
	sum := sha256.Sum256(ipvsSaveText(servers))
	return string(sum[:]), nil
}
