package collectors

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// maxFlows bounds the connections that are kept.
const maxFlows = 20_000

// readConntrack reads those tracked connections that say something about Services, in the text of
// /proc/net/nf_conntrack: translated ones, and UDP ones without a reply, which may be stuck past a Service that
// came later. Where the kernel has no such file, ctnetlink says the same, if it is loaded.
func readConntrack(ctx context.Context, p *place) []snapshot.Evidence {
	file := p.dir + "conntrack.txt"
	flows := &flowText{limit: maxFlows}
	f, err := os.Open("/proc/thread-self/net/nf_conntrack")
	switch {
	case err == nil:
		err = flows.scan(ctx, f)
		f.Close()
	case !errors.Is(err, fs.ErrNotExist):
	case p.kernel.has("nf_conntrack_netlink"):
		err = flows.ask(ctx)
	case p.kernel.has("nf_conntrack"):
		return []snapshot.Evidence{missed(file, snapshot.Conntrack, snapshot.NotCollected, errors.New(
			"read connections: this kernel shows them through nf_conntrack_netlink alone, which is not loaded (conntrack -L loads it; give its output with -f)"))}
	default:
		why, certain := p.kernel.why("nf_conntrack")
		if certain {
			return []snapshot.Evidence{absent(file, snapshot.Conntrack, why)}
		}
		return []snapshot.Evidence{missed(file, snapshot.Conntrack, snapshot.NotCollected, fmt.Errorf("read connections: %s", why))}
	}
	if err != nil && (flows.lines == 0 || ctx.Err() != nil) {
		return []snapshot.Evidence{couldNot(file, snapshot.Conntrack, "connections", reasonOf(err))}
	}
	return []snapshot.Evidence{flows.evidence(file, err)}
}

// flowText collects the lines of connections that matter.
type flowText struct {
	limit int
	// total is how many connections were looked at; full tells that there were more of those that matter.
	total, lines int
	full         bool
	text         bytes.Buffer
}

// evidence is what was collected; err is why the reading ended early.
func (t *flowText) evidence(file string, err error) snapshot.Evidence {
	e := evidence(file, snapshot.Conntrack, t.text.Bytes())
	e.Note = "only translated connections and UDP without a reply"
	switch {
	case t.full:
		e.Status = snapshot.Truncated
		e.Error = fmt.Sprintf("read connections: more than %d are translated: the others are left out (for one of them: conntrack -L -d ADDRESS)", t.limit)
	case err != nil:
		e.Status = snapshot.Truncated
		e.Error = fmt.Sprintf("read connections: %v after %d of them (collect again)", reasonOf(err), t.total)
	}
	return e
}

// scan reads the kernel's file a line at a time: a busy node tracks a million connections.
func (t *flowText) scan(ctx context.Context, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for n := 0; !t.full; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := in.ReadSlice('\n')
		if err == nil || err == io.EOF {
			t.add(line)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
	return nil
}

// add takes a line if its connection matters.
func (t *flowText) add(line []byte) {
	line = bytes.TrimRight(line, "\n")
	if len(line) == 0 {
		return
	}
	t.total++
	if !flowMatters(string(line)) {
		return
	}
	if t.full = t.lines == t.limit; t.full {
		return
	}
	t.lines++
	t.text.Write(line)
	t.text.WriteByte('\n')
}

// flowMatters tells whether a connection is translated, or UDP without a reply, by its line: "ipv4 2 tcp 6 431999
// ESTABLISHED src=A dst=B sport=1 dport=2 src=B dst=A sport=2 dport=1 [ASSURED] …".
func flowMatters(line string) bool {
	var (
		tuples    [2]flowTuple
		at        = -1
		unreplied bool
		udp       bool
	)
	for word := range strings.FieldsSeq(line) {
		key, value, pair := strings.Cut(word, "=")
		if !pair {
			unreplied = unreplied || word == "[UNREPLIED]"
			udp = udp || at < 0 && (word == "udp" || word == "udplite")
			continue
		}
		if key == "src" {
			at++
		}
		if at < 0 || at > 1 {
			continue
		}
		switch key {
		case "src":
			tuples[at].src = value
		case "dst":
			tuples[at].dst = value
		case "sport":
			tuples[at].sport = value
		case "dport":
			tuples[at].dport = value
		}
	}
	if at < 1 {
		return false // no connection
	}
	mirror := flowTuple{src: tuples[0].dst, dst: tuples[0].src, sport: tuples[0].dport, dport: tuples[0].sport}
	return tuples[1] != mirror || udp && unreplied
}

// flowTuple is one direction of a connection, as words.
type flowTuple struct{ src, dst, sport, dport string }
