package traits

import (
	"strconv"
	"strings"
)

// maxEventLines bounds how many lines an event takes along: iptables-restore says it in three.
const maxEventLines = 20

// logReader reads one log.
type logReader struct {
	ledger *ledger
	file   string
	flags  flagSet // of the last start that logged its flags
	events []Event
	// open is true while lines without header still belong to the last event.
	open  bool
	lines int
	// sizes are how many Services and endpoints the running sync of each family is about.
	sizes map[string][2]int
	// ends is the time of the last line that has one.
	ends string
}

// readLog claims what a log says of the proxy, and returns the events in it. A log may hold several starts;
// the last one counts.
//
// ends is the time of its last line, as klog writes it; empty where no line has one.
func (l *ledger) readLog(src Source) (events []Event, ends string) {
	r := &logReader{ledger: l, file: src.File, flags: flagSet{}, sizes: map[string][2]int{}}
	src.lines(func(n int, line string) bool {
		r.read(n, line)
		return true
	})
	l.claimFlags(r.flags, loggedFlags, true)
	for i := range r.events {
		if ev := &r.events[i]; ev.Kind == SyncFailed {
			ev.complete()
		}
	}
	return r.events, r.ends
}

// complete says what all lines of a failed sync tell together.
func (ev *Event) complete() {
	family, reason := toolOf(ev.Text)
	ev.Reason = clip(reason)
	if ev.Subject == "" {
		ev.Subject = family
	}
}

func (r *logReader) read(n int, line string) {
	e := readEntry(line)
	if !e.head && r.open && r.lines < maxEventLines {
		r.continueEvent(line)
		return
	}
	r.open = false
	if e.time != "" {
		r.ends = e.time
	}
	at := Fact{File: r.file, Line: n, Text: line}
	if r.readSettings(e, at) {
		if _, ok := versionOfLog(e); ok {
			r.events = append(r.events, Event{Kind: Started, File: r.file, Line: n, Time: e.time, Text: line})
		}
		return
	}
	if strings.HasPrefix(e.msg, "Reloading service ") {
		r.readSize(e)
		return
	}
	if ev, ok := eventOf(e); ok {
		ev.File, ev.Line, ev.Text = r.file, n, line
		if size, ok := r.sizes[ev.Subject]; ok && ev.Kind == SyncDone {
			ev.Services, ev.Endpoints = size[0], size[1]
			delete(r.sizes, ev.Subject)
		}
		r.events = append(r.events, ev)
		r.open, r.lines = true, 1
		switch {
		case ev.Kind == NoDetector && ev.Subject == "":
			r.claim(at, "localMode", noDetector, logged)
		case ev.Kind == NodeNotFound && ev.Subject != "":
			r.claim(at, "nodeName", ev.Subject, logged)
		}
	}
}

// readSize reads `"Reloading service nftables data" ipFamily="IPv4" numServices=5006 numEndpoints=250011`, which is
// about the sync that has begun.
func (r *logReader) readSize(e entry) {
	services, err := strconv.ParseUint(e.value("numServices"), 10, 31)
	endpoints, err2 := strconv.ParseUint(e.value("numEndpoints"), 10, 31)
	if err != nil || err2 != nil {
		return
	}
	family := e.value("ipFamily")
	r.sizes[family] = [2]int{int(services), int(endpoints)}
	for i := len(r.events) - 1; i >= 0; i-- {
		if ev := &r.events[i]; ev.Subject == family && (ev.Kind == SyncStarted || ev.Kind == SyncDone) {
			if ev.Kind == SyncStarted {
				ev.Services, ev.Endpoints = int(services), int(endpoints)
			}
			return
		}
	}
}

// continueEvent adds a line without header to the last event. A line may say what the event really is.
func (r *logReader) continueEvent(line string) {
	ev := &r.events[len(r.events)-1]
	ev.Text += "\n" + line
	r.lines++
	if ev.Kind == SyncFailed && strings.Contains(line, "holding the xtables lock") {
		ev.Kind = LockHeld
	}
}

func (r *logReader) claim(at Fact, trait, value string, k rank) {
	at.Name, at.Value = trait, value
	r.ledger.add(trait, k, at)
}

// readSettings reads the lines in which kube-proxy says what it is, and says whether e was one.
func (r *logReader) readSettings(e entry, at Fact) bool {
	msg := e.msg
	if f, ok := strings.CutPrefix(msg, "FLAG: --"); ok {
		name, value, _ := strings.Cut(f, "=")
		if v, err := strconv.Unquote(value); err == nil {
			value = v
		}
		at.Text = clip(at.Text)
		r.flags[name] = flag{name, value, at}
		return true
	}
	// k3s and its kin run kube-proxy inside themselves and log its command line, which is then complete.
	if args, ok := strings.CutPrefix(msg, "Running kube-proxy "); ok {
		r.flags = setOf(readFlags(Source{File: at.File, Line: at.Line, Text: args}))
		for name, f := range r.flags {
			f.at.Text = clip(at.Text)
			r.flags[name] = f
		}
		return true
	}
	if mode, ok := modeOfLog(msg); ok {
		r.claim(at, "mode", mode, logged)
		return true
	}
	if fallsBack(e.all) {
		r.claim(at, "mode", modeIPTables, overridden)
		return true
	}
	if v, ok := versionOfLog(e); ok {
		r.claim(at, "version", v.String(), logged)
		return true
	}
	if v, ok := versionOfClient(e.all); ok {
		r.claim(at, "version", v.String(), inferred)
		return false // the line may be an event too
	}
	if strings.Contains(msg, "mark for masquerade") {
		if mark, err := strconv.ParseUint(e.value("mark"), 0, 32); err == nil {
			trait := "masqueradeMark"
			at.Name, at.Value = trait, markText(uint32(mark))
			if strings.Contains(msg, "nftables") {
				trait += "/nftables"
			}
			r.ledger.add(trait, logged, at)
			return true
		}
	}
	return false
}

// modeOfLog reads the mode out of "Using iptables Proxier", which has a dot at its end up to 1.19, and
// `Flag proxy-mode="" unknown, assuming iptables proxy` and its later spellings.
func modeOfLog(msg string) (string, bool) {
	if strings.Contains(msg, "assuming iptables proxy") {
		return modeIPTables, true
	}
	word, ok := strings.CutPrefix(msg, "Using ")
	if !ok {
		return "", false
	}
	mode, rest, _ := strings.Cut(word, " ")
	switch strings.ToLower(strings.TrimSuffix(rest, ".")) {
	case "proxier", "proxy":
	default:
		return "", false
	}
	switch mode = strings.ToLower(mode); mode {
	case modeIPTables, modeIPVS, modeNFTables, modeUserspace, modeKernelspace:
		return mode, true
	}
	return "", false
}

// fallsBack tells the line of a proxy (up to 1.25) that was asked for IPVS and cannot.
func fallsBack(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "can't use ipvs proxier, trying iptables") ||
		strings.Contains(text, "falling back to iptables") ||
		strings.Contains(text, "can't use the ipvs proxier") && !strings.Contains(text, "userspace")
}

// versionOfLog reads "Version: v1.19.0", `"Version info" version="v1.36.3"`, and "Starting k3s v1.31.4+k3s1 (…)".
func versionOfLog(e entry) (Version, bool) {
	if e.msg == "Version info" {
		return ParseVersion(e.value("version"))
	}
	if v, ok := strings.CutPrefix(e.msg, "Version: "); ok {
		return ParseVersion(strings.TrimSpace(v))
	}
	for _, program := range [...]string{"Starting k3s ", "Starting rke2 "} {
		if v, ok := strings.CutPrefix(e.msg, program); ok {
			v, _, _ = strings.Cut(v, " ")
			return ParseVersion(v)
		}
	}
	return Version{}, false
}

// versionOfClient reads the version of client-go out of the path of a source file: release 0.36.3 of it
// belongs to Kubernetes 1.36.3. It tells where the binary was built without a version of its own.
func versionOfClient(text string) (Version, bool) {
	_, rest, ok := strings.Cut(text, "k8s.io/client-go@v0.")
	if !ok {
		return Version{}, false
	}
	rest, _, ok = strings.Cut(rest, "/")
	if !ok {
		return Version{}, false
	}
	return ParseVersion("1." + rest)
}
