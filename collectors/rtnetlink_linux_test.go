package collectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

func hostSources() []source {
	return []source{
		{name: "addr", read: readAddrs}, {name: "route", read: readRoutes}, {name: "rule", read: readRules}, {name: "bridge", read: readBridge}, {name: "sysctl", read: readSysctls},
		{name: "conntrack", read: readConntrack}, {name: "recent", read: readRecent}, {name: "socket", read: readSockets}, {name: "uname", read: readUname},
	}
}

func TestDumped(t *testing.T) {
	for _, c := range []struct {
		name   string
		data   string
		err    error
		status snapshot.Status
		says   string
	}{
		{"all", "default dev eth0\n", nil, snapshot.OK, ""},
		{"nothing", "", nil, snapshot.Empty, ""},
		{"changed all the time", "default dev eth0\n", fmt.Errorf("%w", nl.ErrDumpInterrupted), snapshot.Truncated, "they changed each of the 5 times"},
		{"not allowed", "", unix.EPERM, snapshot.Denied, "run as root"},
		{"interrupted", "", context.Canceled, snapshot.NotCollected, "interrupted"},
		{"something else", "", errors.New("no buffer"), snapshot.Failed, "read IPv4 routes: no buffer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := dumped("ip-route.txt", snapshot.IPRoute, 4, "IPv4 routes", []byte(c.data), c.err)
			if e.Status != c.status || !strings.Contains(e.Error, c.says) || e.Family != 4 || string(e.Data) != c.data || (e.Error == "") != (c.says == "") {
				t.Errorf("%+v", e)
			}
			bundled(t, e)
		})
	}
	if e := noIPv6("ip6-rule.txt", snapshot.IPRule); e.Status != snapshot.Absent || e.Family != 6 || e.Note == "" {
		t.Errorf("%+v", e)
	}
}

// TestReadingHostChangesNothing reads everything in a namespace that uses none of it.
func TestReadingHostChangesNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		modules := func() string {
			data, err := os.ReadFile("/proc/modules")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			var names []string
			for line := range strings.Lines(string(data)) {
				name, _, _ := strings.Cut(line, " ") // the count of users comes and goes
				names = append(names, name)
			}
			return strings.Join(names, " ")
		}
		before := modules()
		p.dir = "pods/a/b/"
		got := p.readAll(t.Context(), hostSources())
		if after := modules(); before != after {
			t.Errorf("modules before %q, after %q", before, after)
		}
		files := map[string]bool{}
		for _, e := range got {
			if !strings.HasPrefix(e.File, p.dir) || files[e.File] {
				t.Errorf("a file %q", e.File)
			}
			files[e.File] = true
			if !e.Status.Answers() {
				t.Errorf("%s: %s: %s", e.File, e.Status, e.Error)
			}
		}
		bundled(t, got...)
	})
}

// TestReadHostInterrupted stops at once, with evidence that says so.
func TestReadHostInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &place{kernel: &kernelParts{}}
	for _, src := range hostSources() {
		for _, e := range src.read(ctx, p) {
			if e.Status != snapshot.NotCollected && e.Status != snapshot.Absent && src.name != "uname" && e.Status != snapshot.Empty {
				t.Errorf("%s: %s: %s", e.File, e.Status, e.Error)
			}
		}
	}
}

// TestReadHostAsUser reads what anybody may, and says of the rest that it may not.
func TestReadHostAsUser(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		runtime.LockOSThread()
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, e := syscall.RawSyscall(call, 65534, 65534, 65534); e != 0 {
				t.Skipf("cannot become another user: %v", e)
			}
		}
		for _, e := range p.readAll(t.Context(), hostSources()) {
			switch e.Format {
			case snapshot.Conntrack:
				if e.Status != snapshot.Denied && e.Status != snapshot.Absent && e.Status != snapshot.NotCollected {
					t.Errorf("%s: %s: %s", e.File, e.Status, e.Error)
				}
			default:
				if !e.Status.Answers() {
					t.Errorf("%s: %s: %s", e.File, e.Status, e.Error)
				}
			}
		}
	})
}
