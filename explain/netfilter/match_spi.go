package netfilter

import "strings"

// SPI is -m esp and -m ah: the security parameter index of an IPsec header, kept as text.
type SPI struct {
	Proto uint8 // 50 or 51
	Args  string
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
	return Maybe(Fact{
		Key: "spi " + m.Args, Yes: "the packet's security parameter index passes " + m.Args, No: "the packet's security parameter index does not pass " + m.Args,
		Because: "the security parameter index of a packet is not part of the question",
	})
}

func (m *SPI) option(o *option) bool {
	if !strings.HasPrefix(o.name, "--esp") && !strings.HasPrefix(o.name, "--ah") {
		return false
	}
	other := Other{Args: m.Args}
	other.option(o)
	m.Args = other.Args
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
			start := l.i
			if _, ok := l.value("spi:"); !ok {
				l.value("spis:")
			}
			if _, ok := l.value("length:"); ok {
				l.word("reserved")
			}
			return &SPI{Proto: proto, Args: strings.TrimSpace(l.s[start:l.i])}
		},
	}
}
