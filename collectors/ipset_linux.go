package collectors

import (
	"context"
	"errors"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// ipsetFile holds the IP sets.
const ipsetFile = "ipset-save.txt"

// readIPSets reads the IP sets, which rules may ask. Sets keep the modules of their types loaded, so that reading
// them loads none; that there are any is asked first.
func readIPSets(ctx context.Context, p *place) []snapshot.Evidence {
	data, err := p.readSets(ctx)
	return []snapshot.Evidence{outcome(p.dir+ipsetFile, snapshot.IPSetSave, "ipset", data, err)}
}

// passing is what changes in a set by itself: the time that an entry has left, and counters.
var passing = regexp.MustCompile(`(?m)^(add .*)$`)
var passingWords = regexp.MustCompile(` (timeout|packets|bytes) \d+`)

func (p *place) readSets(ctx context.Context) ([]byte, error) {
	c, err := p.open("nfnetlink", "ip_set")
	if err != nil {
		return nil, err
	}
	defer c.close()
	// The kernel gives out a set in pieces, and counts no changes: a reading is of one moment if the one
	// before it says the same.
	var last string
	first := true
	return p.patience().atOneMoment(ctx, func() (a attempt, err error) {
		n, err := c.ipsets()
		if err != nil {
			return a, err
		}
		if n == 0 {
			return a, nothingThere("there are no IP sets")
		}
		path, err := lookCommand("ipset")
		if err != nil {
			return a, err
		}
		if first {
			text, err := p.run(ctx, path, "save")
			if err != nil {
				return a, err
			}
			last, first = lasting(text), false
		}
		a.before = last
		a.data, err = p.run(ctx, path, "save")
		if err == nil {
			last = lasting(a.data)
		}
		a.after = last
		return a, err
	})
}

// lasting is the text of `ipset save` without what changes by itself.
func lasting(text []byte) string {
	return string(passing.ReplaceAllFunc(text, func(line []byte) []byte { return passingWords.ReplaceAll(line, nil) }))
}

// Numbers of ip_set's messages, which no package of the Go project names.
const (
	ipsetCmdList      = 7
	ipsetAttrProtocol = 1
	ipsetAttrSetName  = 2
	ipsetAttrFlags    = 6
	ipsetProtocol     = 6 // the oldest version that all kernels since 3.0 speak
	ipsetFlagNames    = 2 // IPSET_FLAG_LIST_SETNAME: names only
)

// ipsets counts the sets.
func (c *nfnetlink) ipsets() (int, error) {
	attrs := attribute(nil, ipsetAttrProtocol, ipsetProtocol)
	attrs = attribute(attrs, ipsetAttrFlags|unix.NLA_F_NET_BYTEORDER, 0, 0, 0, ipsetFlagNames)
	n := 0
	err := c.ask(unix.NFNL_SUBSYS_IPSET, ipsetCmdList, unix.AF_INET, true, attrs, func(_ byte, attrs []byte) {
		attributes(attrs, func(kind uint16, _ []byte) {
			if kind == ipsetAttrSetName {
				n++
			}
		})
	})
	if n > 0 && errors.Is(err, errInterrupted) {
		err = nil
	}
	return n, err
}
