package netfilter

import (
	"strings"

	"github.com/svcnet/svcnet/explain/ipset"
)

// divide cuts where the entries of a captured set tell addresses and ports apart: addresses with the same entries, but
// for the addresses themselves, are alike. It returns false for a set whose entries are not all known, or not what
// they mean.
func (s *Set) divide(d *Division) bool {
	if s.Captured == nil {
		return true // what it says is open for every packet alike
	}
	return divideSet(d, s.Captured, s.member, 0)
}

func divideSet(d *Division, s *ipset.Set, member func(string) *ipset.Set, depth int) bool {
	if s == nil || s.Missing != "" || s.Dimensions() == 0 || depth > 1 {
		return false
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Member != "" {
			if !divideSet(d, member(e.Member), member, depth+1) {
				return false
			}
			continue
		}
		if e.LastPort > 0 {
			d.Ports(e.Port, e.LastPort)
		}
		for j, r := range e.Nets {
			if !r.Net.IsValid() {
				continue
			}
			meaning := "set " + s.Name + " " + besides(e, j)
			if r.Last.IsValid() {
				d.testedRange(r.Net.Addr(), r.Last)
				continue
			}
			d.Addresses(r.Net, meaning)
		}
	}
	return true
}

// besides is an entry without its address j; another address that is the same is "itself".
func besides(e *ipset.Entry, j int) string {
	own := e.Nets[j].Net
	var b strings.Builder
	words := strings.Fields(e.Text)
	at := 0
	for i, p := range strings.Split(words[0], ",") {
		if i > 0 {
			b.WriteByte(',')
		}
		if at < len(e.Nets) && e.Nets[at].Net.IsValid() && strings.HasPrefix(p, e.Nets[at].Net.Addr().String()) {
			switch {
			case at == j:
				p = "*"
			case e.Nets[at].Net == own:
				p = "itself"
			}
			at++
		}
		b.WriteString(p)
	}
	if e.NoMatch {
		b.WriteString(" nomatch")
	}
	return b.String()
}
