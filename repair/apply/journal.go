package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/report"
)

// DefaultFolder is where journals are kept unless --journal says otherwise.
const DefaultFolder = "/var/lib/svcnet"

// Format names the format of a journal: a file of JSON, one value a line. The first line is a header, the others are
// events in the order in which they happened; each is on disk before what it tells of goes on. A last line that is cut
// off was never written: what it would have told of did not begin.
const Format = "svcnet.dev/repair-journal/v1"

// journalEnd is how the names of journals end; they begin with the run's id.
const journalEnd = ".journal"

// A header is the first line of a journal: all that it takes to take a run back.
type header struct {
	Format  string    `json:"format"`
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
	// Program is the release that wrote it.
	Program string  `json:"program"`
	Machine Machine `json:"machine"`
	Node    string  `json:"node"`
	Plan    string  `json:"plan"`
	// Steps are those that are done in this run; others of the plan are not in it.
	Steps []report.RepairStep `json:"steps"`
}

// A Machine is what a run wrote to: a kernel since it started, and one of its network namespaces.
type Machine struct {
	// Boot is /proc/sys/kernel/random/boot_id, Namespace what /proc/thread-self/ns/net leads to ("net:[4026531840]").
	Boot      string `json:"boot"`
	Namespace string `json:"namespace"`
}

// The events of a journal.
const (
	eventBegin    = "begin"     // a step is about to be done
	eventDone     = "done"      // it was done
	eventFailed   = "failed"    // its command failed; Text says how
	eventVerified = "verified"  // the node was looked at again; Text says what was found
	eventApplied  = "applied"   // the run is over, and stays
	eventUndo     = "undo"      // a step is about to be taken back
	eventUndone   = "undone"    // it was taken back, or was not there to be taken back
	eventKept     = "kept"      // it was not taken back; Text says why
	eventRolled   = "rolled"    // the run was taken back, as far as the events before say
	eventBroken   = "not-known" // how the run ended could not be found out; Text says why
)

// An event is one line of a journal.
type event struct {
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	Step  int       `json:"step,omitempty"` // its number in the plan
	Text  string    `json:"text,omitempty"`
}

// A journal is one run on disk.
type journal struct {
	header
	events []event
	path   string
	// file is open where events may be added.
	file *os.File
	// now is the clock.
	now func() time.Time
}

// reserve is the room for events that a journal takes when it is made, so that a disk that fills up does not stop a run
// in its middle.
const reserve = 64 << 10

// create writes the header of a new run.
func create(folder string, h header, now func() time.Time) (*journal, error) {
	h.Format = Format
	j := &journal{header: h, path: filepath.Join(folder, h.ID+journalEnd), now: now}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("write journal %s: %w", j.path, err)
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write journal: %w (choose another folder with --journal)", err)
	}
	j.file = f
	allocate(f, int64(len(line)+1+reserve))
	err = j.write(append(line, '\n'))
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		f.Close()
		_ = os.Remove(j.path) // it is empty, or would not be believed
		return nil, fmt.Errorf("write journal %s: %w", j.path, err)
	}
	return j, nil
}

// write puts bytes on disk.
func (j *journal) write(line []byte) error {
	if _, err := j.file.Write(line); err != nil {
		return err
	}
	return j.file.Sync()
}

// add puts an event on disk.
func (j *journal) add(name string, step int, text string) error {
	e := event{Event: name, Time: j.now().UTC(), Step: step, Text: text}
	line, err := json.Marshal(e)
	if err == nil {
		err = j.write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	j.events = append(j.events, e)
	return nil
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// open reads a journal. With writable events may be added: a last line that was cut off is taken off then.
func open(path string, writable bool, now func() time.Time) (*journal, error) {
	j := &journal{path: path, now: now}
	flags := os.O_RDONLY
	if writable {
		flags = os.O_RDWR | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	whole, err := j.read(f)
	if err == nil && writable {
		j.file = f
		err = f.Truncate(whole)
	}
	if err != nil || !writable {
		f.Close()
		j.file = nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	return j, nil
}

// read reads the lines, and says how many bytes are whole ones.
func (j *journal) read(f io.Reader) (whole int64, err error) {
	r := bufio.NewReader(f)
	for n := 0; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return 0, errNothing
			}
			return whole, nil // the rest, if any, was cut off
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			if err := json.Unmarshal(line, &j.header); err != nil {
				return 0, fmt.Errorf("line 1: %w", err)
			}
			if j.Format != Format {
				return 0, fmt.Errorf("it is of format %q, and this release reads %s", j.Format, Format)
			}
			whole = int64(len(line))
			continue
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			// Lines are written one after the other: one that cannot be read in the middle is damage, at the end it was cut off.
			if rest, _ := io.ReadAll(r); len(bytes.TrimSpace(bytes.Trim(rest, "\x00"))) == 0 {
				return whole, nil
			}
			return 0, fmt.Errorf("line %d: %w", n+1, err)
		}
		j.events = append(j.events, e)
		whole += int64(len(line))
	}
}

// errNothing is the error of a journal whose header was cut off: nothing was done in that run.
var errNothing = errors.New("it has no header: nothing was done in that run")

// last is the last event about a step, empty for none.
func (j *journal) last(step int) event {
	for _, e := range slices.Backward(j.events) {
		if e.Step == step {
			return e
		}
	}
	return event{}
}

// state says what became of the run.
func (j *journal) state() report.RepairRunState {
	state := report.RepairNotApplied
	for _, e := range j.events {
		switch e.Event {
		case eventBegin, eventUndo:
			state = report.RepairInterrupted
		case eventApplied:
			state = report.RepairApplied
		case eventRolled:
			state = report.RepairRolledBack
		}
	}
	return state
}

// run is the journal as a document.
func (j *journal) run() *report.RepairRun {
	r := newRun(j.Node, j.ID, j.Plan)
	r.State = j.state()
	for i := range j.Steps {
		s := &j.Steps[i]
		step := report.RepairRunStep{Step: s.Step, Kind: s.Kind, Title: s.Title}
		switch e := j.last(s.Step); e.Event {
		case eventBegin, eventUndo:
			step.State, step.Text = stepBegun, "it is not known whether it was done"
		case eventDone:
			step.State = stepDone
		case eventUndone:
			step.State, step.Text = stepUndone, e.Text
		case eventKept:
			step.State, step.Text = stepKept, e.Text
		case eventFailed:
			step.State, step.Text = stepBegun, e.Text
		default:
			step.State = stepNotDone
		}
		r.Steps = append(r.Steps, step)
	}
	r.Summary.Text = j.says(r.State)
	return r
}

// says is a run in a sentence.
func (j *journal) says(state report.RepairRunState) string {
	began := j.Started.Format(time.RFC3339)
	switch state {
	case report.RepairApplied:
		return fmt.Sprintf("Applied on %s; `repair --rollback %s` takes it back.", began, j.ID)
	case report.RepairRolledBack:
		return fmt.Sprintf("Applied on %s and taken back.", began)
	case report.RepairInterrupted:
		return fmt.Sprintf("Begun on %s and interrupted; `repair --rollback %s` takes back what was done.", began, j.ID)
	}
	return fmt.Sprintf("Begun on %s; nothing was written.", began)
}

// journals are those of a folder, the newest first. What cannot be read is named in the error, beside those that can.
func journals(folder string, now func() time.Time) ([]*journal, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journals: %w (run as root, or name the folder with --journal)", err)
	}
	var out []*journal
	var wrong []error
	for _, e := range slices.Backward(entries) {
		if !strings.HasSuffix(e.Name(), journalEnd) {
			continue
		}
		path := filepath.Join(folder, e.Name())
		j, err := open(path, false, now)
		if errors.Is(err, errNothing) {
			continue
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		out = append(out, j)
	}
	return out, errors.Join(wrong...)
}

// The states of a step in a run.
const (
	stepDone    = "done"
	stepUndone  = "undone"
	stepNotDone = "not-done"
	stepBegun   = "begun"
	stepKept    = "kept"
)
