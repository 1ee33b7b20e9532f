package collectors

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

// listenerEnv makes TestListener the process that other tests look at; its value is the name that it takes.
const listenerEnv = "SVCNET_TEST_LISTENER"

// TestListener holds sockets of all kinds until its input ends. It is no test of its own.
func TestListener(t *testing.T) {
	name := os.Getenv(listenerEnv)
	if name == "" {
		return // no test here: other tests run it as a process of their own
	}
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0o644); err != nil {
		t.Fatal(err)
	}
	var held []io.Closer
	for i, at := range []string{"tcp4 127.0.0.1", "tcp4 0.0.0.0", "tcp [::]", "tcp6 [::]", "tcp6 [::1]", "tcp6 [fd00::1]"} {
		network, addr, _ := strings.Cut(at, " ")
		l, err := net.Listen(network, fmt.Sprintf("%s:%d", addr, 2000+i))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	for i, at := range []string{"udp4 127.0.0.1", "udp4 0.0.0.0", "udp [::]", "udp6 [::]", "udp6 [::1]"} {
		network, addr, _ := strings.Cut(at, " ")
		l, err := net.ListenPacket(network, fmt.Sprintf("%s:%d", addr, 3000+i))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	// Two that share a port, one that is bound to an interface, and connected ones, which wait for nobody.
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	bound := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.BindToDevice(int(fd), "lo") })
	}}
	for _, l := range []struct {
		config net.ListenConfig
		at     string
	}{{shared, "127.0.0.1:4000"}, {shared, "127.0.0.1:4000"}, {bound, "127.0.0.53:53"}} {
		conn, err := l.config.ListenPacket(t.Context(), "udp4", l.at)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	for _, to := range []string{"tcp 127.0.0.1:2000", "udp 127.0.0.1:3000"} {
		network, addr, _ := strings.Cut(to, " ")
		conn, err := net.Dial(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, h := range held {
		h.Close()
	}
}

// startListener runs TestListener in the thread's namespace and returns its PID.
func startListener(t *testing.T, name string) int {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run=^TestListener$", "-test.v")
	c.Env = append(os.Environ(), listenerEnv+"="+name)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := c.Wait(); err != nil {
			t.Errorf("the listener: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "listening" {
			return c.Process.Pid
		}
		t.Log(lines.Text())
	}
	t.Fatal("the listener did not start")
	return 0
}

func socketLab(t *testing.T) {
	t.Helper()
	needs(t, "ip", "ss")
	build(t, `
		ip link set lo up
		ip -6 addr add fd00::1/128 dev lo nodad
	`)
}

func TestReadSockets(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		if got := readOne(t, p, readSockets, "ss.txt"); got.Status != snapshot.OK || strings.Count(string(got.Data), "\n") != 1 || got.Note != "" {
			t.Errorf("without sockets: %+v", got)
		}
		socketLab(t)
		pid := startListener(t, "kube-proxy")
		got := readTwice(t, p, readSockets)
		roundTrips(t, got...)
		native := parsed(t, anyFamily(host.ParseSockets), 0, shell(t, "ss -lnutpe"), "ss.txt")
		ours := parsed(t, anyFamily(host.ParseSockets), 0, string(got[0].Data), "ss.txt")
		sameHost(t, "sockets", native, ours, cmpopts.IgnoreFields(host.Socket{}, "V6Only", "Device"),
			cmpopts.SortSlices(func(a, b host.Socket) int {
				return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port), a.Addr.Compare(b.Addr))
			}))
		open := 0
		for _, s := range ours.Sockets {
			if s.PID != pid || s.Process != "kube-proxy" {
				t.Errorf("%+v is not of %d", s, pid)
			}
			if s.V6Only != host.Unknown {
				t.Errorf("%+v claims what /proc does not tell", s)
			}
			if s.Addr == netip.IPv6Unspecified() {
				open++
			}
		}
		if open != 4 || got[0].Note != "" {
			t.Errorf("%d sockets on [::], note %q:\n%s", open, got[0].Note, got[0].Data)
		}
	})
}

// TestReadSocketsOfHostileProcess meets a process that takes a name to be misread by.
func TestReadSocketsOfHostileProcess(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		socketLab(t)
		pid := startListener(t, "a\" v6only:1\x1b[")
		got := readOne(t, p, readSockets, "ss.txt")
		ours := parsed(t, anyFamily(host.ParseSockets), 0, string(got.Data), "ss.txt")
		for _, s := range ours.Sockets {
			if s.PID != pid || s.Process != "a__v6only:1_[" || s.V6Only != host.Unknown {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestReadSocketsAsUser sees the sockets and not whose they are.
func TestReadSocketsAsUser(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		socketLab(t)
		startListener(t, "kube-proxy")
		// Only this thread, which ends with the test.
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, e := syscall.RawSyscall(call, 65534, 65534, 65534); e != 0 {
				t.Skipf("cannot become another user: %v", e)
			}
		}
		got := readOne(t, p, readSockets, "ss.txt")
		if got.Status != snapshot.OK || strings.Contains(string(got.Data), "users:") || !strings.Contains(got.Note, "root") || !strings.Contains(string(got.Data), ":::2002 ") {
			t.Errorf("%s, note %q:\n%s", got.Status, got.Note, got.Data)
		}
	})
}

func TestSocketLines(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, c := range []struct {
		name, text string
		read       func([]byte) ([]listening, bool)
		want       []string
	}{
		{"tcp", head + "   0: 00000000:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 31007 1 ffff 100 0 0 10 0\n", tcpLine,
			[]string{"tcp LISTEN 0.0.0.0:8080 3 0 31007"}},
		{"a half-open one in between", head +
			"   0: 00000000:1F90 0100007F:9999 03 00000000:00000003 00:00000000 00000000     0        0 0 1 ffff 100 0 0 10 0\n" +
			"   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31008 1\n", tcpLine,
			[]string{"tcp LISTEN 127.0.0.1:8081 0 0 31008"}},
		{"the first connection ends it", head +
			"   0: 00000000:1F90 0100007F:9999 01 00000000:00000003 00:00000000 00000000     0        0 0 1\n" +
			"   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31008 1\n", tcpLine, nil},
		{"tcp6", head + "   0: 000000FD000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9 1\n", tcpLine,
			[]string{"tcp LISTEN [fd00::1]:22 0 0 9"}},
		{"udp", head +
			" 1056: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 20 2 ffff 0\n" +
			" 1057: 3500007F:0036 0100007F:0035 01 00000000:00000000 00:00000000 00000000   101        0 21 2 ffff 0\n", udpLine,
			[]string{"udp UNCONN 127.0.0.53:53 0 0 20"}},
		{"sctp", " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n" +
			"       0        0 2   10  29   5000      0 12345 *10.0.0.1 0000:0000:0000:0000:0000:0000:0000:0001 \n" +
			"       0        0 2   7   29   5001      0 12346 10.0.0.1 \n", sctpLine,
			[]string{"sctp LISTEN 10.0.0.1:5000 0 0 12345", "sctp LISTEN [::1]:5000 0 0 12345"}},
		{"damaged", head + "0:\nx y z\n   0: 0000000:1F90 00000000:0000 0A 0:0 00:0 0 0 0 7 1\n   0: 00000000:1F90G 0 0A 0:0 00:0 0 0 0 7 1\n   0: 00000000:1F90 0 0A 0:0 00:0 0 0 0 -7 1\n", tcpLine, nil},
		{"cut short", "   0: 00000000:1F90 00000000:0000 0A", tcpLine, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !littleEndian() && !strings.HasPrefix(c.name, "sctp") {
				t.Skip("the lines are of a machine that starts with the low byte")
			}
			sockets, err := scanSockets(context.Background(), strings.NewReader(c.text), c.read)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range sockets {
				got = append(got, fmt.Sprintf("%s %s %s %d %d %d", s.netid, s.state, s.local, s.recvQ, s.sendQ, s.inode))
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func littleEndian() bool {
	a, _ := procAddrPort("0100007F:0001")
	return a.Addr().IsLoopback()
}

func FuzzSocketLine(f *testing.F) {
	f.Add([]byte("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 31007 1"))
	f.Add([]byte("       0        0 2   10  29   5000      0 12345 *10.0.0.1 ::1%eth0"))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, read := range []func([]byte) ([]listening, bool){tcpLine, udpLine, sctpLine} {
			sockets, _ := read(line)
			text := string(writeSockets(sockets, map[uint64][]owner{7: {{name: plainName(string(line)), pid: 1, fd: 2}}}))
			if len(sockets) > 0 {
				if problems, err := host.ParseSockets(&host.Host{}, text, "ss.txt"); err != nil || len(problems) > 0 {
					t.Errorf("%v %v\n%s", err, problems, text)
				}
			}
		}
	})
}
