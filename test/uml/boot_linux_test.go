package uml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBoot: a script runs, its modules load, what it prints and how it ends come back.
func TestBoot(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := Boot(ctx, `test ! -e /proc/net/ip_tables_names
modprobe ip_vs && cat /proc/net/ip_vs
iptables-legacy -t nat -A PREROUTING -j ACCEPT && cat /proc/net/ip_tables_names
touch /etc/svcnet-test 2>&1
exit 3`)
	if err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"IP Virtual Server version", "nat\n", "Read-only file system"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// TestBootEnds: a guest that goes on for ever is ended, and leaves nothing behind.
func TestBootEnds(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			files, _ := filepath.Glob(dir + "/*/output")
			for _, f := range files {
				if text, err := os.ReadFile(f); err == nil && len(text) > 0 {
					return
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	out, err := Boot(ctx, "echo here; sleep 1000")
	if !errors.Is(err, context.Canceled) || out != "here\n" {
		t.Errorf("%q, error %v", out, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
