package netfilter

import "strings"

// SPI is -m esp and -m ah: the security parameter index of an IPsec header, kept as text.
type SPI struct {
	Proto uint8 // 50 or 51
	// Index is the number or range of numbers.
	Index string
	Not   bool
	// Args are the further tests of -m ah, as printed.
	Args string
}

var (
	espMatch = spiMatch("esp", 50)
	ahMatch  = spiMatch("ah", 51)
)

// Test fails for packets without the header. The index itself is not part of the question.
func (m *SPI) Test(_ *Kernel, _ Hook, p *Packet) Answer {
	if p.Proto != m.Proto {
		return No
	}
	text := strings.TrimSpace(m.Index + " " + m.Args)
	return Maybe(Fact{
		Key: "spi " + text, Not: m.Not,
		Yes:     "the packet's security parameter index is " + text,
		No:      "the packet's security parameter index is not " + text,
		Because: "the security parameter index of a packet is not part of the question",
	})
}

func (m *SPI) option(o *option) bool {
	switch o.name {
	case "--espspi", "--ahspi":
		m.Index = o.value()
		m.Not = o.not
	case "--ahlen":
		v := o.value()
		if o.not {
			v = "!" + v
		}
		m.Args = strings.TrimSpace(m.Args + " length:" + v)
	case "--ahres":
		m.Args = strings.TrimSpace(m.Args + " reserved")
	default:
		return false
	}
	return true
}

// spiMatch reads "esp spis:1:100" and "ah spi:!5 length:4 reserved" in listings.
func spiMatch(name string, proto uint8) extension {
	return extension{
		name: name,
		save: func(*arena) saved { return &SPI{Proto: proto} },
		list: func(l *listing) Match {
			if !l.word(name) {
				return nil
			}
			m := &SPI{Proto: proto}
			v, ok := l.value("spi:")
			if !ok {
				v, _ = l.value("spis:")
			}
			m.Index, m.Not = negated(v)
			start := l.i
			l.value("length:")
			l.word("reserved")
			m.Args = strings.TrimSpace(l.s[start:l.i])
			return m
		},
	}
}
