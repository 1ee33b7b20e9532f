package netfilter

import (
	"strings"
)

// ExtensionHeader is -m hbh, dst, rt, frag or srh: tests of an IPv6 extension header, kept as text.
type ExtensionHeader struct{ Name, Args string }

var (
	hbhMatch  = extensionHeader("hbh")
	dstMatch  = extensionHeader("dst")
	rtMatch   = extensionHeader("rt")
	fragMatch = extensionHeader("frag")
	srhMatch  = extensionHeader("srh")
)

// Test fails: the packet that opens a connection is taken to have no extension headers, and without the
// header none of these passes, whatever is negated in it.
func (m *ExtensionHeader) Test(*Kernel, Hook, *Packet) Answer { return No }

func (m *ExtensionHeader) option(o *option) bool {
	if !strings.HasPrefix(o.name, "--"+m.Name) && (m.Name != "frag" || o.name != "--fragres") {
		return false
	}
	other := Other{Args: m.Args}
	other.option(o)
	m.Args = other.Args
	return true
}

func extensionHeader(name string) extension {
	return extension{
		name: name,
		save: func(*arena) saved { return &ExtensionHeader{Name: name} },
		list: func(l *listing) Match {
			if !l.word(name) {
				return nil
			}
			start := l.i
			for headerWord(l) {
				continue
			}
			return &ExtensionHeader{Name: name, Args: strings.TrimSpace(l.s[start:l.i])}
		},
	}
}

// headerWord takes one of the words that the listings of these matches are made of.
func headerWord(l *listing) bool {
	w, _, pair := strings.Cut(l.peek(), ":")
	switch {
	case pair:
		switch w {
		case "length", "type", "segsleft", "segslefts", "id", "ids", "next-hdr", "hdr-len-eq", "hdr-len-gt", "hdr-len-lt",
			"segs-left-eq", "segs-left-gt", "segs-left-lt", "last-entry-eq", "last-entry-gt", "last-entry-lt", "tag", "psid", "nsid", "lsid":
			l.next()
			return true
		}
		return false
	case w == "opts", w == "0-addrs":
		l.next()
		l.next()
		return true
	}
	return l.any("reserved", "first", "last", "more", "[strict]", "0-not-strict", "notstrict", "!")
}
