package snapshot

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hostile is an archive that somebody made to do harm, or that was harmed, with the one line that is said of it: as the
// error, or as that of the only evidence which is no answer.
type hostile struct {
	name string
	// write makes it.
	write func(t *testing.T, w io.Writer)
	// says is what the line holds.
	says string
	// refused: nothing is left that could be looked at.
	refused bool
	// growth is what reading it may add to the heap at most, in bytes; 0 means the 16 MiB that are free, twice,
	// because a file is put together from pieces.
	growth uint64
}

func hostiles() []hostile {
	const mebi = 1 << 20
	bundled := func(manifest string, members ...member) func(*testing.T, io.Writer) {
		return func(t *testing.T, w io.Writer) {
			text := `{"apiVersion":"svcnet.dev/v1alpha1","kind":"Bundle","formatVersion":"1.1","node":"n","evidence":[` + manifest + `]}`
			copied(t, w, gzipped(t, tarOf(t, append([]member{{name: "manifest.json", text: text}}, members...)...)))
		}
	}
	rules := `{"file":"iptables-save.txt","format":"iptables-save","family":4,"status":"ok","data":"evidence/iptables-save.txt"}`
	sum := strings.Replace(rules, `}`, `,"sha256":"`+strings.Repeat("0", 64)+`"}`, 1)
	good := strings.Replace(rules, `}`, `,"sha256":"`+checksum([]byte(saveText))+`"}`, 1)
	data := func(text string) member { return member{name: "evidence/iptables-save.txt", text: text} }
	return []hostile{
		{
			name:  "rules that unpack to a thousand times their size",
			write: func(t *testing.T, w io.Writer) { bomb(t, w, "iptables-save.txt", saveText, 300*mebi) },
			says:  "it unpacks to more than 100 times its size",
			// A file of a MiB at most, which may become 116.
			growth: 2 * 116 * mebi,
		},
		{
			name: "a small bundle with the same", refused: true,
			write: func(t *testing.T, w io.Writer) {
				z := gzip.NewWriter(w)
				a := tar.NewWriter(z)
				text := []byte(`{"apiVersion":"svcnet.dev/v1alpha1","kind":"Bundle","formatVersion":"1.1","evidence":[` + rules + `]}`)
				head(t, a, "manifest.json", int64(len(text)))
				copied(t, a, text)
				head(t, a, "evidence/iptables-save.txt", 100*mebi)
				repeated(t, a, saveText, 100*mebi)
				closing(t, a, z)
			},
			says:   "it unpacks to more than 100 times its size, which no bundle of svcnet does; collect it again",
			growth: 2 * 64 * mebi,
		},
		{
			name: "zeros that are no evidence", refused: true,
			write: func(t *testing.T, w io.Writer) { bomb(t, w, "zeros", "\x00", 300*mebi) },
			says:  "it unpacks to more than 100 times its size",
		},
		{
			name: "a file with a hole",
			write: func(t *testing.T, w io.Writer) {
				copied(t, w, gzipped(t, sparse(t, strings.Repeat(saveText, 1+2*headBytes/len(saveText)), 400*mebi)))
			},
			says: "it unpacks to more than 100 times its size",
		},
		{
			name: "a zip of rules",
			write: func(t *testing.T, w io.Writer) {
				z := zip.NewWriter(w)
				for i := range 3 {
					f, err := z.Create(fmt.Sprintf("%d.txt", i))
					if err != nil {
						t.Fatal(err)
					}
					repeated(t, f, saveText, 50*mebi)
				}
				closing(t, z)
			},
			says:   "it unpacks to more than 100 times its size",
			growth: 2 * 96 * mebi,
		},
		{
			name: "a zip that lists one file over and over", refused: true,
			write: func(t *testing.T, w io.Writer) {
				entry := append([]byte("PK\x01\x02"), make([]byte, 42)...)
				copied(t, w, []byte("PK\x03\x04"))
				repeated(t, w, string(entry), 46*300_000)
				copied(t, w, append([]byte("PK\x05\x06"), make([]byte, 18)...))
			},
			says:   "it lists more than 100000 files: nothing of it was read; give fewer",
			growth: 3 * 16 * mebi,
		},
		{
			name: "archives within archives", refused: true,
			write: func(t *testing.T, w io.Writer) {
				inner := gzipped(t, bytes.Repeat([]byte{0}, mebi))
				for range 6 {
					inner = gzipped(t, tarOf(t, data("x"), member{name: "next.tgz", text: string(inner)}))
				}
				copied(t, w, inner)
			},
			says: "is evidence of a node",
		},
		{
			name: "a million files", refused: true,
			write: func(t *testing.T, w io.Writer) {
				z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
				if err != nil {
					t.Fatal(err)
				}
				a := tar.NewWriter(z)
				for i := range 1_000_000 {
					head(t, a, fmt.Sprintf("f%d", i), 1)
					copied(t, a, []byte("x"))
				}
				closing(t, a, z)
			},
			says: "there are more than 100000 files: this one and all after it were not read; give fewer",
			// A line for each of the files that were looked at.
			growth: 96 * mebi,
		},
		{
			name: "a manifest of a million pieces", refused: true,
			write:  bundled(strings.TrimSuffix(strings.Repeat("{},", 1_000_000), ",")),
			says:   "it lists more than 100000 files",
			growth: 96 * mebi,
		},
		{
			name: "one file that the manifest names a thousand times", refused: true,
			write: bundled(rules+strings.Repeat(","+rules, 1000), data(strings.Repeat(saveText, 1000))),
			says:  "it unpacks to more than 100 times its size, which no bundle of svcnet does",
		},
		{
			name:  "a way up in the manifest",
			write: bundled(strings.Replace(rules, "evidence/", "evidence/../../../etc/", 1), data(saveText)),
			says:  "read iptables-save.txt: the manifest names a file outside of the bundle; collect it again",
		},
		{
			name:  "a way up in the archive",
			write: bundled(rules, member{name: "../../evidence/iptables-save.txt/../x", text: saveText}),
			says:  "read iptables-save.txt: the bundle does not hold its data; collect it again",
		},
		{
			name:  "a link",
			write: bundled(rules, member{name: "evidence/iptables-save.txt", text: "/etc/passwd", kind: tar.TypeSymlink}),
			says:  "read iptables-save.txt: in the bundle it is no file but a link or a device, which nobody follows; collect it again",
		},
		{
			name:  "a hard link",
			write: bundled(rules, member{name: "evidence/iptables-save.txt", text: "/etc/passwd", kind: tar.TypeLink}),
			says:  "read iptables-save.txt: in the bundle it is no file but a link or a device, which nobody follows; collect it again",
		},
		{
			name:  "a wrong checksum",
			write: bundled(sum, data(saveText)),
			says:  "read iptables-save.txt: its bytes are not those that were collected (its checksum differs): the bundle was changed or damaged; collect it again",
		},
		{
			name: "cut within its data",
			write: func(t *testing.T, w io.Writer) {
				var b bytes.Buffer
				bundled(good, data(saveText))(t, &b)
				copied(t, w, b.Bytes()[:b.Len()-60])
			},
			says: "copy the bundle again",
		},
		{
			name: "cut before its data",
			write: func(t *testing.T, w io.Writer) {
				tarball := tarOf(t, member{name: "manifest.json", text: `{"apiVersion":"svcnet.dev/v1alpha1","kind":"Bundle","formatVersion":"1.1","evidence":[` + good + `]}`}, data(saveText))
				copied(t, w, gzipped(t, tarball[:1024]))
			},
			says: "read iptables-save.txt: the bundle ends before its data; copy it again",
		},
		{
			name: "somebody's photos", refused: true,
			write: func(t *testing.T, w io.Writer) {
				copied(t, w, gzipped(t, tarOf(t, member{name: "a.jpg", text: "\xff\xd8\xff\xe0\x00\x10JFIF\x00"},
					member{name: "b/notes.txt", text: "milk\nbread\n"})))
			},
			says: "is evidence of a node (",
		},
	}
}

// TestHostile reads each of them from a file and watches the heap meanwhile.
func TestHostile(t *testing.T) {
	dir := t.TempDir()
	for i, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			file := filepath.Join(dir, fmt.Sprintf("%d.tar.gz", i))
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			h.write(t, f)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(file)
			var s *Snapshot
			peak := heapOf(func() { s, err = Load([]string{file}, nil) })
			if allowed := max(h.growth, 2*freeBytes); peak > allowed {
				t.Errorf("the heap grew by %d MiB, allowed are %d", peak>>20, allowed>>20)
			}
			if (err != nil) != h.refused {
				t.Errorf("refused: %v, want %v", err, h.refused)
			}
			var lines []string
			if err != nil {
				lines = append(lines, err.Error())
			} else {
				for _, e := range s.Evidence {
					if !e.Status.Answers() {
						lines = append(lines, e.Error)
					}
				}
			}
			if len(lines) != 1 || !strings.Contains(lines[0], h.says) || strings.Contains(lines[0], "\n") || !strings.HasPrefix(lines[0], "read ") {
				t.Errorf("%d lines, want one that holds %q:\n%s", len(lines), h.says, cut(strings.Join(lines, "\n"), 2000))
			}
		})
	}
}

// heapOf is by how many bytes the heap grew at most while f ran, garbage included as far as the collector left it.
func heapOf(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.HeapInuse
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := before
		for {
			select {
			case <-done:
				peak <- most - before
				return
			case <-time.After(time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
		}
	}()
	f()
	close(done)
	return <-peak
}

// bomb writes a gzipped tar archive with one file: text again and again, size bytes of it.
func bomb(t *testing.T, w io.Writer, name, text string, size int64) {
	t.Helper()
	z := gzip.NewWriter(w)
	a := tar.NewWriter(z)
	head(t, a, name, size)
	repeated(t, a, text, size)
	head(t, a, "last.txt", 0)
	closing(t, a, z)
}

// sparse is a tar archive with a file of text and then a hole, of size bytes together: a kilobyte.
func sparse(t *testing.T, text string, size int64) []byte {
	t.Helper()
	// The map of GNU's format 1.0 stands before the data: how many pieces, and the offset and length of each.
	sparseMap := fmt.Sprintf("1\n0\n%d\n", len(text))
	body := append([]byte(sparseMap), make([]byte, tarBlock-len(sparseMap))...)
	body = append(body, text...)
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=iptables-save.txt", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		records += fmt.Sprintf("%d %s\n", len(r)+4, r) // two digits, blank, line end
	}
	var b bytes.Buffer
	block := func(kind byte, name string, data []byte) {
		h := make([]byte, tarBlock)
		copy(h, name)
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", len(data)))
		h[156] = kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
		b.Write(data)
		b.Write(make([]byte, (tarBlock-len(data)%tarBlock)%tarBlock))
	}
	block('x', "pax", []byte(records))
	block('0', "iptables-save.txt", body)
	block('0', "notes.txt", []byte("x"))
	b.Write(make([]byte, 2*tarBlock))
	return b.Bytes()
}

func head(t *testing.T, a *tar.Writer, name string, size int64) {
	t.Helper()
	if err := a.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
}

func copied(t *testing.T, w io.Writer, data []byte) {
	t.Helper()
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
}

// repeated writes size bytes of text after text.
func repeated(t *testing.T, w io.Writer, text string, size int64) {
	t.Helper()
	chunk := []byte(strings.Repeat(text, 1+(1<<16)/len(text)))
	for size > 0 {
		chunk = chunk[:min(int64(len(chunk)), size)]
		copied(t, w, chunk)
		size -= int64(len(chunk))
	}
}

func closing(t *testing.T, closers ...io.Closer) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnpackedHostile: folders into which somebody's bundle or archive was unpacked, with links that lead elsewhere.
func TestUnpackedHostile(t *testing.T) {
	dir := t.TempDir()
	manifest := `{"apiVersion":"svcnet.dev/v1alpha1","kind":"Bundle","formatVersion":"1.1","evidence":[
{"file":"a.txt","format":"iptables-save","status":"ok","data":"evidence/a.txt"},
{"file":"b.txt","format":"iptables-save","status":"ok","data":"evidence/sub/b.txt"}]}`
	write(t, dir, map[string]string{"secret.txt": saveText, "bundle/manifest.json": manifest, "bundle/evidence/x": "", "loose/ip-route.txt": routeText})
	for link, target := range map[string]string{
		"bundle/evidence/a.txt": "../../secret.txt", "bundle/evidence/sub": "../..", "loose/iptables-save.txt": "../secret.txt", "loose/up": "..",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skipf("links: %v", err)
		}
	}
	for folder, want := range map[string][]string{
		"bundle": {
			"a.txt|read a.txt: in the bundle it is no file but a link or a device, which nobody follows; collect it again",
			"b.txt|read b.txt: in the bundle it is no file but a link or a device, which nobody follows; collect it again",
		},
		"loose": {
			"ip-route.txt|",
			"iptables-save.txt|not recognised: a link that leads out of the folder; give what it points to",
			"up|not recognised: a link that leads out of the folder; give what it points to",
		},
	} {
		var got []string
		for _, e := range mustLoad(t, filepath.Join(dir, folder)).Evidence {
			got = append(got, e.File+"|"+e.Error)
			if strings.Contains(string(e.Data), "*nat") {
				t.Errorf("%s: %s: what lies outside was read", folder, e.File)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", folder, diff)
		}
	}
}

// TestRendered: texts for people are in the bundle and under a checksum, and nobody reads them back, out of the bundle or
// beside its manifest.
func TestRendered(t *testing.T) {
	want := bundled()
	texts := []Rendered{{"report.txt", []byte(RenderedMark + "\n" + saveText)}, {"text/nft.txt", []byte(RenderedMark + "\n" + nftText)}, {"version", []byte("svcnet v1\n")}}
	var b bytes.Buffer
	if err := want.WriteBundle(&b, texts...); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, b.Bytes())
	for _, r := range texts {
		if !bytes.Equal(files[r.File].Data, r.Text) || !bytes.Contains(files["manifest.json"].Data, []byte(checksum(r.Text))) {
			t.Errorf("%s is not there as it was given, with its checksum", r.File)
		}
	}
	dir := t.TempDir()
	var all []string
	for name, f := range files {
		write(t, dir, map[string]string{name: string(f.Data)})
		all = append(all, filepath.Join(dir, strings.Split(name, "/")[0]))
	}
	for name, load := range map[string]func() (*Snapshot, error){
		"archive":     func() (*Snapshot, error) { return Load([]string{"-"}, bytes.NewReader(b.Bytes())) },
		"folder":      func() (*Snapshot, error) { return Load([]string{dir}, nil) },
		"all by name": func() (*Snapshot, error) { return Load(all, nil) },
	} {
		got, err := load()
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
	s, err := LoadFS(fstest.MapFS{"nft.txt": files["text/nft.txt"], "report.txt": files["report.txt"], "ip-route.txt": {Data: []byte(routeText)}}, "loose")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ip-route.txt|ip route|ok", "nft.txt||unsupported", "report.txt||unsupported"}, table(s)); diff != "" {
		t.Errorf("without a manifest (-want +got):\n%s", diff)
	}
}
