package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/paste"
)

// Parse reads what ipvsadm and /proc/net print into a table: virtual servers of `ipvsadm -Sn` and `ipvsadm -Ln` (with
// --stats, --rate, --thresholds, --persistent-conn, --tun-info) and of /proc/net/ip_vs, connections of `ipvsadm -Lnc`
// and /proc/net/ip_vs_conn. The text may hold several of these, and be pasted among prompts and cut off.
//
// Several captures of one node go into one table: the most complete form says which virtual servers there are, and the
// others add what it does not show. Lines that cannot be used are Problems; the error is for a text of which no line
// can be used.
func Parse(t *Table, text, file string) ([]host.Problem, error) {
	r := &reader{table: t, file: file, dest: -1, captures: make(map[form]*capture)}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		r.seen++
		r.line(n, line)
	}
	if r.used == 0 {
		if r.seen == 0 {
			return nil, fmt.Errorf("read virtual servers from %s: %w", file, host.ErrEmpty)
		}
		why := ""
		if len(r.problems) > 0 {
			why = fmt.Sprintf(": line %d: %s", r.problems[0].Line, r.problems[0].Why)
		}
		return r.problems, fmt.Errorf("read virtual servers (ipvsadm -Sn) from %s: none of its %d lines can be used%s", file, r.seen, why)
	}
	r.finish()
	return r.problems, nil
}

// form is how virtual servers were printed. The greater one shows more.
type form uint8

const (
	// counted is a list with counters: neither schedulers nor weights.
	counted form = iota + 1
	// listed shows schedulers, methods and weights.
	listed
	// saved shows everything but connections.
	saved
)

// capture is the virtual servers of one text in one form.
type capture struct {
	form     form
	services []Service
	at       map[serverID]int
}

// reader is where the parser is.
type reader struct {
	table      *Table
	file       string
	problems   []host.Problem
	seen, used int
	captures   map[form]*capture
	columns    columns
	// kernel tells that the text is from /proc: addresses, ports and marks are hexadecimal.
	kernel bool
	// into and service are where the real servers go that follow; nil and -1 where the virtual server could not be read.
	into    *capture
	dest    int
	missing string
}

func (r *reader) skip(n int, line, format string, args ...any) {
	r.problems = append(r.problems, host.Problem{Line: n, Text: paste.Quote(line), Why: fmt.Sprintf(format, args...)})
}

func (r *reader) at(n int, line string) host.Evidence {
	return host.Evidence{File: r.file, Line: n, Text: strings.TrimSpace(line)}
}

// lose notes that a virtual server or a part of one could not be read.
func (r *reader) lose(n int) {
	if r.missing == "" {
		r.missing = fmt.Sprintf("line %d of %s cannot be read", n, r.file)
	}
}

func (r *reader) line(n int, line string) {
	words := strings.Fields(line)
	switch {
	case words[0] == "-A" || words[0] == "--add-service":
		r.saveService(n, line, words[1:])
	case words[0] == "-a" || words[0] == "--add-server":
		r.saveDest(n, line, words[1:])
	case words[0] == "->":
		r.listDest(n, line, words[1:])
	case isHeading(line, words):
		r.heading(line, words)
	case len(words) > 1 && listedProto(words[0]):
		if isConn(words) {
			r.conn(n, line, words)
		} else {
			r.listService(n, line, words)
		}
	case paste.Filler(line):
		r.missing = "the capture leaves out a part of the virtual servers"
	case paste.Prompt(line, "ipvsadm", "sudo ", "cat /proc"):
	default:
		r.skip(n, line, "not a line of ipvsadm")
	}
}

func listedProto(w string) bool {
	switch w {
	case "TCP", "UDP", "SCTP", "FWM", "IP":
		return true
	}
	return false
}

// service begins a virtual server. A second one of the same name is a problem, and its real servers go nowhere.
func (r *reader) service(n int, line string, f form, s Service) {
	c := r.captures[f]
	if c == nil {
		c = &capture{form: f, at: make(map[serverID]int)}
		r.captures[f] = c
	}
	r.used++
	r.into = c
	if _, twice := c.at[s.id()]; twice {
		r.into, r.dest = nil, -1
		r.skip(n, line, "the virtual server is there twice: the first one counts")
		return
	}
	s.Evidence = r.at(n, line)
	c.at[s.id()] = len(c.services)
	r.dest = len(c.services)
	c.services = append(c.services, s)
}

// add adds a real server to the virtual server at hand.
func (r *reader) add(n int, line string, d Dest) {
	if r.into == nil || r.dest < 0 {
		r.skip(n, line, "the virtual server of this real server is not in the capture")
		return
	}
	d.Evidence = r.at(n, line)
	s := &r.into.services[r.dest]
	if familyOf(d.Addr) == 6 && s.FWMark != 0 && r.kernel && len(s.Dests) == 0 {
		// The kernel does not print the family of a virtual server with a mark.
		delete(r.into.at, s.id())
		if s.Family = 6; s.Mask == 32 {
			s.Mask = 128
		}
		r.into.at[s.id()] = r.dest
	}
	if familyOf(d.Addr) != s.Family && (d.Method == Masq || d.Method == Route) {
		r.skip(n, line, "a real server of another family is reached by a tunnel only")
		return
	}
	s.Dests = append(s.Dests, d)
	r.used++
}

// finish puts what was read into the table.
func (r *reader) finish() {
	t := r.table
	for f := saved; f > 0; f-- {
		if c := r.captures[f]; c != nil {
			t.captures = append(t.captures, c)
			t.HasServices = true
		}
	}
	if r.missing != "" {
		t.lost = append(t.lost, lost{r.form(), r.missing})
	}
	t.join()
}

// lost says of a text of one form why virtual servers or parts of them may not be in it.
type lost struct {
	form form
	why  string
}

// form is the form of the text that was read: the fullest where it has several, or none is known.
func (r *reader) form() form {
	for f := saved; f > 0; f-- {
		if r.captures[f] != nil {
			return f
		}
	}
	if r.columns == statsColumns || r.columns == rateColumns {
		return counted
	}
	return saved
}

// join makes the virtual servers of all captures: those of the fullest form, with what the others know besides. A
// virtual server that only a lesser form has is of another moment.
func (t *Table) join() {
	fullest := form(0)
	for _, c := range t.captures {
		fullest = max(fullest, c.form)
	}
	// Counters that are missing are no virtual servers that are missing, where another form lists these.
	t.Missing = ""
	for _, l := range t.lost {
		if t.Missing == "" && (l.form > counted || fullest <= counted) {
			t.Missing = l.why
		}
	}
	t.Services = nil
	at := make(map[serverID]int)
	for _, c := range t.captures {
		if c.form != fullest {
			continue
		}
		for _, s := range c.services {
			if _, twice := at[s.id()]; !twice {
				at[s.id()] = len(t.Services)
				s.Dests = append([]Dest(nil), s.Dests...)
				t.Services = append(t.Services, s)
			}
		}
	}
	for _, c := range t.captures {
		for i := range c.services {
			if j, ok := at[c.services[i].id()]; ok {
				t.Services[j].learn(&c.services[i])
			}
		}
	}
	t.lookup.Store(nil)
}

// learn takes over what another capture of the same virtual server knows and this one does not.
func (s *Service) learn(from *Service) {
	if s.Scheduler == "" {
		s.Scheduler, s.SchedFlags = from.Scheduler, from.SchedFlags
		s.Persistent, s.Timeout, s.Mask, s.OnePacket, s.PE = from.Persistent, from.Timeout, from.Mask, from.OnePacket, from.PE
	}
	if s.Persistent && s.Timeout == 0 {
		s.Timeout = from.Timeout
	}
	if !s.Stats.Known {
		s.Stats = from.Stats
	}
	var known map[netip.AddrPort]int
	for i := range from.Dests {
		f, j := &from.Dests[i], i
		// Captures of one moment have them in one order.
		if j >= len(s.Dests) || s.Dests[j].AddrPort() != f.AddrPort() {
			if known == nil {
				known = make(map[netip.AddrPort]int, len(s.Dests))
				for k := range s.Dests {
					known[s.Dests[k].AddrPort()] = k
				}
			}
			var ok bool
			if j, ok = known[f.AddrPort()]; !ok {
				continue
			}
		}
		d := &s.Dests[j]
		if d.Method == UnknownMethod {
			d.Method = f.Method
		}
		if !d.HasWeight {
			d.Weight, d.HasWeight = f.Weight, f.HasWeight
		}
		if d.Upper == 0 {
			d.Upper, d.Lower = f.Upper, f.Lower
		}
		if !d.HasConns {
			d.ActiveConns, d.InactConns, d.HasConns = f.ActiveConns, f.InactConns, f.HasConns
		}
		if !d.HasPersist {
			d.PersistConns, d.HasPersist = f.PersistConns, f.HasPersist
		}
		if !d.Stats.Known {
			d.Stats = f.Stats
		}
		if d.Tunnel == "" {
			d.Tunnel = f.Tunnel
		}
	}
}
