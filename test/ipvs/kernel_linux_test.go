package ipvs

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/test/uml"
)

// TestWalkAgainstKernel: what becomes of a packet for a virtual server is what the walk says, for every kind of client.
func TestWalkAgainstKernel(t *testing.T) {
	if why := uml.Missing(); why != "" {
		t.Skip(why)
	}
	inside := t.TempDir() + "/inside"
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", inside, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	path := ""
	if tool, err := exec.LookPath("ipvsadm"); err == nil {
		path = "PATH=$PATH:" + filepath.Dir(tool) + "\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	out, err := uml.Boot(ctx, path+"modprobe ipv6; modprobe ip_vs; for s in rr wrr lc wlc sed sh mh dh fo; do modprobe ip_vs_$s; done\n"+insideFlag+"=1 "+inside+" -test.run '^TestInGuest$' -test.v -test.timeout 7m\n")
	if err != nil || !strings.Contains(out, " setups, ") {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, " setups, ") || strings.Contains(line, "ipvsadm") || strings.Contains(line, " counted ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
