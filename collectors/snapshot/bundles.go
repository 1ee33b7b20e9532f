package snapshot

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
)

// Bundle is where a bundle is, and what its manifest says of it.
type Bundle struct {
	// Path is one to give to Load.
	Path string
	// Node and Captured (RFC 3339) are empty where the manifest does not say.
	Node, Captured string
}

// Bundles finds the bundles among paths: archives, folders into which one was unpacked, and those that lie in a folder
// which holds nothing else. Others are the paths that are none, in their order. Only manifests are read, and what
// cannot be read is no bundle: Load says why.
func Bundles(paths []string) (bundles []Bundle, others []string) {
	for _, p := range withoutMembers(paths) {
		found := bundlesAt(p)
		if len(found) == 0 {
			others = append(others, p)
		}
		bundles = append(bundles, found...)
	}
	return bundles, others
}

// bundlesAt are the bundles that one path of the command line names.
func bundlesAt(p string) []Bundle {
	if p == "-" {
		return nil // it can be read once, by Load
	}
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return nil
	case info.Mode().IsRegular():
		if dir := unpackedAt(p); dir != "" {
			return bundleFolder(dir)
		}
		return bundleFile(p)
	case !info.IsDir():
		return nil // a pipe, as "-"
	}
	if b := bundleFolder(p); b != nil {
		return b
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil
	}
	var out []Bundle
	for _, e := range entries { // sorted by name
		if isHidden(e.Name()) {
			continue
		}
		inner := filepath.Join(p, e.Name())
		b := bundleFile(inner)
		if e.IsDir() {
			b = bundleFolder(inner)
		}
		if b == nil {
			return nil // a folder of captures, in which an archive may lie too
		}
		out = append(out, b...)
	}
	return out
}

// bundleFolder is the bundle that was unpacked into dir, nil when none was.
func bundleFolder(dir string) []Bundle {
	contents, ok := newLoader().manifestIn(os.DirFS(dir), ".")
	if !ok {
		return nil
	}
	return bundleOf(dir, contents)
}

// bundleFile is the bundle in an archive, nil when it is none.
func bundleFile(p string) []Bundle {
	if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(p)
	if err != nil {
		return nil
	}
	defer f.Close()
	var r io.Reader = bufio.NewReader(f)
	if z, err := gzip.NewReader(r); err == nil {
		r = z
	} else if _, err := f.Seek(0, io.SeekStart); err == nil {
		r = bufio.NewReader(f)
	}
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil || h.Typeflag != tar.TypeReg || path.Clean(h.Name) != manifestName {
		return nil
	}
	contents, err := io.ReadAll(io.LimitReader(t, maxManifest))
	if err != nil || !isManifest(contents) {
		return nil
	}
	return bundleOf(p, contents)
}

// bundleOf is nil for a manifest that this program cannot read; Load says why.
func bundleOf(p string, contents []byte) []Bundle {
	m, err := parseManifest(p, contents)
	if err != nil {
		return []Bundle{{Path: p}}
	}
	return []Bundle{{Path: p, Node: m.Node, Captured: m.Captured}}
}
