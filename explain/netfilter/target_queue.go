package netfilter

import (
	"strconv"
	"strings"
)

var queueTarget = action{name: "QUEUE", fixed: Queue{}}

var nfqueueTarget = action{
	name: "NFQUEUE",
	save: func(*arena) targetReader { return new(nfqueueOptions) },
	list: listNFQueue,
}

// nfqueueOptions holds the first queue of --queue-num or --queue-balance.
type nfqueueOptions struct{ num int }

func (t *nfqueueOptions) option(o *option) bool {
	switch o.name {
	case "--queue-num", "--queue-balance":
		v := o.value()
		n, ok := queueNumber(v)
		if !ok {
			o.fail("%q is not a queue", v)
		}
		t.num = n
	case "--queue-bypass", "--queue-cpu-fanout":
	default:
		return false
	}
	return true
}

func queueNumber(s string) (int, bool) {
	first, _, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(first, 0, 16)
	return int(n), err == nil
}

func (t *nfqueueOptions) done(*ruleReader) Target { return Queue{Num: t.num} }

// listNFQueue reads "NFQUEUE num 3 bypass" and "NFQUEUE balance 1:4 cpu-fanout".
func listNFQueue(l *listing) Target {
	if !l.word("NFQUEUE") || !l.any("num", "balance") {
		return nil
	}
	n, ok := queueNumber(l.next())
	for l.any("bypass", "cpu-fanout") {
		continue
	}
	if !ok {
		return nil
	}
	return Queue{Num: n}
}
