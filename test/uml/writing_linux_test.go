package uml

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	// What is built and run in the guest: named here so that a result of before a change is not taken again.
	_ "github.com/svcnet/svcnet/repair/apply"
)

// TestWriting runs what repair/apply does without native tools on a kernel that has IPVS and devices of type dummy,
// beside the native tools.
func TestWriting(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	inside := t.TempDir() + "/inside"
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", inside, "github.com/svcnet/svcnet/repair/apply")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	// IPv6 is a module there, and commands of iproute2 do not load it.
	out, err := Boot(ctx, "modprobe ipv6\nSVCNET_APPLY_INSIDE=1 "+inside+" -test.run '^TestInGuest$' -test.v\n")
	if err != nil || !strings.Contains(out, "--- PASS: TestInGuest/virtual_servers") || !strings.Contains(out, "--- PASS: TestInGuest/addresses") {
		t.Fatalf("%v\n%s", err, out)
	}
}
