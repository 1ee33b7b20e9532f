package plugin

import (
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
		{Options{}, "svcnet collect --output=- --no-report --root=/host --no-api --node=n1"},
		{Options{Binary: "x", Silent: true}, "/svcnet/svcnet collect --output=- --no-report --root=/host --no-api --node=n1 --silent"},
		{Options{Pods: []string{"a/b", "c/d"}}, "svcnet collect --output=- --no-report --root=/host --no-api --node=n1 --pod=a/b --pod=c/d --live --filename=-"},
	} {
		if got := strings.Join(c.o.command("n1"), " "); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestCheckBinary: this test is a Linux program; a text is none.
func TestCheckBinary(t *testing.T) {
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
