//go:build guest

package audit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/uml"
)

// sampleSetsInGuest is sampleSets where everything takes its time: kube-proxy starts a program for every entry of a set.
const sampleSetsInGuest = 2

// sampleInGuest is sampleMutants there.
const sampleInGuest = 24

// inGuest is the node that TestIPVS hunts.
var inGuest = quarry{"mutants", "ipvs", lab.Legacy, newIPVS, 2_000_000, 1, "IPVS mode"}

// guestPatience is how long a guest may take for a sample. More than that takes SVCNET_GUEST_MINUTES.
const guestPatience = 15

// TestIPVS is TestRandomObjects and TestMutants in IPVS mode. It is one of the long runs (make full), behind the build tag
// guest: each change takes half a minute. The kernel of a test machine mostly lacks it: both run in
// a guest of package uml, on one lab.
func TestIPVS(t *testing.T) { runInGuest(t, "TestInGuest") }

// runInGuest runs a test of this package in a guest, on a lab of its own.
func runInGuest(t *testing.T, test string) {
	t.Helper()
	if why := uml.Missing(); why != "" {
		t.Skip(why)
	}
	// The guest finds them built.
	if _, err := lab.Binaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := t.TempDir() + "/inside"
	build := exec.CommandContext(t.Context(), "go", "test", "-tags", "guest", "-c", "-o", inside, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var folders []string
	if keep := os.Getenv("SVCNET_AUDIT_KEEP"); keep != "" {
		folders = append(folders, keep)
	}
	g, begin, err := lab.InGuest(folders...)
	if err != nil {
		t.Fatal(err)
	}
	script := begin + "export " + insideFlag + "=1"
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "SVCNET_") {
			script += " '" + v + "'"
		}
	}
	minutes := setting(t, "SVCNET_GUEST_MINUTES", guestPatience)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(minutes)*time.Minute)
	defer cancel()
	out, err := g.Boot(ctx, fmt.Sprintf("%s\nGOGC=400 %s -test.run '^%s$' -test.v -test.timeout %dm\n", script, inside, test, minutes))
	if err != nil || !strings.Contains(out, "\nPASS\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
}

// TestInGuest is what TestIPVS runs: mutants, then random objects, both on one node: all kube-proxies of a guest share a
// CPU.
func TestInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return
	}
	l := inGuest.bring(t, "g")
	defer showLogs(t, l)
	if numbers := inGuest.numbers(t, sampleInGuest); len(numbers) > 0 {
		var h *hunt
		t.Run(inGuest.name, func(t *testing.T) {
			in := &table{name: inGuest.table, scores: map[string]*score{}}
			h = inGuest.hunt(t, l, numbers, in)
			t.Log(in)
		})
		if h == nil {
			return
		}
		h.strike(t)
	}
	if setting(t, "SVCNET_AUDIT_SETS", sampleSetsInGuest) == 0 {
		return
	}
	t.Run("random objects", func(t *testing.T) { randomObjects(t, l, l.Nodes[:1], true, sampleSetsInGuest) })
}

// showLogs shows how the logs of the kube-proxies end when a test has failed, and keeps them in the folder
// SVCNET_AUDIT_KEEP: they go with the guest.
func showLogs(t *testing.T, l *lab.Lab) {
	t.Helper()
	if !t.Failed() {
		return
	}
	folder := os.Getenv("SVCNET_AUDIT_KEEP")
	for _, n := range l.Nodes {
		text, err := os.ReadFile(n.ProxyLog())
		if err != nil {
			continue
		}
		t.Logf("the log of kube-proxy on %s ends:\n%s", n, text[max(0, len(text)-1500):])
		if folder == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, "kube-proxy-"+n.Name+".log"), text, 0o644); err != nil {
			t.Log(err)
		}
	}
}
