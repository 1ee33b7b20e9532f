package plugin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// TestPod: what is shown and created, field by field.
func TestPod(t *testing.T) {
	for name, o := range map[string]Options{
		"image":      {Namespace: "kube-system", Image: "example.net/svcnet:v1", PullSecret: "pull", Instance: "0a1b2c3d", Timeout: 2 * time.Minute},
		"copy":       {Namespace: "debug", Image: "busybox", Binary: "/usr/bin/svcnet", Pods: []string{"a/b"}, Instance: "0a1b2c3d", Timeout: time.Minute},
		"privileged": {Namespace: "kube-system", Image: "example.net/svcnet:v1", Privileged: true, Instance: "0a1b2c3d", Timeout: 2 * time.Minute},
	} {
		got, err := yaml.Marshal(Pod(podName(o.Instance, 7), "node-1", o))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCommand: what is asked of the pod.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "/kubectl-svcnet collect --output=- --root=/host --no-api --no-report --node=n1"},
		{Options{Binary: "x", Silent: true}, "/svcnet/svcnet collect --output=- --root=/host --no-api --no-report --node=n1 --silent"},
		{Options{Pods: []string{"a/b", "c/d"}}, "/kubectl-svcnet collect --output=- --root=/host --no-api --no-report --node=n1 --pod=a/b --pod=c/d --live --filename=-"},
	} {
		if got := strings.Join(c.o.command("n1"), " "); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestCheckBinary: a static Linux program will do; a text is none.
func TestCheckBinary(t *testing.T) {
	if a, err := CheckBinary(ownBinary(t)); a != "amd64" || err != nil {
		t.Errorf("%q, %v", a, err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		text:                             "it is no Linux program",
		filepath.Join(text, "not-there"): "copy the program open",
	} {
		if _, err := CheckBinary(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// ownBinary is a file that passes for a static program for amd64: an ELF header, and nothing behind it.
func ownBinary(t *testing.T) string {
	t.Helper()
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "svcnet")
	if err := os.WriteFile(file, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDocumented: the page tells what the pod may, and for what.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Capabilities {
		if line := "| " + string(c.Name) + " | " + c.For + " |\n"; !strings.Contains(string(page), line) {
			t.Errorf("docs/nodes.md lacks the line %s", line)
		}
	}
}
