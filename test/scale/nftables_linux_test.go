package scale

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/nft"
)

// loaded runs something on a thread in a fresh network namespace that has the table of kube-proxy.
func loaded(tb testing.TB, services, endpoints int, run func(text []byte)) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("making a network namespace needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		tb.Skip("nft is not installed")
	}
	done := make(chan string)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- "no network namespace can be made: " + err.Error()
			return
		}
		text := NFTables(services, endpoints)
		c := exec.Command("nft", "-f", "-")
		c.Stdin = bytes.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			tb.Errorf("nft does not take the table: %v: %.300s", err, out)
			return
		}
		run(text)
	}()
	if why := <-done; why != "" {
		tb.Skip(why)
	}
}

// collected is what a live reading has of nf_tables.
func collected(tb testing.TB) snapshot.Evidence {
	s, err := collectors.Collect(context.Background(), collectors.Options{Node: "node-1", Silent: true, CommandTimeout: 5 * time.Minute})
	if err != nil {
		tb.Error(err)
		return snapshot.Evidence{}
	}
	e := s.Of(snapshot.NFTNetlink)
	if len(e) != 1 || e[0].Status != snapshot.OK {
		tb.Errorf("%+v", e)
		return snapshot.Evidence{}
	}
	return e[0]
}

// TestNFTables: nft takes the table and lists it as it is, but for the order of elements; and so does what a live
// reading has of it.
func TestNFTables(t *testing.T) {
	loaded(t, 300, 4, func(text []byte) {
		listed, err := exec.Command("nft", "list", "table", "ip", "kube-proxy").Output()
		if err != nil {
			t.Error(err)
			return
		}
		if diff := cmp.Diff(withoutElements(string(text)), withoutElements(string(listed))); diff != "" {
			t.Errorf("the table (-) and how nft lists it (+):\n%s", diff)
		}
		r, err := nft.ParseNetlink(collected(t).Data, "nft.nl")
		if err != nil || len(r.Problems) > 0 {
			t.Errorf("%v: %v", err, r)
			return
		}
		if diff := cmp.Diff(strings.Split(string(listed), "\n"), strings.Split(r.String(), "\n")); diff != "" {
			t.Errorf("nft (-) and the messages (+):\n%s", diff)
		}
	})
}

func withoutElements(table string) []string {
	var out []string
	for line := range strings.SplitSeq(table, "\n") {
		if !strings.Contains(line, "elements = {") && !strings.HasPrefix(line, "\t\t\t     ") {
			out = append(out, line)
		}
	}
	return out
}

// BenchmarkNFTables is what reading 10,000 Services with 5 endpoints costs: by netlink beside `nft -j`, CPU time of the
// program and of the kernel for it, and the parsing of what was read.
func BenchmarkNFTables(b *testing.B) {
	loaded(b, 10000, 5, func([]byte) {
		var data []byte
		measure := func(name string, f func()) {
			user, system := usage()
			begin := time.Now()
			for range b.N {
				f()
			}
			wall := time.Since(begin)
			u, s := usage()
			n := float64(b.N)
			b.ReportMetric((u-user).Seconds()/n, name+"-user-s/op")
			b.ReportMetric((s-system).Seconds()/n, name+"-kernel-s/op")
			b.ReportMetric(wall.Seconds()/n, name+"-wall-s/op")
		}
		measure("netlink", func() { data = collected(b).Data })
		measure("nft-j", func() {
			if err := exec.Command("nft", "-j", "list", "table", "ip", "kube-proxy").Run(); err != nil {
				b.Error(err)
			}
		})
		measure("parse", func() {
			if r, err := nft.ParseNetlink(data, "nft.nl"); err != nil || len(r.Problems) > 0 {
				b.Error("what was read cannot be parsed")
			}
		})
	})
}

// usage is the CPU time of this process and of those that it started.
func usage() (user, system time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if unix.Getrusage(who, &r) == nil {
			user += time.Duration(r.Utime.Nano())
			system += time.Duration(r.Stime.Nano())
		}
	}
	return user, system
}
