package snapshot

import (
	"errors"
	"fmt"
	"io"
)

// What is read at most. Inputs are hostile: a bundle comes from somebody else's cluster, and a few bytes
// of an archive can unpack to any amount.
const (
	MaxFileBytes  = 512 << 20 // of one file; the rest is left out and the status says Truncated
	MaxTotalBytes = 2 << 30   // of all files, unpacked
	MaxFiles      = 100_000   // files in folders and archives
	maxDepth      = 64        // folders within folders
	maxNesting    = 4         // archives within archives, compression included
	maxManifest   = 64 << 20  // bytes of a bundle's manifest
)

type limits struct {
	fileBytes, totalBytes int64
	files                 int
}

var errTotal = errors.New("too much data")

// unpacked counts what a decompressor puts out, so that data which is thrown away counts too.
func (l *loader) unpacked(r io.Reader) io.Reader { return &meter{r, &l.expanded, l.totalBytes} }

type meter struct {
	r     io.Reader
	count *int64
	limit int64
}

func (m *meter) Read(p []byte) (int, error) {
	if *m.count >= m.limit {
		return 0, errTotal
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.limit-*m.count)])
	*m.count += int64(n)
	return n, err
}

// take reads r up to the limits. Cut is true when there was more than one file may hold; err is errTotal
// when all files together hold too much.
func (l *loader) take(r io.Reader) (data []byte, cut bool, err error) {
	room := min(l.fileBytes, l.totalBytes-l.kept)
	data, err = io.ReadAll(io.LimitReader(r, room+1))
	if int64(len(data)) <= room {
		l.kept += int64(len(data))
		return data, false, err
	}
	data = data[:room:room]
	l.kept += room
	if room < l.fileBytes {
		return data, true, errTotal
	}
	return data, true, nil
}

// countFile is false when no more files may be read; the first one too many is named in the evidence.
func (l *loader) countFile(name string) bool {
	if l.full {
		return false
	}
	if l.count++; l.count > l.files {
		l.stop(name, fmt.Sprintf("read %s: there are more than %d files: this one and all after it were not read; give fewer", name, l.files))
		return false
	}
	return true
}

// stop ends the reading of everything that follows.
func (l *loader) stop(name, line string) {
	if !l.full {
		l.full = true
		l.add(Evidence{File: name, Format: formatOfName(name), Family: familyOfName(name), Status: Truncated, Error: line})
	}
}

func (l *loader) stopTotal(name string) {
	l.stop(name, fmt.Sprintf("read %s: the inputs hold more than %d MiB: this file and all after it were not read; give fewer", name, l.totalBytes>>20))
}
