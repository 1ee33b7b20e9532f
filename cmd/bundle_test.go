package cmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// ended is what one run of the program left.
type ended struct {
	code     int
	out, err string
}

// started runs the program without a terminal and without an environment.
func started(t *testing.T, stdin string, args ...string) ended {
	t.Helper()
	var out, said bytes.Buffer
	code := Execute(context.Background(), append([]string{"svcnet"}, args...), Streams{In: strings.NewReader(stdin), Out: &out, Err: &said},
		func(string) string { return "" })
	return ended{code, out.String(), said.String()}
}

// collectedFrom is the bundle that collect writes with these arguments.
func collectedFrom(t *testing.T, args ...string) string {
	t.Helper()
	e := started(t, "", append([]string{"collect", "-o", "-"}, args...)...)
	if e.code != 0 || e.err != "" {
		t.Fatalf("collect %v: exit %d: %s", args, e.code, e.err)
	}
	return e.out
}

// membersOf are the names and contents of a bundle's files.
func membersOf(t *testing.T, bundle string) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(bundle))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// TestBundleReports: the reports in a bundle are what audit says of it, here and there, and of its files without it.
func TestBundleReports(t *testing.T) {
	nftables, err := filepath.Abs("../test/recorded/testdata/kube-proxy-1.36-nftables")
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string][]string{"iptables": {"--demo"}, "nftables": {"-f", nftables}} {
		t.Run(name, func(t *testing.T) {
			bundle := collectedFrom(t, from...)
			if again := collectedFrom(t, from...); again != bundle {
				t.Error("the same evidence gave other bytes")
			}
			files := membersOf(t, bundle)
			for format, file := range map[string]string{"json": "report.json", "tree": "report.txt"} {
				said := started(t, bundle, "audit", "-o", format, "-f", "-")
				if said.err != "" {
					t.Errorf("audit of the bundle: %s", said.err)
				}
				got := strings.TrimPrefix(files[file], snapshot.RenderedMark+"\n\n")
				if diff := cmp.Diff(said.out, got); diff != "" {
					t.Errorf("%s is not what audit says of the bundle (-audit +file):\n%s", file, diff)
				}
				if direct := started(t, "", append([]string{"audit", "-o", format}, from...)...); direct.out != said.out {
					t.Errorf("-o %s: of the bundle something else is said than of its files", format)
				}
			}
			if strings.Count(files["report.json"], "\n") != 1 {
				t.Error("report.json is not one line")
			}
			if files["version"] != versionText()+"\n" {
				t.Errorf("version %q", files["version"])
			}
			// A bundle of the bundle is the bundle.
			dir := t.TempDir()
			file := filepath.Join(dir, "b.tar.gz")
			if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
				t.Fatal(err)
			}
			if again := collectedFrom(t, "-f", file); again != bundle {
				t.Error("a bundle of the bundle has other bytes")
			}
			_, rules := files["text/nft.txt"]
			if want := name == "nftables"; rules != want {
				t.Errorf("rules as text: %v, want %v", rules, want)
			}
			if rules && !strings.Contains(files["text/nft.txt"], "table ip kube-proxy {") {
				t.Error("the rules as text lack kube-proxy's table")
			}
			bare := membersOf(t, collectedFrom(t, append([]string{"--no-report"}, from...)...))
			for file := range bare {
				if file != "manifest.json" && !strings.HasPrefix(file, "evidence/") {
					t.Errorf("with --no-report there is %s", file)
				}
			}
		})
	}
}

// TestBadBundles: exit codes, and one line where no document can be made.
func TestBadBundles(t *testing.T) {
	bundle := collectedFrom(t, "--demo")
	for _, tt := range []struct {
		name  string
		input func() string
		code  int
		says  string
	}{
		{"cut", func() string { return bundle[:len(bundle)/2] }, 4, ""},
		{"cut in its manifest", func() string { return bundle[:200] }, 1, "error: read -: "},
		{"changed", func() string {
			return repacked(t, bundle, "evidence/iptables-save.txt", func(s string) string { return s[:len(s)/2] })
		}, 4, ""},
		{"no bundle", func() string {
			return repacked(t, bundle, "manifest.json", func(string) string { return `{"layers":[]}` })
		}, 3, ""},
		{"photos", func() string {
			return archived(t, [2]string{"a.jpg", "\xff\xd8\xff\xe0\x00"}, [2]string{"notes.txt", "milk\n"})
		}, 1,
			"error: read -:a.jpg: neither it nor any of the 1 files beside it is evidence of a node (binary data, not text that a command prints); give captures of a node, or what `svcnet collect` wrote\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := started(t, tt.input(), "audit", "-o", "json", "-f", "-")
			if got.code != tt.code {
				t.Errorf("exit %d, want %d: %s", got.code, tt.code, got.err)
			}
			if tt.code == 1 {
				if got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, tt.says) {
					t.Errorf("standard output %q, standard error %q", got.out, got.err)
				}
			} else if got.err != "" || strings.Count(got.out, "\n") != 1 {
				t.Errorf("a document of %d lines, standard error %q", strings.Count(got.out, "\n"), got.err)
			}
		})
	}
}

// repacked is a bundle in which one file holds something else.
func repacked(t *testing.T, bundle, file string, change func(string) string) string {
	t.Helper()
	files := membersOf(t, bundle)
	if _, ok := files[file]; !ok {
		t.Fatalf("the bundle has no %s", file)
	}
	members := [][2]string{{"manifest.json", files["manifest.json"]}}
	for name, text := range files {
		if name != "manifest.json" {
			members = append(members, [2]string{name, text})
		}
	}
	for i := range members {
		if members[i][0] == file {
			members[i][1] = change(members[i][1])
		}
	}
	return archived(t, members...)
}

func archived(t *testing.T, members ...[2]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m[0], Typeflag: tar.TypeReg, Size: int64(len(m[1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
