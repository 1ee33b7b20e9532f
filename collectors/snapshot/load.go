package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Load reads evidence from paths: files, folders (all files below, hidden ones left out), archives (tar,
// gzip, bzip2, zip, in any combination) and bundles, or "-" for stdin. Content decides what each is. Links in a
// folder are followed as long as they stay in it, links in archives never.
//
// What cannot be read among other files becomes evidence with the status Denied, Failed or Truncated; what
// is not recognised becomes evidence with the status Unsupported and no data. Limits: MaxFileBytes,
// MaxTotalBytes, MaxFiles.
//
// Names in Evidence.File are relative to the path that was given: the base name of a file, the path
// below a folder, "archive.tar.gz:inner/path". Where two paths would give the same name, the paths as
// given stand before them. The names in a bundle are those of the time when it was taken.
//
// Errors: no path; none of the paths can be read; a folder without files; a bundle of a newer format; two
// bundles, since a snapshot is of one node at one moment.
func Load(paths []string, stdin io.Reader) (*Snapshot, error) {
	if len(paths) == 0 {
		return nil, errors.New("read evidence: no file was named; name a bundle, a folder, files, or - for standard input")
	}
	paths = withoutMembers(paths)
	l := newLoader()
	ends := make([]int, len(paths))
	var broken []error
	for i, p := range paths {
		if err := l.argument(p, stdin); err != nil {
			broken = append(broken, err)
			l.add(unreadable(argumentName(p), err))
		}
		ends[i] = len(l.evidence)
	}
	if len(broken) == len(paths) {
		return nil, errors.Join(broken...)
	}
	l.distinguish(paths, ends)
	return l.snapshot(len(paths) == 1)
}

// LoadFS reads everything below the root of fsys as Load reads a folder that was named name.
func LoadFS(fsys fs.FS, name string) (*Snapshot, error) {
	l := newLoader()
	if err := l.root(fsys, name); err != nil {
		return nil, err
	}
	return l.snapshot(true)
}

// loader collects evidence while it goes through the inputs.
type loader struct {
	limits
	evidence []Evidence
	bundle   *manifest
	// fatal is what no partial answer can stand for.
	fatal error

	count               int   // files seen
	raw, expanded, kept int64 // bytes that came from outside, bytes unpacked, bytes of evidence
	full                bool  // a limit of the whole was reached
	visited             []fs.FileInfo
	heads               []*bufio.Reader // one for each depth of nesting
}

func newLoader() *loader {
	return &loader{limits: limits{fileBytes: MaxFileBytes, totalBytes: MaxTotalBytes, freeBytes: freeBytes, files: MaxFiles}}
}

func (l *loader) add(e Evidence) { l.evidence = append(l.evidence, e) }

// snapshot is the result. When alone, the input was one path: then a failure to read all that there was is
// an error rather than evidence.
func (l *loader) snapshot(alone bool) (*Snapshot, error) {
	if l.fatal != nil {
		return nil, l.fatal
	}
	if alone && len(l.evidence) == 1 {
		if e := l.evidence[0]; e.Data == nil && (e.Status == Denied || e.Status == Failed || e.Status == Truncated) && l.bundle == nil {
			return nil, errors.New(e.Error)
		}
	}
	if err := l.nothing(); alone && err != nil {
		return nil, err
	}
	s := &Snapshot{Evidence: l.evidence}
	if m := l.bundle; m != nil {
		s.Node, s.Tool, s.Captured = m.Node, m.Tool, m.Captured
	}
	s.Arrange()
	return s, nil
}

// nothing is the error of several files, in a folder or an archive, of which none is evidence: somebody named the
// wrong thing. The limit that was reached, if one was, is the reason; else the first file stands for all.
func (l *loader) nothing() error {
	if l.bundle != nil || len(l.evidence) == 0 || len(l.evidence) == 1 && !l.full {
		return nil
	}
	for _, e := range l.evidence {
		switch {
		case e.Status == Truncated && l.full:
			if e.Format == Unrecognised {
				return errors.New(e.Error)
			}
			return nil
		case e.Status != Unsupported || e.Format != Unrecognised:
			return nil
		}
	}
	first := l.evidence[0]
	return fmt.Errorf("read %s: neither it nor any of the %d files beside it is evidence of a node (%s); give captures of a node, or what `svcnet collect` wrote",
		first.File, len(l.evidence)-1, strings.TrimPrefix(first.Error, "not recognised: "))
}

// argument reads one path of the command line.
func (l *loader) argument(p string, stdin io.Reader) error {
	if p == "-" {
		if stdin == nil {
			return errors.New("read -: there is no standard input; name a file")
		}
		l.stream("-", l.arriving(stdin), 0)
		return nil
	}
	info, err := os.Stat(p)
	if err != nil {
		return readError(p, err)
	}
	if info.IsDir() {
		return l.below(p)
	}
	if dir := unpackedAt(p); dir != "" {
		return l.below(dir)
	}
	// No check for a regular file: a shell's <(command) is a pipe.
	f, err := os.Open(p)
	if err != nil {
		return readError(p, err)
	}
	defer f.Close()
	l.stream(argumentName(p), l.arriving(f), 0)
	return nil
}

// below reads a folder of this machine, and nothing outside of it: who unpacks somebody else's archive may get links
// to anywhere.
func (l *loader) below(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return readError(dir, err)
	}
	defer root.Close()
	return l.root(root.FS(), dir)
}

// root reads a folder that was named.
func (l *loader) root(fsys fs.FS, name string) error {
	if _, err := fs.ReadDir(fsys, "."); err != nil {
		return readError(name, err)
	}
	files, pieces := l.count, len(l.evidence)
	l.folder(fsys, ".", "", 0)
	if l.count == files && len(l.evidence) == pieces && l.bundle == nil && l.fatal == nil {
		return fmt.Errorf("read %s: there are no files in it (hidden ones are not read); name a folder that holds captures or a bundle", name)
	}
	return nil
}

// folder reads what is below dir; shown is its name in the evidence, "" for the one that was named.
func (l *loader) folder(fsys fs.FS, dir, shown string, depth int) {
	name := shown
	if name == "" {
		name = "."
	}
	if depth > maxDepth {
		l.add(Evidence{File: name, Status: Failed, Error: fmt.Sprintf("read %s: more than %d folders deep: not read", name, maxDepth)})
		return
	}
	if info, err := fs.Stat(fsys, dir); err == nil {
		l.visited = append(l.visited, info)
	}
	if m, ok := l.manifestIn(fsys, dir); ok {
		l.readBundleFolder(m, fsys, dir)
		return
	}
	entries, err := fs.ReadDir(fsys, dir) // sorted by name
	if err != nil {
		l.add(unreadable(name, readError(name, err)))
	}
	for _, e := range entries {
		if l.full || l.fatal != nil {
			return
		}
		if isHidden(e.Name()) {
			continue
		}
		inner, shown := path.Join(dir, e.Name()), path.Join(shown, e.Name())
		info, err := fs.Stat(fsys, inner) // follows links
		switch {
		case err != nil && e.Type()&fs.ModeSymlink != 0 && leadsOut(err):
			l.add(Evidence{File: shown, Status: Unsupported, Error: "not recognised: a link that leads out of the folder; give what it points to"})
		case err != nil:
			l.add(unreadable(shown, readError(shown, err)))
		case info.IsDir() && e.Type()&fs.ModeSymlink != 0 && l.wasVisited(info):
			// a link back: everything there is read already
		case info.IsDir():
			l.folder(fsys, inner, shown, depth+1)
		case !info.Mode().IsRegular():
			l.add(Evidence{File: shown, Status: Unsupported, Error: "not recognised: not a file (" + info.Mode().Type().String() + ")"})
		default:
			if err := l.opened(fsys, inner, shown); err != nil {
				l.add(unreadable(shown, err))
			}
		}
	}
}

// leadsOut tells the error of a link out of the folder from those that any file may give.
func leadsOut(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

func (l *loader) wasVisited(info fs.FileInfo) bool {
	for _, v := range l.visited {
		if os.SameFile(v, info) {
			return true
		}
	}
	return false
}

func (l *loader) opened(fsys fs.FS, name, shown string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return readError(shown, err)
	}
	defer f.Close()
	l.stream(shown, l.arriving(f), 0)
	return nil
}

// headBytes is how much of a file is looked at before the rest is read.
const headBytes = 64 << 10

// stream reads one file: an archive is opened, anything else becomes evidence.
func (l *loader) stream(name string, r io.Reader, nesting int) {
	if !l.countFile(name) {
		return
	}
	in := l.head(r, nesting)
	head, err := in.Peek(headBytes)
	if len(head) == 0 && err != nil && err != io.EOF {
		l.readFailed(name, err)
		return
	}
	if open := archiveOf(head); open != nil {
		if nesting >= maxNesting {
			l.add(Evidence{File: name, Status: Unsupported, Error: fmt.Sprintf("not recognised: more than %d archives within each other; unpack it first", maxNesting)})
			return
		}
		open(l, name, in, nesting+1)
		return
	}
	l.file(name, in, head)
}

// head is a reader that can look ahead by headBytes. Files of one depth come one after the other and share it.
func (l *loader) head(r io.Reader, nesting int) *bufio.Reader {
	for len(l.heads) <= nesting {
		l.heads = append(l.heads, bufio.NewReaderSize(nil, headBytes))
	}
	l.heads[nesting].Reset(r)
	return l.heads[nesting]
}

// file makes evidence of one plain file.
func (l *loader) file(name string, in io.Reader, head []byte) {
	if isNetlink(head) {
		l.netlink(name, in)
		return
	}
	if _, _, err := decodeText(head); err != nil {
		l.add(Evidence{File: name, Status: Unsupported, Error: "not recognised: " + err.Error()})
		return
	}
	data, cut, err := l.take(in)
	if tooMuch(err) {
		l.stopTotal(name, err)
		return
	}
	if len(data) == 0 && err != nil {
		l.readFailed(name, err)
		return
	}
	text, note, notText := decodeText(data)
	if notText != nil {
		l.add(Evidence{File: name, Status: Unsupported, Error: "not recognised: " + notText.Error()})
		return
	}
	if len(bytes.TrimSpace(text)) == 0 && err == nil {
		l.add(emptyFile(name))
		return
	}
	if bytes.HasPrefix(text, []byte(RenderedMark)) {
		l.add(Evidence{File: name, Status: Unsupported, Error: "not recognised: a text that svcnet made from other evidence, for people; give that evidence"})
		return
	}
	pieces := split(name, text)
	for _, p := range pieces {
		if err := l.charge(int64(p.lines)); err != nil {
			l.stopTotal(name, err)
			return
		}
		e := Evidence{File: name, Format: p.kind.format, Family: p.kind.family, Backend: p.kind.backend, Data: p.cutFrom(text), Status: OK, Note: note}
		if isDocument(e.Format) {
			e.Data = withoutPrompts(e.Data)
		}
		switch {
		case e.Format == Unrecognised:
			e.Data, e.Note, e.Status, e.Error = nil, "", Unsupported, "not recognised: "+p.kind.reason
		case NotEvaluated(e.Format) != "":
			e.Status, e.Error = Unsupported, NotEvaluated(e.Format)
		case cut:
			e.Status, e.Error = Truncated, fmt.Sprintf("read %s: it is longer than %d MiB: the rest was not read", name, l.fileBytes>>20)
		case err != nil:
			e.Status, e.Error = Truncated, fmt.Sprintf("read %s: %v: what stands after byte %d was not read; copy the file again", name, reason(err), len(data))
		}
		l.add(e)
	}
}

// isDocument tells formats that are one document, in which a shell's prompt has no place.
func isDocument(f Format) bool {
	switch f {
	case Objects, ProxyConfig, ProxyConfigz, ProxyHealthz, CNIConfig, Kubeconfig, NFTJSON:
		return true
	}
	return false
}

// emptyFile is evidence of a file with nothing in it. Some commands print nothing when there is nothing;
// of those the name is believed. Others always print something, so that an empty file says nothing of
// what they would have shown.
func emptyFile(name string) Evidence {
	e := Evidence{File: name, Status: Empty, Note: "the file is empty"}
	switch f := formatOfName(name); f {
	case IPTablesSave, IPSetSave, IPSetList, IPVSSave, NFTText, Conntrack, IPRoute:
		e.Format = f
		e.Family = familyOfName(name)
		if f == IPTablesSave {
			e.Backend = backendOfName(name)
		}
	}
	return e
}

// readFailed records that a file could not be read, or that a limit of the whole was hit within it.
func (l *loader) readFailed(name string, err error) {
	if tooMuch(err) {
		l.stopTotal(name, err)
		return
	}
	l.add(unreadable(name, readError(name, err)))
}

// unreadable is evidence that there is a file and that it could not be read: of what, its name must tell.
func unreadable(name string, err error) Evidence {
	e := Evidence{File: name, Format: formatOfName(name), Family: familyOfName(name), Status: Failed, Error: err.Error()}
	if errors.Is(err, fs.ErrPermission) {
		e.Status = Denied
	}
	return e
}

// readError says what was read, why that was not possible and what to do.
func readError(name string, err error) error {
	next := "copy the file again"
	switch {
	case errors.Is(err, fs.ErrPermission):
		next = "run as a user who may read it, or copy it with sudo"
	case errors.Is(err, fs.ErrNotExist):
		next = "check the path"
	}
	return fmt.Errorf("read %s: %w; %s", name, reason(err), next)
}

// reason takes the path out of an error of the file system: the message names the file already, and not
// by a path of this machine.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") || name == "__MACOSX" }

func argumentName(p string) string { return path.Base(filepath.ToSlash(p)) }

// distinguish puts the paths as given before the names where two paths gave the same name. Ends holds
// where each path's evidence ends.
func (l *loader) distinguish(paths []string, ends []int) {
	of := map[string]int{} // the path that gave a name first
	clash := map[int]bool{}
	begin := 0
	for i, end := range ends {
		for _, e := range l.evidence[begin:end] {
			if first, ok := of[e.File]; !ok {
				of[e.File] = i
			} else if first != i {
				clash[first], clash[i] = true, true
			}
		}
		begin = end
	}
	begin = 0
	for i, end := range ends {
		if given := path.Clean(filepath.ToSlash(paths[i])); clash[i] && given != "-" {
			base := path.Base(given)
			for j := begin; j < end; j++ {
				switch e := &l.evidence[j]; {
				case e.File == base:
					e.File = given
				case strings.HasPrefix(e.File, base+":"):
					e.File = given + strings.TrimPrefix(e.File, base)
				default:
					e.File = path.Join(given, e.File)
				}
			}
		}
		begin = end
	}
}
