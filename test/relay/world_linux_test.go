package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace with a thread that lives in it.
type namespace struct {
	name string
	jobs chan func()
}

// do runs f in the namespace: sockets that it makes stay there.
func (n *namespace) do(f func()) {
	done := make(chan struct{})
	n.jobs <- func() { defer close(done); f() }
	<-done
}

func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	ip(t, "netns", "add", name)
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			t.Errorf("remove namespace %s: %v: %s", name, err, out)
		}
	})
	n := &namespace{name: name, jobs: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			unix.Close(fd)
		}
		entered <- err
		for f := range n.jobs {
			f()
		}
	}()
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(n.jobs) })
	for _, s := range []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0"} {
		key, value, _ := strings.Cut(s, "=")
		var err error
		n.do(func() {
			err = os.WriteFile("/proc/sys/"+strings.ReplaceAll(key, ".", "/"), []byte(value), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.ip(t, "link set lo up")
	return n
}

// ip runs ip in the namespace.
func (n *namespace) ip(t *testing.T, args string) string {
	t.Helper()
	return ip(t, append([]string{"-n", n.name}, strings.Fields(args)...)...)
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// world is the network of the tests. Every place has an IPv4 and an IPv6 address that differ in their range only.
type world struct {
	node, far, outside *namespace
	pods               map[string]*namespace // a and b on the node, c and d on the other one
	program            string
	folder             string
}

// The addresses of the pods. Those of the node are 172.16.0.1 and fd16::1, of the other node …2, of the client from
// outside …9 and 203.0.113.9.
var podAddrs = map[string][2]string{
	"a": {"10.1.1.2", "fd01:1::2"}, "b": {"10.1.1.3", "fd01:1::3"},
	"c": {"10.1.2.2", "fd01:2::2"}, "d": {"10.1.2.3", "fd01:2::3"},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	id := fmt.Sprintf("r%d", os.Getpid())
	w := &world{folder: t.TempDir(), pods: make(map[string]*namespace)}
	w.node, w.far, w.outside = newNamespace(t, id+"-node"), newNamespace(t, id+"-far"), newNamespace(t, id+"-out")
	lan := newNamespace(t, id+"-lan")
	lan.ip(t, "link add br0 type bridge")
	lan.ip(t, "link set br0 up")
	for i, n := range []*namespace{w.node, w.far, w.outside} {
		lan.ip(t, fmt.Sprintf("link add p%d type veth peer name eth0 netns %s", i, n.name))
		lan.ip(t, fmt.Sprintf("link set p%d up master br0", i))
		n.ip(t, fmt.Sprintf("addr add 172.16.0.%d/24 dev eth0", []int{1, 2, 9}[i]))
		n.ip(t, fmt.Sprintf("addr add fd16::%d/64 dev eth0", []int{1, 2, 9}[i]))
		n.ip(t, "link set eth0 up")
	}
	w.outside.ip(t, "addr add 203.0.113.9/32 dev lo")
	for _, n := range []*namespace{w.node, w.far} {
		n.ip(t, "route add 203.0.113.0/24 via 172.16.0.9")
		n.ip(t, "link add cni0 type bridge")
		n.ip(t, "link set cni0 up")
	}
	for i, side := range []struct{ n, other *namespace }{{w.node, w.far}, {w.far, w.node}} {
		side.n.ip(t, fmt.Sprintf("addr add 10.1.%d.1/24 dev cni0", i+1))
		side.n.ip(t, fmt.Sprintf("addr add fd01:%d::1/64 dev cni0", i+1))
		side.n.ip(t, fmt.Sprintf("route add 10.1.%d.0/24 via 172.16.0.%d", 2-i, 2-i))
		side.n.ip(t, fmt.Sprintf("route add fd01:%d::/64 via fd16::%d", 2-i, 2-i))
	}
	// The client from outside reaches service addresses as a router in front of the cluster does: by way of the node.
	for _, to := range []string{"10.96.0.0/16", "198.51.100.0/24", "10.1.0.0/16"} {
		w.outside.ip(t, "route add "+to+" via 172.16.0.1")
	}
	for name, addr := range podAddrs {
		on := w.node
		if name > "b" {
			on = w.far
		}
		p := newNamespace(t, id+"-"+name)
		w.pods[name] = p
		on.ip(t, fmt.Sprintf("link add veth%s type veth peer name eth0 netns %s", name, p.name))
		on.ip(t, "link set veth"+name+" up master cni0")
		p.ip(t, "addr add "+addr[0]+"/24 dev eth0")
		p.ip(t, "addr add "+addr[1]+"/64 dev eth0")
		p.ip(t, "link set eth0 up")
		gateway := netip.MustParsePrefix(addr[0] + "/24").Masked().Addr().Next()
		p.ip(t, "route add default via "+gateway.String())
		gateway = netip.MustParsePrefix(addr[1] + "/64").Masked().Addr().Next()
		p.ip(t, "route add default via "+gateway.String())
		serveNames(t, p, name)
	}
	// Nobody is to make these addresses routable for the far node's pods but the node's relay.
	w.far.ip(t, "route add 10.96.0.0/16 via 172.16.0.1")
	w.far.ip(t, "route add 198.51.100.0/24 via 172.16.0.1")
	if w.program = os.Getenv(programEnv); w.program == "" {
		t.Fatal("no program: TestMain builds it")
	}
	return w
}

// programEnv names the program for the tests.
const programEnv = "SVCNET_RELAY_TEST_PROGRAM"

// TestMain builds the program once for all tests, unless there is one already.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv(programEnv) != "" || os.Geteuid() != 0 {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "svcnet-relay")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file := filepath.Join(dir, "svcnet")
		c := exec.Command("go", "build", "-o", file, "./cmd/kubectl-svcnet")
		c.Dir = "../.."
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v: %s", err, out)
			return 1
		}
		if err := os.Setenv(programEnv, file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// serveNames answers connections and datagrams on port 8080 of a pod with "NAME CLIENT" and what was sent.
func serveNames(t *testing.T, n *namespace, name string) {
	t.Helper()
	var l net.Listener
	var u net.PacketConn
	var err, err2 error
	n.do(func() {
		l, err = net.Listen("tcp", ":8080")
		u, err2 = net.ListenPacket("udp", ":8080")
	})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	t.Cleanup(func() { shut(l); shut(u) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer shut(c)
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				got, _ := io.ReadAll(c)
				fmt.Fprintf(c, "%s %s %s", name, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), got)
			}()
		}
	}()
	go func() {
		buf := make([]byte, 65536)
		for {
			k, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(append([]byte(name+" "+from.(*net.UDPAddr).AddrPort().Addr().Unmap().String()+" "), buf[:k]...), from)
		}
	}()
}

// shut closes what nothing is lost with.
func shut(c io.Closer) { c.Close() }

// ask makes a connection from a place, or sends a datagram, and returns the answer: who answered, and which client that
// saw.
func (n *namespace) ask(network, to, from string) (who, saw string, err error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	if from != "" {
		a := net.ParseIP(from)
		d.LocalAddr = &net.TCPAddr{IP: a}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: a}
		}
	}
	var c net.Conn
	n.do(func() { c, err = d.Dial(network, to) })
	if err != nil {
		return "", "", err
	}
	defer shut(c)
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", "", err
	}
	var got []byte
	if network == "udp" {
		buf := make([]byte, 65536)
		k, err := c.Read(buf)
		if err != nil {
			return "", "", err
		}
		got = buf[:k]
	} else {
		_ = c.(*net.TCPConn).CloseWrite()
		if got, err = io.ReadAll(c); err != nil {
			return "", "", err
		}
	}
	f := strings.SplitN(string(got), " ", 3)
	if len(f) != 3 || f[2] != "hello" {
		return "", "", fmt.Errorf("answer %q", got)
	}
	return f[0], f[1], nil
}

// running is a proxy that runs.
type running struct {
	cmd *exec.Cmd
	log *bytes.Buffer
	out chan error
}

// proxy starts the program on the node and returns when it serves.
func (w *world) proxy(t *testing.T, objects string, args ...string) *running {
	t.Helper()
	file := filepath.Join(w.folder, "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: exec.Command("ip", append([]string{"netns", "exec", w.node.name, w.program, "proxy", "--userspace", "--apply", "--force",
		"-f", file, "--node", "n1", "--runtime-folder", filepath.Join(w.folder, "run"), "--cluster-cidr", "10.1.0.0/16,fd01::/16"}, args...)...), log: &bytes.Buffer{}, out: make(chan error, 1)}
	pipe, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout = r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	ended := make(chan struct{})
	var lines strings.Builder
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		told := false
		for {
			n, err := pipe.Read(buf)
			lines.Write(buf[:n])
			if !told && strings.Contains(lines.String(), "serving ") {
				told = true
				close(serving)
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		<-ended
		err := r.cmd.Wait()
		r.log.WriteString(lines.String())
		r.out <- err
	}()
	select {
	case <-serving:
	case err := <-r.out:
		t.Fatalf("the proxy ended: %v\n%s", err, r.log)
	case <-time.After(60 * time.Second):
		_ = r.cmd.Process.Kill()
		t.Fatalf("the proxy does not serve within a minute")
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.stop(t, unix.SIGTERM)
		}
		if t.Failed() {
			t.Logf("the proxy said:\n%s", r.log)
		}
	})
	return r
}

// stop ends the proxy with a signal and waits.
func (r *running) stop(t *testing.T, s unix.Signal) {
	t.Helper()
	_ = r.cmd.Process.Signal(s)
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	select {
	case err := <-r.out:
		t.Logf("the proxy ended: %v", err)
	case <-ctx.Done():
		_ = r.cmd.Process.Kill()
		t.Errorf("the proxy did not end after %v", s)
	}
}
