package explain

import (
	"bytes"
	"math"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/explain/report"
)

// Count is what something has counted since its counters were zero.
type Count struct {
	Packets, Bytes uint64
	// Connections are those that were new. A virtual server counts them, and each packet on the way to its real servers
	// besides. A rule counts packets alone: At knows of no connections there, while in a Sum each packet is one.
	Connections uint64
}

// Counters are what rules, policies of chains and virtual servers have counted, by the place of their evidence: a hop of a
// Trace of the same snapshot finds its own.
//
// Rules of iptables count every packet that they match. In table nat these are the first packets of connections only,
// as tracked ones meet it no more. The counters of policies are there where the capture shows them in full.
//
// Virtual servers and real servers have counters in captures with `ipvsadm -Ln --stats`. These belong to the lines of the
// capture that says most of them, mostly `ipvsadm -Sn`. They are the packets from clients, and not the answers. The kernel
// adds them up every two seconds: between two readings that are nearer to each other they may stand still.
//
// Two kinds of evidence have no counters here. Netlink messages of nf_tables have no lines, so that no counter belongs to
// one hop, and `nft -j` prints all on one line; kube-proxy counts nothing in nftables mode anyway.
type Counters struct {
	files map[string]counted
	// connections are those of virtual servers and real servers, by file and line, from 0: 1 more, so that 0 is none that
	// counts.
	connections map[string][]uint64
}

// counted has the counters of one file by line, from 0; what has none is zero.
type counted []lineCount

// lineCount is a Count with 1 more packet, so that it is never zero.
type lineCount struct{ packets, bytes uint64 }

// put keeps a counter.
func (c *counted) put(line int, n Count) {
	if line < 1 || n.Packets == math.MaxUint64 {
		return
	}
	for len(*c) < line {
		*c = append(*c, lineCount{})
	}
	(*c)[line-1] = lineCount{n.Packets + 1, n.Bytes}
}

// CountersOf reads the counters of a snapshot. Rules in the form of iptables-save are only looked through, at some
// gigabytes a second; other forms are parsed, if they have counters at all.
func CountersOf(s *snapshot.Snapshot) *Counters {
	c := &Counters{files: make(map[string]counted), connections: make(map[string][]uint64)}
	servers := false
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if e.Status != snapshot.OK && e.Status != snapshot.Truncated {
			continue
		}
		switch e.Format {
		case snapshot.IPTablesSave:
			c.files[e.File] = saved(e.Data, c.files[e.File])
		case snapshot.IPTablesRules, snapshot.IPTablesList:
			c.listed(e)
		case snapshot.NFTText:
			if bytes.Contains(e.Data, nftCounter) {
				c.native(e)
			}
		case snapshot.IPVSList:
			// The heading of `ipvsadm -Ln --stats`.
			servers = servers || snapshot.PodOf(e.File) == "" && bytes.Contains(e.Data, []byte(" InPkts "))
		}
	}
	if servers {
		c.servers(s)
	}
	return c
}

// At is what the rule, policy or virtual server has counted that stands at a place; ok is false where nothing there counts.
func (c *Counters) At(e report.Evidence) (n Count, ok bool) { return c.at(e.File, e.Line) }

func (c *Counters) at(file string, line int) (Count, bool) {
	lines := c.files[file]
	if line < 1 || line > len(lines) || lines[line-1].packets == 0 {
		return Count{}, false
	}
	l := lines[line-1]
	n := Count{Packets: l.packets - 1, Bytes: l.bytes}
	if conns := c.connections[file]; line <= len(conns) && conns[line-1] > 0 {
		n.Connections = conns[line-1] - 1
	}
	return n, true
}

// Sum is what all of the places have counted together, as those of a ServicePort. Its Connections are the new ones of a
// ServicePort in every mode: its rules are met by the first packet of each alone. ok is false where there are no places, or
// one of them does not count: the sum would be less than there was.
func (c *Counters) Sum(places []report.Lines) (sum Count, ok bool) {
	for _, p := range places {
		lines, conns := c.files[p.File], c.connections[p.File]
		for _, n := range p.Numbers {
			if n < 1 || int(n) > len(lines) || lines[n-1].packets == 0 {
				return Count{}, false
			}
			sum.Packets += lines[n-1].packets - 1
			sum.Bytes += lines[n-1].bytes
			if int(n) <= len(conns) && conns[n-1] > 0 {
				sum.Connections += conns[n-1] - 1
			} else {
				sum.Connections += lines[n-1].packets - 1
			}
			ok = true
		}
	}
	return sum, ok
}

// saved looks through a text of iptables-save; into has what other pieces of the same file have counted.
func saved(text []byte, into counted) counted {
	if n := bytes.Count(text, []byte{'\n'}) + 1; n > len(into) {
		grown := make(counted, n)
		copy(grown, into)
		into = grown
	}
	for i := 0; len(text) > 0; i++ {
		var line []byte
		line, text = cutLine(text)
		switch line[0] {
		case '[':
			if n, rest, ok := savedCount(line); ok && bytes.HasPrefix(rest, []byte("-A ")) {
				into.put(i+1, n)
			}
		case ':':
			// Only built-in chains have a policy; others are declared with counters that mean nothing.
			if head, n, ok := declared(line); ok && !bytes.HasSuffix(head, []byte(" -")) {
				into.put(i+1, n)
			}
		}
	}
	return into
}

// savedCount reads "[12:720] " and returns what stands behind, which begins with no blank.
func savedCount(line []byte) (n Count, rest []byte, ok bool) {
	n, rest, ok = bracketed(line)
	return n, bytes.TrimLeft(rest, " "), ok
}

// declared reads ":INPUT ACCEPT [12:720]": head is what stands before the counters.
func declared(line []byte) (head []byte, n Count, ok bool) {
	i := bytes.LastIndexByte(line, '[')
	if i < 1 || line[i-1] != ' ' {
		return nil, Count{}, false
	}
	n, rest, ok := bracketed(line[i:])
	if len(bytes.TrimRight(rest, " \t\r\n")) > 0 {
		return nil, Count{}, false
	}
	return line[:i-1], n, ok
}

// bracketed reads "[12:720]".
func bracketed(s []byte) (n Count, rest []byte, ok bool) {
	if n.Packets, rest, ok = number(s[1:]); !ok || len(rest) == 0 || rest[0] != ':' {
		return Count{}, nil, false
	}
	if n.Bytes, rest, ok = number(rest[1:]); !ok || len(rest) == 0 || rest[0] != ']' {
		return Count{}, nil, false
	}
	return n, rest[1:], true
}

// number reads the digits that a text begins with. ok is false where there are none, or the number has more than 64 bits.
func number(s []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		d := uint64(s[i] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, s, false
		}
		n = n*10 + d
	}
	return n, s[i:], i > 0
}

// listed reads the counters of `iptables -S -v` and `iptables -L -v`; the latter rounds large ones, unless it has -x.
func (c *Counters) listed(e *snapshot.Evidence) {
	hint := netfilter.Hint{Family: netfilter.Family(e.Family), Backend: netfilter.Backend(e.Backend)}
	rulesets, err := rulesetParsers[e.Format](e.Text(), e.File, hint)
	if err != nil {
		return // the document's sources say so
	}
	into := c.files[e.File]
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, chain := range t.Chains {
				for i := range chain.Rules {
					if r := &chain.Rules[i]; r.HasCounters {
						into.put(r.Line, Count{Packets: r.Packets, Bytes: r.Bytes})
					}
				}
			}
		}
	}
	c.files[e.File] = into
}

// native reads the counters of `nft list ruleset`. Of rules that share a line none is told.
func (c *Counters) native(e *snapshot.Evidence) {
	rs, err := nft.ParseText(e.Text(), e.File)
	if err != nil {
		return // the document's sources say so
	}
	rules := make(map[int]int)
	into := c.files[e.File]
	for _, t := range rs.Tables {
		for _, chain := range t.Chains {
			for _, r := range chain.Rules {
				rules[r.Line]++
				if r.HasCounter {
					into.put(r.Line, Count{Packets: r.Packets, Bytes: r.Bytes})
				}
			}
		}
	}
	for line, n := range rules {
		if n > 1 && line >= 1 && line <= len(into) {
			into[line-1] = lineCount{}
		}
	}
	c.files[e.File] = into
}

// servers reads the counters of virtual servers and real servers, which stand in one capture and belong to the lines of
// another that says more.
func (c *Counters) servers(s *snapshot.Snapshot) {
	var t ipvs.Table
	for i := range s.Evidence {
		e := &s.Evidence[i]
		if (e.Format == snapshot.IPVSSave || e.Format == snapshot.IPVSList) && snapshot.PodOf(e.File) == "" && (e.Status == snapshot.OK || e.Status == snapshot.Truncated) {
			// What cannot be read the document's sources tell.
			_, _ = ipvs.Parse(&t, e.Text(), e.File)
		}
	}
	put := func(file string, line int, s ipvs.Stats) {
		if !s.Known || line < 1 {
			return
		}
		into, conns := c.files[file], c.connections[file]
		into.put(line, Count{Packets: s.InPkts, Bytes: s.InBytes})
		for len(conns) < line {
			conns = append(conns, 0)
		}
		conns[line-1] = s.Conns + 1
		c.files[file], c.connections[file] = into, conns
	}
	for i := range t.Services {
		v := &t.Services[i]
		put(v.File, v.Line, v.Stats)
		for j := range v.Dests {
			put(v.Dests[j].File, v.Dests[j].Line, v.Dests[j].Stats)
		}
	}
}
