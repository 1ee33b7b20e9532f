package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// bundled is a snapshot with every kind of evidence that there is.
func bundled() *Snapshot {
	s := &Snapshot{
		Node: "node-1", Tool: "v0.1.0", Captured: "2026-01-05T10:00:00Z",
		Evidence: []Evidence{
			{File: "-", Format: IPRoute, Family: 4, Status: OK, Data: []byte(routeText)},
			{File: "-", Format: IPTablesSave, Family: 4, Backend: "nft", Status: OK, Data: []byte("\n" + saveText)},
			{File: "a.tgz:n1/iptables-save.txt", Format: IPTablesSave, Family: 4, Backend: "legacy", Status: OK, Data: []byte(saveText), Note: "converted from UTF-16"},
			{File: "conntrack.txt", Format: Conntrack, Status: Empty, Note: "the file is empty"},
			{File: "ip6tables-save.txt", Format: IPTablesSave, Family: 6, Status: Denied, Error: "read ip6tables-save.txt: permission denied; run as root"},
			{File: "nft.nl", Format: NFTNetlink, Status: Truncated, Error: "read nft.nl: cut", Data: []byte(NetlinkMagic + "\n\n\x00\xff\xfe")},
			{File: "ipset-save.txt", Format: IPSetSave, Status: OK, Data: []byte("create a hash:ip\n")},
			{File: "nft.txt", Format: NFTText, Status: OK, Data: []byte(nftText)},
			{File: "objects.yaml", Format: Objects, Status: Truncated, Error: "read objects.yaml: cut", Data: []byte(nodeText)},
			{File: "x.png", Status: Unsupported, Error: "not recognised: binary data"},
		},
	}
	s.Arrange()
	return s
}

func bundle(t *testing.T, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteBundle(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked is a tar archive as a file system.
func unpacked(t *testing.T, data []byte) fstest.MapFS {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = &fstest.MapFile{Data: text}
	}
}

func TestBundleRoundTrip(t *testing.T) {
	want := bundled()
	data := bundle(t, want)
	got, err := Load([]string{"-"}, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if again := bundle(t, got); !bytes.Equal(data, again) {
		t.Error("the bundle of what was read has other bytes")
	}
	folder, err := LoadFS(unpacked(t, data), "demo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, folder); diff != "" {
		t.Errorf("unpacked (-written +read):\n%s", diff)
	}
}

// What Load read of loose files, a bundle of it gives again.
func TestBundleOfRecordedFiles(t *testing.T) {
	files := fstest.MapFS{}
	for _, f := range captured(t) {
		files[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	want, err := LoadFS(files, "recorded")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load([]string{"-"}, bytes.NewReader(bundle(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-loose +bundle):\n%s", diff)
	}
}

func TestBundleBytes(t *testing.T) {
	s := bundled()
	data := bundle(t, s)
	other := &Snapshot{Node: s.Node, Tool: s.Tool, Captured: s.Captured, Evidence: slices.Clone(s.Evidence)}
	slices.Reverse(other.Evidence)
	if !bytes.Equal(data, bundle(t, other)) {
		t.Error("the order of the evidence shows in the bytes")
	}
	if other.Evidence[0].File != "x.png" {
		t.Error("writing changed the snapshot")
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if z.Name != "" || !z.ModTime.IsZero() {
		t.Errorf("gzip header: %q %v", z.Name, z.ModTime)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Uname != "" || h.Mode != 0o644 {
			t.Errorf("%s: %v", h.Name, h)
		}
		names = append(names, h.Name)
	}
	want := []string{"manifest.json", "evidence/0001--", "evidence/0002--", "evidence/0003-iptables-save.txt", "evidence/ipset-save.txt", "evidence/nft.nl", "evidence/nft.txt", "evidence/objects.yaml"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestBundleVersions(t *testing.T) {
	manifest := func(version, rest string) []byte {
		return tarOf(t, member{name: "manifest.json", text: `{"apiVersion":"svcnet.dev/v2","kind":"Bundle","formatVersion":"` + version + `","evidence":[` + rest + `]}`},
			member{name: "evidence/1", text: saveText})
	}
	for _, tt := range []struct{ version, want string }{
		{"1.0", ""}, {"1.7", ""},
		{"2.0", "read bundle -: its format 2.0 is newer than this program, which reads 1.x; use a newer svcnet"},
		{"x", `read bundle -: its manifest has no format version that makes sense ("x"); collect it again`},
		{"", `read bundle -: its manifest has no format version that makes sense (""); collect it again`},
	} {
		_, err := Load([]string{"-"}, bytes.NewReader(manifest(tt.version, `{"file":"a","format":"iptables-save","status":"ok","data":"evidence/1","new":true}`)))
		if got := errText(err); got != tt.want {
			t.Errorf("version %q: %s, want %s", tt.version, got, tt.want)
		}
	}
	t.Run("what an older program did not evaluate", func(t *testing.T) {
		s, err := Load([]string{"-"}, bytes.NewReader(manifest("1.0", `{"file":"a","format":"iptables-save","status":"unsupported","error":"not yet","data":"evidence/1"},{"file":"b","format":"bpftool map dump","status":"ok","data":"evidence/1"}`)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a|iptables-save|ok", "b|bpftool map dump|unsupported"}, table(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("a broken manifest", func(t *testing.T) {
		_, err := Load([]string{"-"}, bytes.NewReader(tarOf(t, member{name: "manifest.json", text: `{"apiVersion":"svcnet.dev/v1","kind":"Bundle","formatVersion":"1.0","evidence":7}`})))
		if err == nil || !strings.HasPrefix(err.Error(), "read bundle -: read its manifest: ") {
			t.Error(err)
		}
	})
	t.Run("a manifest of something else", func(t *testing.T) {
		s, err := Load([]string{"-"}, bytes.NewReader(tarOf(t, member{name: "manifest.json", text: `{"layers":[]}`}, member{name: "a.txt", text: saveText})))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"-:a.txt|iptables-save|ok", "-:manifest.json||unsupported"}, table(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("two bundles", func(t *testing.T) {
		b := string(bundle(t, bundled()))
		_, err := LoadFS(fstest.MapFS{"a.tgz": {Data: []byte(b)}, "b.tgz": {Data: []byte(b)}}, "demo")
		if got := errText(err); got != "read bundle b.tgz: a second bundle; a snapshot is of one node at one moment: give one, or compare two with diff" {
			t.Error(got)
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Data that the manifest promises and the bundle lacks was not "not there" on the node.
func TestBundleLacksData(t *testing.T) {
	manifest := `{"apiVersion":"svcnet.dev/v1alpha1","kind":"Bundle","formatVersion":"1.0","node":"n","evidence":[
{"file":"gone","format":"iptables-save","status":"ok","data":"evidence/9"},
{"file":"outside","format":"iptables-save","status":"ok","data":"../outside"},
{"file":"here","format":"iptables-save","status":"ok","data":"evidence/1"}]}`
	want := []string{"gone|iptables-save|failed", "here|iptables-save|ok", "outside|iptables-save|failed"}
	archive := tarOf(t, member{name: "manifest.json", text: manifest}, member{name: "evidence/1", text: saveText}, member{name: "evidence/1", text: "again"})
	for name, load := range map[string]func() (*Snapshot, error){
		"archive": func() (*Snapshot, error) { return Load([]string{"-"}, bytes.NewReader(archive)) },
		"cut off": func() (*Snapshot, error) {
			return Load([]string{"-"}, bytes.NewReader(archive[:len(archive)-2048]))
		},
		"folder": func() (*Snapshot, error) {
			return LoadFS(fstest.MapFS{"manifest.json": {Data: []byte(manifest)}, "evidence/1": {Data: []byte(saveText)}}, "demo")
		},
	} {
		s, err := load()
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, table(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, e := range s.Evidence {
			if (e.Status == Failed) != (e.Error != "") {
				t.Errorf("%s: %s: %s %q", name, e.File, e.Status, e.Error)
			}
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fs.ErrInvalid }

func TestWriteBundleError(t *testing.T) {
	if err := bundled().WriteBundle(full{}); !errors.Is(err, fs.ErrInvalid) || !strings.HasPrefix(err.Error(), "write bundle: ") {
		t.Error(err)
	}
}
