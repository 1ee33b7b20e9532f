package collectors

import (
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"
)

// guestFile names the variable that says where to write what was read.
const guestFile = "SVCNET_GUEST_FILE"

// TestInGuest is for a machine that a test has made: it reads that machine as svcnet does and writes the evidence
// to a file. See package test/uml.
func TestInGuest(t *testing.T) {
	file := os.Getenv(guestFile)
	if file == "" {
		return // no test here: those of test/uml run it in their guest, and look at what it wrote
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &place{timeout: 30 * time.Second, kernel: &kernelParts{}}
	data, err := json.Marshal(p.readAll(t.Context(), nodeSources))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
