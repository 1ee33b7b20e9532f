package netfilter

import (
	"strconv"
)

// Statistic is -m statistic.
type Statistic struct {
	// Nth is --mode nth: every Every-th packet passes, counted over all packets that reach the rule; otherwise
	// --mode random, and each packet passes with Probability.
	Nth           bool
	Every, Packet uint32
	// Probability is what the rule prints. The kernel stores it in units of 2^-31, and iptables-save prints
	// that back with eleven digits.
	Probability float64
	Not         bool
}

var statisticMatch = extension{
	name: "statistic",
	save: func(a *arena) saved { return a.statistic.new() },
	list: listStatistic,
}

// Test is random. The counter behind --mode nth is not in any capture, so each packet has the share of one in
// Every.
func (m *Statistic) Test(*Kernel, Hook, *Packet) Answer {
	p := m.Probability
	if m.Nth {
		if m.Every == 0 {
			return No.Negate(m.Not)
		}
		p = 1 / float64(m.Every)
	}
	switch {
	case p <= 0:
		return No.Negate(m.Not)
	case p >= 1:
		return Yes.Negate(m.Not)
	}
	return Answer{Truth: Random, P: p}.Negate(m.Not)
}

func (m *Statistic) option(o *option) bool {
	switch o.name {
	case "--mode":
		switch v := o.value(); v {
		case "random":
		case "nth":
			m.Nth = true
		default:
			o.fail("%q is neither random nor nth", v)
		}
	case "--probability":
		v := o.value()
		p, ok := parseProbability(v)
		if !ok {
			o.fail("%q is not a probability", v)
		}
		m.Probability, m.Not = p, o.not
	case "--every":
		m.Every = uint32(o.number(32))
		m.Not = o.not
	case "--packet":
		m.Packet = uint32(o.number(32))
	default:
		return false
	}
	return true
}

func parseProbability(s string) (float64, bool) {
	p, err := strconv.ParseFloat(s, 64)
	return p, err == nil && p >= 0 && p <= 1
}

// listStatistic reads "statistic mode random [!] probability 0.5" and "statistic mode nth [!] every 3 [packet 1]".
func listStatistic(l *listing) Match {
	if !l.word("statistic", "mode") {
		return nil
	}
	m := l.arena.statistic.new()
	switch l.next() {
	case "random":
		m.Not = l.not()
		v, _ := l.after("probability")
		p, ok := parseProbability(v)
		if !ok {
			return nil
		}
		m.Probability = p
	case "nth":
		m.Nth, m.Not = true, l.not()
		v, _ := l.after("every")
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return nil
		}
		m.Every = uint32(n)
		if v, ok := l.after("packet"); ok {
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return nil
			}
			m.Packet = uint32(n)
		}
	default:
		return nil
	}
	return m
}
