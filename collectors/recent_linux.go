package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readRecent reads the lists of -m recent, by which kube-proxy keeps a client with its endpoint, into one text as
// `tail -n +1 /proc/net/xt_recent/*` prints them: an empty list is a list, and only its heading can say so.
func readRecent(ctx context.Context, p *place) []snapshot.Evidence {
	const dir = "/proc/thread-self/net/xt_recent"
	file := p.dir + "xt_recent.txt"
	fail := func(err error) []snapshot.Evidence {
		return []snapshot.Evidence{couldNot(file, snapshot.XTRecent, "the lists of -m recent", err)}
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []snapshot.Evidence{absent(file, snapshot.XTRecent, "no rule uses -m recent")}
	case err != nil:
		return fail(reasonOf(err))
	}
	var (
		b    bytes.Buffer
		odd  int
		lost error
	)
	for _, e := range entries {
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		name := e.Name()
		if !isRecentName(name) {
			odd++
			continue
		}
		data, err := os.ReadFile(dir + "/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // its last rule went away meanwhile
		case err != nil:
			lost = reasonOf(err)
			continue
		}
		writeRecent(&b, name, data)
	}
	if b.Len() == 0 && lost != nil {
		return fail(lost)
	}
	ev := evidence(file, snapshot.XTRecent, b.Bytes())
	if lost != nil {
		ev.Status = snapshot.Truncated
		ev.Error = fmt.Sprintf("read the lists of -m recent: %v: some are missing (run as root)", lost)
	}
	if odd > 0 {
		ev.Note = fmt.Sprintf("%d lists left out: their names cannot stand on a line", odd)
	}
	return []snapshot.Evidence{ev}
}

// writeRecent writes a list below its heading; a blank line stands before all but the first.
func writeRecent(b *bytes.Buffer, name string, data []byte) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "==> /proc/net/xt_recent/%s <==\n", name)
	b.Write(data)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		b.WriteByte('\n')
	}
}

// isRecentName is false for names that would end their heading, or begin another line. Whoever writes rules
// chooses names.
func isRecentName(name string) bool {
	return utf8.ValidString(name) && strings.TrimSpace(name) == name && !strings.HasSuffix(name, "<==") &&
		!slices.ContainsFunc([]rune(name), func(c rune) bool { return c < ' ' || c == 0x7f || c == '\u0085' || c == '\u2028' || c == '\u2029' })
}
