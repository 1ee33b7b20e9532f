package host

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// FlowStats are the counters of connection tracking on one CPU, counted since the node booted.
type FlowStats struct {
	CPU int
	// Counters by the names of `conntrack -S`: found, invalid, insert, insert_failed, drop, early_drop, error,
	// search_restart, clash_resolve, chaintoolong.
	Counters map[string]uint64
	Evidence
}

// ParseFlowStats reads `conntrack -S`, and /proc/net/stat/nf_conntrack, into FlowStats. Of two captures the last one
// counts. A line that cannot be used is a Problem; the error is for a text without any counter.
func ParseFlowStats(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "counters of connection tracking (conntrack -S)", file: file}
	var (
		stats   []FlowStats
		columns []string // of the kernel's file
		row     int
	)
	for n, line := range lines(text) {
		r.seen++
		words := strings.Fields(line)
		var (
			s  FlowStats
			ok bool
		)
		switch {
		case words[0] == "entries":
			columns, row = words, 0
			continue
		case strings.HasPrefix(words[0], "cpu="):
			s, ok = countersOf(words)
			s.Evidence = r.at(n, line)
		case columns != nil && len(words) == len(columns):
			s, ok = columnsOf(columns, words, row)
			s.Evidence = r.at(n, s.String())
			row++
		case paste.Prompt(line):
			continue
		}
		if !ok {
			r.skip(n, line, "not the counters of one CPU")
			continue
		}
		stats = append(stats, s)
		r.used++
	}
	if len(stats) > 0 {
		h.FlowStats = stats
	}
	return r.result()
}

// countersOf reads "cpu=0 found=12 invalid=4182 insert_failed=3".
func countersOf(words []string) (FlowStats, bool) {
	s := FlowStats{Counters: make(map[string]uint64, len(words))}
	cpu, err := strconv.ParseUint(strings.TrimPrefix(words[0], "cpu="), 10, 16)
	if err != nil {
		return s, false
	}
	s.CPU = int(cpu)
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return s, false
		}
		s.Counters[name] = n
	}
	return s, len(s.Counters) > 0
}

// toolNames are what conntrack calls columns of the kernel's file that have another name there.
var toolNames = map[string]string{"clashres": "clash_resolve", "chainlength": "chaintoolong", "icmp_error": "error"}

// columnsOf reads a row of the kernel's file: hexadecimal numbers below the names of the columns. "entries" is the size
// of the table and none of the CPU.
func columnsOf(columns, words []string, row int) (FlowStats, bool) {
	s := FlowStats{CPU: row, Counters: make(map[string]uint64, len(words))}
	for i, w := range words {
		n, err := strconv.ParseUint(w, 16, 64)
		if err != nil {
			return s, false
		}
		if columns[i] != "entries" {
			s.Counters[cmp.Or(toolNames[columns[i]], columns[i])] = n
		}
	}
	return s, true
}

// String is the line as conntrack prints it, with the counters that it has always had.
func (s *FlowStats) String() string {
	out := "cpu=" + strconv.Itoa(s.CPU)
	for _, name := range []string{"found", "invalid", "insert", "insert_failed", "drop", "early_drop", "error", "search_restart", "clash_resolve", "chaintoolong"} {
		if n, ok := s.Counters[name]; ok {
			out += " " + name + "=" + strconv.FormatUint(n, 10)
		}
	}
	return out
}

// FlowCounter is a counter of connection tracking over all CPUs, with the CPUs that counted most first; ok is false
// when it was not captured.
func (h *Host) FlowCounter(name string) (sum uint64, counted []FlowStats, ok bool) {
	for _, s := range h.FlowStats {
		n, has := s.Counters[name]
		ok = ok || has
		sum += n
		if n > 0 {
			counted = append(counted, s)
		}
	}
	slices.SortStableFunc(counted, func(a, b FlowStats) int { return cmp.Compare(b.Counters[name], a.Counters[name]) })
	return sum, counted, ok
}
