package snapshot

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A bundle is a gzipped tar archive: manifest.json first, then texts for people, then one file per piece of evidence
// that holds data. Names, order and times are fixed, so that an equal snapshot gives equal bytes. Unpacked into a
// folder it reads the same. The texts are made from the evidence and never read.

const (
	manifestName  = "manifest.json"
	bundleAPI     = "svcnet.dev/v1alpha1"
	bundleKind    = "Bundle"
	bundleVersion = "1.1" // minor: fields were added; major: old programs would read it wrongly
	bundleMajor   = 1
	evidenceDir   = "evidence/"
)

// manifest is the table of contents of a bundle.
type manifest struct {
	APIVersion    string             `json:"apiVersion"`
	Kind          string             `json:"kind"`
	FormatVersion string             `json:"formatVersion"`
	Node          string             `json:"node,omitempty"`
	Tool          string             `json:"tool,omitempty"`
	Captured      string             `json:"captured,omitempty"`
	Rendered      []manifestRendered `json:"rendered,omitempty"`
	Evidence      manifestList       `json:"evidence"`
}

// manifestRendered is a text for people.
type manifestRendered struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// manifestList is read entry by entry, so that a list of empty ones costs no memory.
type manifestList []manifestEvidence

var errManifestLong = fmt.Errorf("it lists more than %d files", MaxFiles)

// UnmarshalJSON refuses more than MaxFiles entries.
func (m *manifestList) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	switch open, err := d.Token(); {
	case err != nil:
		return err
	case open == nil:
		return nil // null
	case open != json.Delim('['):
		return fmt.Errorf("evidence is no list")
	}
	for d.More() {
		var e manifestEvidence
		if err := d.Decode(&e); err != nil {
			return err
		}
		if *m = append(*m, e); len(*m) > MaxFiles {
			return errManifestLong
		}
	}
	return nil
}

// manifestEvidence is Evidence with the bundle's file that holds its data, empty when there is none.
type manifestEvidence struct {
	File    string `json:"file"`
	Format  Format `json:"format"`
	Family  int    `json:"family,omitempty"`
	Backend string `json:"backend,omitempty"`
	Status  Status `json:"status"`
	Error   string `json:"error,omitempty"`
	Note    string `json:"note,omitempty"`
	Data    string `json:"data,omitempty"`
	// SHA256 of the data, in hex, since format 1.1.
	SHA256 string `json:"sha256,omitempty"`
}

// Rendered is a text that a bundle carries for people. It is made from the evidence, and not read back.
type Rendered struct {
	// File is its name in the bundle, relative, with forward slashes, and not one of the bundle's own
	// (manifest.json and what is below evidence/).
	File string
	Text []byte
}

// RenderedMark begins texts for people that could be taken for evidence when somebody gives them without their bundle.
const RenderedMark = "# Made by svcnet from the evidence beside it, which svcnet reads instead."

// WriteBundle writes the snapshot as a bundle, with texts for people in the order given. Load reads the same snapshot
// back, without them. The error is that of w.
func (s *Snapshot) WriteBundle(w io.Writer, texts ...Rendered) error {
	sorted := Snapshot{Evidence: slices.Clone(s.Evidence)}
	sorted.Arrange()
	m := manifest{
		APIVersion: bundleAPI, Kind: bundleKind, FormatVersion: bundleVersion,
		Node: s.Node, Tool: s.Tool, Captured: s.Captured,
		Evidence: manifestList{},
	}
	for _, r := range texts {
		m.Rendered = append(m.Rendered, manifestRendered{r.File, checksum(r.Text)})
	}
	taken := map[string]bool{}
	for i, e := range sorted.Evidence {
		entry := manifestEvidence{File: e.File, Format: e.Format, Family: e.Family, Backend: e.Backend, Status: e.Status, Error: e.Error, Note: e.Note}
		if len(e.Data) > 0 {
			entry.Data = evidenceDir + e.File
			if !plainName.MatchString(e.File) || taken[strings.ToLower(e.File)] {
				entry.Data = fmt.Sprintf("%s%04d-%s", evidenceDir, i+1, memberName(e.File))
			}
			taken[strings.ToLower(e.File)] = true
			entry.SHA256 = checksum(e.Data)
		}
		m.Evidence = append(m.Evidence, entry)
	}
	contents, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}

	z := gzip.NewWriter(w) // no name and no time in its header
	t := tar.NewWriter(z)
	write := func(name string, data []byte) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	}
	err = write(manifestName, append(contents, '\n'))
	for _, r := range texts {
		if err == nil {
			err = write(r.File, r.Text)
		}
	}
	for i, e := range sorted.Evidence {
		if err == nil && len(e.Data) > 0 {
			err = write(m.Evidence[i].Data, e.Data)
		}
	}
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// checksum is the SHA-256 of data in hex.
func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// plainName are names that every file system can hold and nothing reads as a path of its own; who unpacks a bundle
// finds its files under them.
var plainName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]{0,99}/){0,4}[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// memberName keeps of a file's name what every file system can hold, for people who unpack a bundle.
func memberName(file string) string {
	b := []byte(path.Base(strings.ReplaceAll(file, ":", "/")))
	for i, c := range b {
		if !isDigit(c) && !(c|0x20 >= 'a' && c|0x20 <= 'z') && c != '.' && c != '-' {
			b[i] = '_'
		}
	}
	b = b[max(0, len(b)-60):]
	if name := strings.TrimLeft(string(b), "."); name != "" {
		return name
	}
	return "data"
}

// isManifest tells a bundle's manifest, of whatever version, from other files of that name.
func isManifest(data []byte) bool {
	var m struct{ APIVersion, Kind string }
	return json.Unmarshal(data, &m) == nil && strings.HasPrefix(m.APIVersion, "svcnet.dev/") && m.Kind == bundleKind
}

// parseManifest reads a manifest. Fields that it does not know are passed over: only a newer major
// version means that they matter.
func parseManifest(name string, data []byte) (*manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("read bundle %s: read its manifest: %w; copy the bundle again", name, err)
	}
	major, _, _ := strings.Cut(m.FormatVersion, ".")
	n, err := strconv.Atoi(major)
	switch {
	case err != nil || n < 1:
		return nil, fmt.Errorf("read bundle %s: its manifest has no format version that makes sense (%q); collect it again", name, cut(m.FormatVersion, 40))
	case n > bundleMajor:
		return nil, fmt.Errorf("read bundle %s: its format %s is newer than this program, which reads %d.x; use a newer svcnet", name, cut(m.FormatVersion, 40), bundleMajor)
	}
	return &m, nil
}

// accept makes a manifest the loader's bundle. It is false when that cannot be, which ends the loading.
func (l *loader) accept(name string, data []byte) (*manifest, bool) {
	m, err := parseManifest(name, data)
	if err == nil && l.bundle != nil {
		err = fmt.Errorf("read bundle %s: a second bundle; a snapshot is of one node at one moment: give one, or compare two with diff", name)
	}
	if err != nil {
		l.fatal = err
		return nil, false
	}
	l.bundle = m
	return m, true
}

// readBundleTar reads the bundle whose manifest was the first member of t; end knows whether t was whole. A bundle that
// is larger than any that svcnet writes is not read at all.
func (l *loader) readBundleTar(name string, contents []byte, t *tar.Reader, end *zeroTail) {
	m, ok := l.accept(name, contents)
	if !ok {
		return
	}
	wanted := map[string][]int{}
	got := make([]Evidence, len(m.Evidence))
	for i, e := range m.Evidence {
		got[i] = e.evidence()
		switch {
		case e.Data == "":
		case !isMember(e.Data):
			got[i].lost(errOutside.Error())
		default:
			wanted[e.Data] = append(wanted[e.Data], i)
		}
	}
	missing := "the bundle does not hold its data; collect it again"
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && end.zeros >= tarBlock {
			break
		}
		if tooMuch(err) {
			l.fatal = l.refused(name, err)
			return
		}
		if err != nil {
			missing = "the bundle ends before its data; copy it again"
			break
		}
		inner, ok := innerName(h.Name)
		indexes := wanted[inner]
		if !ok || len(indexes) == 0 {
			continue
		}
		delete(wanted, inner)
		if h.Typeflag != tar.TypeReg {
			for _, i := range indexes {
				got[i].lost("in the bundle it is no file but a link or a device, which nobody follows; collect it again")
			}
			continue
		}
		data, cut, err := l.take(t)
		if !tooMuch(err) {
			// As often as it is named it is gone through.
			err = cmp.Or(l.charge(int64(len(data)*(len(indexes)-1))), err)
		}
		if tooMuch(err) {
			l.fatal = l.refused(name, err)
			return
		}
		for _, i := range indexes {
			got[i] = m.Evidence[i].evidence()
			got[i].fill(data, cut, err, m.Evidence[i].SHA256)
		}
	}
	for _, indexes := range wanted {
		for _, i := range indexes {
			got[i].lost(missing)
		}
	}
	l.evidence = append(l.evidence, got...)
}

// refused is the error for a bundle that goes beyond a limit.
func (l *loader) refused(name string, err error) error {
	return fmt.Errorf("read bundle %s: %s, which no bundle of svcnet does; collect it again", name, l.excess(err))
}

// errOutside is what is wrong with a manifest that names other files than the bundle's.
var errOutside = errors.New("the manifest names a file outside of the bundle; collect it again")

// isMember tells whether a name in a manifest is that of evidence in its bundle.
func isMember(name string) bool { return fs.ValidPath(name) && strings.HasPrefix(name, evidenceDir) }

// manifestIn returns the manifest of a bundle that was unpacked into dir.
func (l *loader) manifestIn(fsys fs.FS, dir string) ([]byte, bool) {
	f, err := fsys.Open(path.Join(dir, manifestName))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil || !isManifest(data) {
		return nil, false
	}
	return data, true
}

// unpackedAt is the folder of the unpacked bundle whose manifest is at p; empty when p is something else.
func unpackedAt(p string) string {
	if filepath.Base(p) != manifestName {
		return ""
	}
	dir := filepath.Dir(p)
	if _, ok := newLoader().manifestIn(os.DirFS(dir), "."); !ok {
		return ""
	}
	return dir
}

// withoutMembers leaves out the other files of an unpacked bundle whose manifest is named, as `-f node-1/*` names
// them: the manifest stands for all of them.
func withoutMembers(paths []string) []string {
	members := map[string]bool{}
	for _, p := range paths {
		dir := unpackedAt(p)
		if dir == "" {
			continue
		}
		members[filepath.Join(dir, evidenceDir)] = true
		contents, _ := newLoader().manifestIn(os.DirFS(dir), ".")
		var m manifest
		if json.Unmarshal(contents, &m) != nil {
			continue
		}
		for _, r := range m.Rendered {
			first, _, _ := strings.Cut(r.File, "/")
			members[filepath.Join(dir, first)] = first != manifestName
		}
	}
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		p = filepath.Clean(p)
		return members[p] || members[filepath.Dir(p)]
	})
}

// readBundleFolder reads a bundle that was unpacked into dir.
func (l *loader) readBundleFolder(contents []byte, fsys fs.FS, dir string) {
	m, ok := l.accept(manifestName, contents)
	if !ok {
		return
	}
	for _, entry := range m.Evidence {
		e := entry.evidence()
		if entry.Data != "" {
			data, cut, err := l.member(fsys, dir, entry.Data)
			if tooMuch(err) {
				l.fatal = l.refused(manifestName, err)
				return
			}
			e.fill(data, cut, err, entry.SHA256)
		}
		l.add(e)
	}
}

// member reads a file of an unpacked bundle; its name, which the manifest says, leads nowhere else.
func (l *loader) member(fsys fs.FS, dir, name string) ([]byte, bool, error) {
	if !isMember(name) {
		return nil, false, errOutside
	}
	// Every folder on the way too: a link among them would lead somewhere else.
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		info, err := fs.Lstat(fsys, path.Join(dir, name[:i]))
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("%w; collect it again", reason(err))
		case info.Mode()&fs.ModeType != 0 && (i == len(name) || !info.IsDir()):
			return nil, false, errors.New("in the bundle it is no file but a link or a device, which nobody follows; collect it again")
		}
	}
	f, err := fsys.Open(path.Join(dir, name))
	if err != nil {
		return nil, false, fmt.Errorf("%w; collect it again", reason(err))
	}
	defer f.Close()
	return l.take(l.arriving(f))
}

func (m manifestEvidence) evidence() Evidence {
	return Evidence{File: m.File, Format: m.Format, Family: m.Family, Backend: m.Backend, Status: m.Status, Error: m.Error, Note: m.Note}
}

// fill gives evidence of a bundle its data. What an older program could not evaluate this one may, and
// the other way round.
func (e *Evidence) fill(data []byte, cut bool, err error, sum string) {
	switch {
	case err != nil && len(data) == 0:
		e.lost(reason(err).Error())
		return
	case err == nil && !cut && sum != "" && sum != checksum(data):
		e.lost("its bytes are not those that were collected (its checksum differs): the bundle was changed or damaged; collect it again")
		return
	case err != nil:
		e.Status, e.Error = Truncated, fmt.Sprintf("read %s: %v: the bundle ends within it; copy the bundle again", e.File, reason(err))
	case cut:
		e.Status, e.Error = Truncated, fmt.Sprintf("read %s: it is longer than one file may be: the rest was not read", e.File)
	case e.Status == OK && NotEvaluated(e.Format) != "":
		e.Status, e.Error = Unsupported, NotEvaluated(e.Format)
	case e.Status == Unsupported && e.Format != Unrecognised && NotEvaluated(e.Format) == "":
		e.Status, e.Error = OK, ""
	}
	e.Data = data
	if e.Format == NFTNetlink && e.Status == OK {
		e.checkNetlink()
	}
}

// lost marks evidence that was once read and whose data is gone.
func (e *Evidence) lost(why string) {
	e.Data, e.Status, e.Error = nil, Failed, fmt.Sprintf("read %s: %s", e.File, why)
}
