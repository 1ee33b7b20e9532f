// Package release has goreleaser check .goreleaser.yaml and make a release from it, and holds it against the program and
// krew.yaml. It is a module of its own: goreleaser's dependencies are no business of the program's.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const root = "../.."

// project is the release as goreleaser reads it. A key that goreleaser does not know is an error.
func project(t *testing.T) config.Project {
	t.Helper()
	p, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRelease(t *testing.T) {
	p := project(t)
	if p.Version != 2 || len(p.Builds) != 1 || len(p.Archives) != 1 || len(p.DockersV2) != 1 {
		t.Fatalf("version %d, %d builds, %d archives, %d images", p.Version, len(p.Builds), len(p.Archives), len(p.DockersV2))
	}
	b := p.Builds[0]
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"systems", b.Goos, []string{"linux", "darwin", "windows"}},
		{"architectures", b.Goarch, []string{"amd64", "arm64"}},
		{"environment", b.Env, []string{"CGO_ENABLED=0"}},
		{"flags", b.Flags, []string{"-trimpath"}},
		{"linker flags", b.Ldflags, []string{"-s -w"}},
		{"platforms of the image", p.DockersV2[0].Platforms, []string{"linux/amd64", "linux/arm64"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if len(b.Ignore) > 0 || b.ModTimestamp != "{{ .CommitTimestamp }}" {
		t.Errorf("left out: %v; time %q", b.Ignore, b.ModTimestamp)
	}
	if p.Checksum.NameTemplate != "checksums.txt" || len(p.SBOMs) != 1 || len(p.Signs) != 1 || p.Signs[0].Artifacts != "checksum" {
		t.Errorf("checksums %q, %d SBOMs, signatures %+v", p.Checksum.NameTemplate, len(p.SBOMs), p.Signs)
	}
	krew, err := os.ReadFile(filepath.Join(root, "krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, goos := range b.Goos {
		for _, goarch := range b.Goarch {
			name := strings.NewReplacer("{{ .Os }}", goos, "{{ .Arch }}", goarch).Replace(p.Archives[0].NameTemplate)
			ending := map[bool]string{true: ".zip", false: ".tar.gz"}[goos == "windows"]
			if !strings.Contains(string(krew), "/"+name+ending+`"`) {
				t.Errorf("krew.yaml has no %s%s", name, ending)
			}
		}
	}
	// What is packed and built is there.
	paths := []string{b.Main, p.DockersV2[0].Dockerfile}
	for _, f := range p.Archives[0].Files {
		paths = append(paths, f.Source)
	}
	for _, path := range paths {
		if found, err := filepath.Glob(filepath.Join(root, path)); err != nil || len(found) == 0 {
			t.Errorf("%s: nothing there (%v)", path, err)
		}
	}
}

// goreleaser runs goreleaser itself in a clone of the project, and returns the folder of the clone. It builds the tool the
// first time, which takes minutes.
func goreleaser(t *testing.T, args ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "svcnet")
	if out, err := exec.Command("git", "clone", "--quiet", "--shared", root, dir).CombinedOutput(); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	tool, err := exec.Command("go", "tool", "-n", "goreleaser").Output()
	if err != nil {
		t.Fatalf("build goreleaser: %v", err)
	}
	cmd := exec.Command(strings.TrimSpace(string(tool)), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("goreleaser %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return dir
}

// TestCheck: goreleaser finds nothing wrong and nothing deprecated.
func TestCheck(t *testing.T) { goreleaser(t, "check") }

// TestSnapshot makes a release of what is committed, but for what needs other programs or the network: images, lists of
// contents, signatures. Every archive holds what it should, and is what checksums.txt says.
func TestSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program for six systems")
	}
	dist := filepath.Join(goreleaser(t, "release", "--snapshot", "--clean", "--skip=docker,sbom,sign"), "dist")
	sums, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	p := project(t)
	if n := strings.Count(string(sums), "\n"); n != len(p.Builds[0].Goos)*len(p.Builds[0].Goarch) {
		t.Errorf("%d archives:\n%s", n, sums)
	}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			t.Errorf("%s is %s, checksums.txt says %s", name, got, sum)
		}
		binary, files := "kubectl-svcnet", namesIn(t, name, data)
		if strings.Contains(name, "_windows_") {
			binary += ".exe"
		}
		for _, want := range []string{binary, "LICENSE", "README.md", "man/kubectl-svcnet.1", "kubectl_complete-svcnet"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s has no %s: %v", name, want, files)
			}
		}
	}
}

// namesIn lists what an archive holds.
func namesIn(t *testing.T, name string, data []byte) (names []string) {
	t.Helper()
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range z.File {
			names = append(names, f.Name)
		}
		return names
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		names = append(names, h.Name)
	}
}

// TestReproducible builds the release for one platform in two places: the same commit gives the same bytes, and they need
// no file of the system.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	b := project(t).Builds[0]
	var sums [2][sha256.Size]byte
	for i := range sums {
		place := filepath.Join(t.TempDir(), fmt.Sprintf("place-%d", i))
		if out, err := exec.Command("git", "clone", "--quiet", "--shared", root, place).CombinedOutput(); err != nil {
			t.Fatalf("clone: %v: %s", err, out)
		}
		args := append([]string{"build"}, b.Flags...)
		args = append(args, "-ldflags", strings.Join(b.Ldflags, " "), "-o", "built", b.Main)
		cmd := exec.Command("go", args...)
		cmd.Dir = place
		cmd.Env = append(os.Environ(), append(slices.Clone(b.Env), "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=readonly")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v: %s", err, out)
		}
		data, err := os.ReadFile(filepath.Join(place, "built"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(data)
		f, err := elf.Open(filepath.Join(place, "built"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Error("the program is not static: it would not run in an empty image")
			}
		}
		f.Close()
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds of one commit differ: %x and %x", sums[0], sums[1])
	}
}
