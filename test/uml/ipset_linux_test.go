package uml

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	// What is built and run in the guest: named here so that a result of before a change is not taken again.
	_ "github.com/svcnet/svcnet/explain/ipset"
)

// TestSetsOfEveryType runs the test of explain/ipset against the kernel where all types of sets are there, which the
// kernel of a test machine may lack.
func TestSetsOfEveryType(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	inside := t.TempDir() + "/inside"
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", inside, "github.com/svcnet/svcnet/explain/ipset")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	// IPv6 is a module there, and commands of iproute2 do not load it.
	out, err := Boot(ctx, "modprobe ipv6\n"+inside+" -test.run '^TestKernel$' -test.v -test.short\n")
	if err != nil || !strings.Contains(out, " packets, ") || strings.Contains(out, "this kernel lacks") {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, " packets, ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
