package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// What is read at most. Inputs are hostile: a bundle comes from somebody else's cluster, and a few bytes
// of an archive can unpack to any amount. What is kept, and what decompressors put out, is at most
//
//	freeBytes + maxRatio × (the bytes that were read)
//
// and never more than MaxTotalBytes, so that a small file costs little memory, whatever it claims to hold. While it
// is put together, the largest file is there twice.
const (
	MaxFileBytes  = 512 << 20 // of one file; the rest is left out and the status says Truncated
	MaxTotalBytes = 1 << 30   // of all files, unpacked
	MaxFiles      = 100_000   // files in folders and archives
	maxDepth      = 64        // folders within folders
	maxNesting    = 4         // archives within archives, compression included
	maxManifest   = 32 << 20  // bytes of a bundle's manifest

	// Rules and objects of nodes shrink to a tenth or a thirtieth, those of made-up clusters in which all is
	// alike to a fiftieth.
	maxRatio  = 100
	freeBytes = 16 << 20
)

type limits struct {
	fileBytes, totalBytes, freeBytes int64
	files                            int
}

var (
	errTotal = errors.New("too much data")
	errRatio = errors.New("too much data for its size")
)

// tooMuch tells whether a limit of the whole was reached.
func tooMuch(err error) bool { return errors.Is(err, errTotal) || errors.Is(err, errRatio) }

// allowance is how many bytes may be kept, or unpacked, after what was read so far; the error is that of more.
func (l *loader) allowance() (int64, error) {
	if earned := l.freeBytes + maxRatio*l.raw; earned < l.totalBytes {
		return earned, errRatio
	}
	return l.totalBytes, errTotal
}

// arriving counts what comes from outside: bytes of files as they lie there, before anything is unpacked.
func (l *loader) arriving(r io.Reader) io.Reader { return &arrival{r, &l.raw} }

type arrival struct {
	r   io.Reader
	raw *int64
}

func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	*a.raw += int64(n)
	return n, err
}

// unpacked counts what a decompressor puts out, so that data which is thrown away counts too.
func (l *loader) unpacked(r io.Reader) io.Reader { return &meter{r, l, &l.expanded} }

// meter gives no more than the allowance.
type meter struct {
	r     io.Reader
	l     *loader
	count *int64
}

func (m *meter) Read(p []byte) (int, error) {
	// One byte more than there was room for: the end may be just there.
	allowed, _ := m.l.allowance()
	n, err := m.r.Read(p[:min(int64(len(p)), max(0, allowed-*m.count)+1)])
	// Reading earned more.
	allowed, more := m.l.allowance()
	if room := max(0, allowed-*m.count); int64(n) > room {
		*m.count += room
		return int(room), more
	}
	*m.count += int64(n)
	return n, err
}

// take reads r up to the limits. Cut is true when there was more than one file may hold; err is errTotal or errRatio
// when all files together hold too much.
func (l *loader) take(r io.Reader) (data []byte, cut bool, err error) {
	data, err = io.ReadAll(io.LimitReader(&meter{r, l, &l.kept}, l.fileBytes+1))
	if int64(len(data)) > l.fileBytes {
		return data[:l.fileBytes:l.fileBytes], true, nil
	}
	return data, false, err
}

// charge counts n bytes of copies as kept. The error is errTotal or errRatio when that is too much.
func (l *loader) charge(n int64) error {
	allowed, more := l.allowance()
	if l.kept += n; l.kept > allowed {
		return more
	}
	return nil
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

// stopTotal ends the reading because of err, which is errTotal or errRatio.
func (l *loader) stopTotal(name string, err error) {
	l.stop(name, fmt.Sprintf("read %s: %s: this file and all after it were not read; give fewer, or unpack it first", name, l.excess(err)))
}

// excess says which limit was reached.
func (l *loader) excess(err error) string {
	if errors.Is(err, errRatio) {
		return fmt.Sprintf("it unpacks to more than %d times its size", maxRatio)
	}
	return fmt.Sprintf("the inputs hold more than %d MiB", l.totalBytes>>20)
}

// zipEntries is not less than the number of files that a zip archive lists. Who opens it makes some hundred bytes
// of each, which may be 46 bytes in the archive.
func zipEntries(data []byte) int { return bytes.Count(data, []byte("PK\x01\x02")) }
