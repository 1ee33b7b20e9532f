package redact

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
)

// MinKey is how many bytes a key has at least. What a short key made of names could be found by trying keys.
const MinKey = 16

// Redact returns a copy of the snapshot in which names and addresses are others. Two snapshots redacted with one key
// have the same new names for the same old ones. With the key everybody can find out whether a name was in the input;
// without it nothing leads back, and the renaming is kept nowhere.
//
// Evidence that cannot be redacted is left out, with a status that says so. The error is that of a key that is too short.
func Redact(s *snapshot.Snapshot, key []byte) (*snapshot.Snapshot, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("redact: a key of %d bytes is too short to hide anything: give %d or more", len(key), MinKey)
	}
	r := newRenaming(key)
	r.learn(s)
	r.forget()
	return r.snapshot(s), nil
}

// learn finds out which words are names and which hashes stand for which service ports: what the first reading of a
// snapshot finds late, the second knows from the start.
func (r *renaming) learn(s *snapshot.Snapshot) {
	r.text(s.Node, name)
	set := &objects.Set{}
	for _, e := range s.Of(snapshot.Objects) {
		objects.Decode(set, e.Data, e.File)
	}
	r.learnObjects(set)
	for _, e := range s.Evidence {
		if pod := snapshot.PodOf(e.File); pod != "" {
			r.text(pod, name)
		}
		if d := decisionOf(e.Format); d.rewrite != nil {
			_, _ = d.rewrite(r, string(e.Data)) // what fails here fails again below
		}
	}
}

func (r *renaming) snapshot(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := &snapshot.Snapshot{Node: r.text(s.Node, name), Tool: s.Tool, Captured: s.Captured}
	for _, e := range s.Evidence {
		out.Evidence = append(out.Evidence, r.evidence(e))
	}
	out.Arrange()
	return out
}

// evidence rewrites one piece.
func (r *renaming) evidence(e snapshot.Evidence) snapshot.Evidence {
	fresh := e
	fresh.File = r.file(e.File)
	fresh.Error = r.prose(e.Error)
	fresh.Note = r.prose(e.Note)
	d := decisionOf(e.Format)
	if d.rewrite == nil {
		fresh.Data = nil
		switch {
		case len(e.Data) == 0:
		case !e.Status.Answers():
			fresh.Note = "left out when names were redacted: " + d.why // and what it lacked before it lacks still
		default:
			fresh.Status, fresh.Error = snapshot.NotCollected, fmt.Sprintf("read %s: left out when names were redacted: %s", fresh.File, d.why)
		}
		return fresh
	}
	if len(e.Data) == 0 {
		return fresh
	}
	text, err := d.rewrite(r, string(e.Data))
	if err != nil {
		fresh.Data, fresh.Status = nil, snapshot.NotCollected
		fresh.Error = fmt.Sprintf("read %s: left out when names were redacted: %v", fresh.File, err)
		return fresh
	}
	fresh.Data = []byte(text)
	return fresh
}

// file is the new name of a file: its words stay, and with them what svcnet reads from it.
func (r *renaming) file(f string) string {
	parts := strings.Split(f, "/")
	for i, p := range parts {
		pods := i > 0 && slices.Contains(parts[max(0, i-2):i], "pods") || i > 0 && slices.Contains(parts[max(0, i-2):i], "service-pods")
		switch {
		case pods && i < len(parts)-1, pods && i == len(parts)-1 && slices.Contains(parts[:i], "service-pods"):
			stem, ext := strings.TrimSuffix(p, path.Ext(p)), path.Ext(p)
			if ext != ".json" {
				stem, ext = p, ""
			}
			parts[i] = r.text(stem, name) + ext
		default:
			parts[i] = r.fileName(p)
		}
	}
	return strings.Join(parts, "/")
}

// fileName rewrites one element of a path. Words stay, and names do not that were found elsewhere: alone, before an
// ending ("node-1.log"), and behind words ("iptables-save-node-1").
func (r *renaming) fileName(p string) string {
	if p == "-" || r.learned[strings.ToLower(p)] {
		return r.text(p, name)
	}
	stem, ending := strings.TrimSuffix(p, path.Ext(p)), path.Ext(p)
	parts := strings.Split(stem, "-")
	if len(parts) > maxNameParts {
		return r.text(p, name)
	}
	for first := range parts {
		for last := len(parts); last > first; last-- {
			run := strings.Join(parts[first:last], "-")
			if !r.learned[strings.ToLower(run)] || r.vocabulary[strings.ToLower(run)] {
				continue
			}
			var b strings.Builder
			if first > 0 {
				b.WriteString(r.text(strings.Join(parts[:first], "-"), grammar) + "-")
			}
			b.WriteString(r.text(run, name))
			if last < len(parts) {
				b.WriteString("-" + r.text(strings.Join(parts[last:], "-"), grammar))
			}
			return b.String() + r.text(ending, grammar)
		}
	}
	return r.text(p, grammar)
}

// maxNameParts bounds how many hyphens the name of a file has for names to be looked for between them.
const maxNameParts = 24
