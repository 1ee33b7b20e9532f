package labtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/svcnet/svcnet/test/lab"
)

// Bring brings a lab up for one test, and takes it down behind it. Without root it skips the test.
func Bring(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	// The first lab on a machine builds the control plane.
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}
