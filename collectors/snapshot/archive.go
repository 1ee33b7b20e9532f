package snapshot

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// archiveOf returns what opens data that begins with head, nil when it is no archive.
func archiveOf(head []byte) func(l *loader, name string, in io.Reader, nesting int) {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return (*loader).gunzip
	case bytes.HasPrefix(head, []byte("BZh")) && len(head) > 4 && isDigit(head[3]):
		return (*loader).bunzip2
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return (*loader).unzip
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return closed("xz")
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return closed("zstd")
	case len(head) >= 262 && string(head[257:262]) == "ustar":
		return (*loader).untar
	}
	return nil
}

func closed(method string) func(*loader, string, io.Reader, int) {
	return func(l *loader, name string, _ io.Reader, _ int) {
		l.add(Evidence{File: name, Status: Unsupported, Error: "not recognised: compressed with " + method + "; unpack it first"})
	}
}

func (l *loader) gunzip(name string, in io.Reader, nesting int) {
	z, err := gzip.NewReader(in)
	if err != nil {
		l.readFailed(name, err)
		return
	}
	l.count-- // the file and what it unpacks to are one
	l.stream(name, l.unpacked(z), nesting)
}

func (l *loader) bunzip2(name string, in io.Reader, nesting int) {
	l.count--
	l.stream(name, l.unpacked(bzip2.NewReader(in)), nesting)
}

// untar goes through a tar archive. Only files count: links and devices lead outside or nowhere.
func (l *loader) untar(name string, in io.Reader, nesting int) {
	end := &zeroTail{r: in}
	t := tar.NewReader(end)
	for files := 0; !l.full && l.fatal == nil; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && end.zeros < tarBlock {
			err = errors.New("the archive ends without its end mark")
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.damaged(name, files, err)
			return
		}
		inner, ok := innerName(h.Name)
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		var r io.Reader = t
		if files++; files == 1 && inner == manifestName {
			data, err := io.ReadAll(io.LimitReader(t, maxManifest))
			if err != nil {
				l.damaged(name, files, err)
				return
			}
			if isManifest(data) {
				l.readBundleTar(name, data, t, end)
				return
			}
			r = io.MultiReader(bytes.NewReader(data), t)
		}
		l.stream(name+":"+inner, r, nesting)
	}
}

// tarBlock is the unit of a tar archive in bytes. Two blocks of zeros end it; one is taken for an end too.
const tarBlock = 512

// zeroTail counts the zeros at the end of what was read: the tar reader takes an archive that was cut
// between two members for a whole one.
type zeroTail struct {
	r     io.Reader
	zeros int
}

func (z *zeroTail) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	if kept := len(bytes.TrimRight(p[:n], "\x00")); kept > 0 {
		z.zeros = n - kept
	} else {
		z.zeros += n
	}
	return n, err
}

func (l *loader) unzip(name string, in io.Reader, nesting int) {
	data, cut, err := l.take(in)
	if err == nil && cut {
		err = fmt.Errorf("it is longer than %d MiB", l.fileBytes>>20)
	}
	if err != nil {
		l.readFailed(name, err)
		return
	}
	if zipEntries(data) > 2*l.files {
		l.stop(name, fmt.Sprintf("read %s: it lists more than %d files: nothing of it was read; give fewer", name, l.files))
		return
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		l.readFailed(name, err)
		return
	}
	files := slices.Clone(z.File)
	slices.SortStableFunc(files, func(a, b *zip.File) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range files {
		inner, ok := innerName(f.Name)
		if !ok || !f.Mode().IsRegular() {
			continue
		}
		if l.full || l.fatal != nil {
			return
		}
		shown := name + ":" + inner
		r, err := f.Open()
		if err != nil {
			l.add(unreadable(shown, readError(shown, err)))
			continue
		}
		l.stream(shown, l.unpacked(r), nesting)
		r.Close()
	}
}

// damaged records that an archive ends too early or is broken: what is missing may be anything.
func (l *loader) damaged(name string, files int, err error) {
	if l.full {
		return
	}
	if tooMuch(err) {
		l.stopTotal(name, err)
		return
	}
	l.add(Evidence{File: name, Status: Truncated, Error: fmt.Sprintf("read %s: %v after %d files: the rest was not read; copy the archive again", name, err, files)})
}

// innerName is the name of an archive's member as it is shown: relative, with no way up. It is false for
// hidden files.
func innerName(member string) (string, bool) {
	inner := strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(member, `\`, "/")), "/")
	if inner == "" {
		return "", false
	}
	for part := range strings.SplitSeq(inner, "/") {
		if isHidden(part) {
			return "", false
		}
	}
	return inner, true
}
