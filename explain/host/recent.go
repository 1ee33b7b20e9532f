package host

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// RecentList is one list of -m recent as /proc/net/xt_recent/NAME shows it.
type RecentList struct {
	Name    string
	Entries []RecentEntry
	File    string
}

// RecentEntry is an address of a list. Stamps are in jiffies since shortly before boot, not in seconds, and
// neither the length of a jiffy nor the present moment is in the file: see Age and LeastAge.
type RecentEntry struct {
	Addr netip.Addr
	// TTL of the newest packet; 0 where the rules do not look at it.
	TTL int
	// LastSeen is the newest stamp. Stamps is the ring as stored; the kernel prints in "oldest_pkt" the
	// place that it writes next.
	LastSeen uint64
	Stamps   []uint64
	Evidence
}

// ParseRecent reads lists of -m recent into Recent. A list does not hold its name: the name is that of the
// file, or what precedes the entries where several lists are in one text ("==> /proc/net/xt_recent/X <==",
// "/proc/net/xt_recent/X:src=…").
//
// An empty list is a list: it is recorded, and no error. Lines that cannot be used are Problems; the error
// is for a text of which no line can be.
func ParseRecent(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "lists of -m recent (/proc/net/xt_recent)", file: file}
	at := make(map[string]int, len(h.Recent))
	for i := range h.Recent {
		at[h.Recent[i].Name] = i
	}
	list := func(name string) *RecentList {
		i, ok := at[name]
		if !ok {
			i = len(h.Recent)
			at[name] = i
			h.Recent = append(h.Recent, RecentList{Name: name, File: file})
		}
		return &h.Recent[i]
	}
	name := strings.TrimSuffix(path.Base(strings.ReplaceAll(file, `\`, "/")), ".txt")
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name = name[i+1:] // a file inside an archive
	}
	for n, line := range lines(text) {
		r.seen++
		entry := line
		if heading, ok := strings.CutPrefix(line, "==> "); ok {
			name = path.Base(strings.TrimSuffix(strings.TrimSpace(heading), " <=="))
			list(name)
			r.used++
			continue
		}
		if p, rest, ok := strings.Cut(line, ":src="); ok && strings.Contains(p, "/") {
			name, entry = path.Base(p), "src="+rest
		}
		e, err := recentOf(entry)
		if err != nil {
			if !paste.Prompt(line) {
				r.skip(n, line, "%v", err)
			}
			continue
		}
		e.Evidence = r.at(n, line)
		l := list(name)
		l.Entries = append(l.Entries, e)
		r.used++
	}
	if r.seen == 0 {
		list(name)
		r.used++
	}
	if r.used > 0 {
		h.HasRecent = true
	}
	return r.result()
}

// recentOf reads "src=10.244.1.7 ttl: 64 last_seen: 4295012345 oldest_pkt: 2 4295011345, 4295012345".
func recentOf(line string) (RecentEntry, error) {
	var e RecentEntry
	words := strings.Fields(line)
	if len(words) < 7 || !strings.HasPrefix(words[0], "src=") || words[1] != "ttl:" || words[3] != "last_seen:" || words[5] != "oldest_pkt:" {
		return e, fmt.Errorf("not an entry of a recent list")
	}
	var err error
	if e.Addr, err = netip.ParseAddr(words[0][len("src="):]); err != nil {
		return e, fmt.Errorf("%q is not an address", paste.Quote(words[0]))
	}
	if e.TTL, err = strconv.Atoi(words[2]); err != nil {
		return e, fmt.Errorf("ttl %q is not a number", paste.Quote(words[2]))
	}
	if e.LastSeen, err = strconv.ParseUint(words[4], 10, 64); err != nil {
		return e, fmt.Errorf("last_seen %q is not a number", paste.Quote(words[4]))
	}
	for _, w := range words[7:] {
		stamp, err := strconv.ParseUint(strings.TrimSuffix(w, ","), 10, 64)
		if err != nil {
			return e, fmt.Errorf("stamp %q is not a number", paste.Quote(w))
		}
		e.Stamps = append(e.Stamps, stamp)
	}
	return e, nil
}

// NewestStamp is the newest stamp of all lists, in jiffies: a moment that had passed when the lists were
// captured. 0 when there is none.
func (h *Host) NewestStamp() uint64 {
	var newest uint64
	for _, l := range h.Recent {
		for _, e := range l.Entries {
			newest = max(newest, e.LastSeen)
		}
	}
	return newest
}

// Age is how long ago a stamp was at the moment now, in seconds; both in jiffies, of which hz make a second.
// A stamp after now is 0 s old.
func Age(stamp, now uint64, hz int) float64 {
	if hz <= 0 || stamp > now {
		return 0
	}
	return float64(now-stamp) / float64(hz)
}
