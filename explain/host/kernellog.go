package host

import (
	"net/netip"
	"regexp"
	"strings"
)

// KernelMessageKind tells messages of the kernel apart.
type KernelMessageKind string

// The kinds.
const (
	// TableFull: connection tracking had no room for a new connection, and the packet was dropped.
	TableFull KernelMessageKind = "table full"
	// MartianSource: a packet came in on an interface that is not the way back to its source (written where
	// log_martians is set).
	MartianSource KernelMessageKind = "martian source"
)

// KernelMessage is a message of the kernel's log.
type KernelMessage struct {
	Kind KernelMessageKind
	// Src and Dst are the addresses of a martian packet, after translation of its destination; Dev is where it came in.
	Src, Dst netip.Addr
	Dev      string
	Evidence
}

var (
	logStamp      = regexp.MustCompile(`^(<\d+>)?\[ *(\d+\.\d+|[A-Z][a-z]{2} [^\]]*)\]|^\S+ +\S+ +\S+ .*\bkernel(\[\d+\])?:`)
	martianSource = regexp.MustCompile(`\bmartian source (\S+) from (\S+), on dev (\S+)`)
)

// ParseKernelLog reads `dmesg` or `journalctl -k` into KernelLog. Most lines are about something else and are passed
// over; the error is for a text without any line of a log.
func ParseKernelLog(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "messages of the kernel (dmesg)", file: file}
	for n, line := range lines(text) {
		r.seen++
		if logStamp.MatchString(line) {
			r.used++
		}
		if m, ok := kernelMessage(line); ok {
			m.Evidence = r.at(n, line)
			h.KernelLog = append(h.KernelLog, m)
			r.used++
		}
	}
	return r.result()
}

func kernelMessage(line string) (KernelMessage, bool) {
	if strings.Contains(line, "nf_conntrack: table full, dropping packet") {
		return KernelMessage{Kind: TableFull}, true
	}
	m := martianSource.FindStringSubmatch(line)
	if m == nil {
		return KernelMessage{}, false
	}
	dst, err1 := netip.ParseAddr(m[1])
	src, err2 := netip.ParseAddr(m[2])
	return KernelMessage{Kind: MartianSource, Src: src, Dst: dst, Dev: m[3]}, err1 == nil && err2 == nil
}

// KernelSaid are the messages of one kind.
func (h *Host) KernelSaid(kind KernelMessageKind) []KernelMessage {
	var out []KernelMessage
	for _, m := range h.KernelLog {
		if m.Kind == kind {
			out = append(out, m)
		}
	}
	return out
}
