package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace of the lab. One thread of this process lives in it: sockets are made and
// programs started there, which takes microseconds, so that thousands of connections are cheap.
type Namespace struct {
	// Name as ip netns shows it.
	Name string

	fd     int
	jobs   chan func()
	closed chan struct{}
	gone   chan struct{} // closed once the thread has left
	once   sync.Once
}

// Netns makes a namespace a Place.
func (n *Namespace) Netns() *Namespace { return n }

func (n *Namespace) String() string { return n.Name }

// addNamespace makes a namespace with loopback up and IPv6 addresses usable at once. Its owner calls remove.
func addNamespace(ctx context.Context, name string) (*Namespace, error) {
	if out, err := exec.CommandContext(ctx, "ip", "netns", "add", name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("add network namespace %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	n, err := openNamespace(name)
	if err != nil {
		return nil, errors.Join(err, deleteNamespace(name))
	}
	err = n.Sysctl("net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0",
		"net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
		"net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.default.accept_ra=0",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		// By type, for the limit per destination and that per machine are both off then. IPv6 takes no empty
		// list; type 127 is never sent.
		"net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratemask=127")
	if err == nil {
		err = n.IP(ctx, "link set lo up")
	}
	if err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// openNamespace enters a namespace that is there.
func openNamespace(name string) (*Namespace, error) {
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	n := &Namespace{Name: name, fd: fd, jobs: make(chan func()), closed: make(chan struct{}), gone: make(chan struct{})}
	entered := make(chan error)
	go n.live(entered)
	if err := <-entered; err != nil {
		unix.Close(fd)
		return nil, err
	}
	return n, nil
}

// live is the thread of the namespace. It stays locked to its end: a thread that entered a namespace never goes
// back among the threads of the program. It also is the parent of the programs that run in the namespace, and
// the kernel ends those with their parent thread.
func (n *Namespace) live(entered chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end before the program, and would hold the namespace as long. Keep it here
		// until another thread has the work.
		handed := make(chan error)
		go n.live(handed)
		err := <-handed
		runtime.UnlockOSThread()
		entered <- err
		return
	}
	defer close(n.gone)
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		entered <- fmt.Errorf("enter network namespace %s: %w", n.Name, err)
		return
	}
	entered <- nil
	for {
		select {
		case job := <-n.jobs:
			job()
		case <-n.closed:
			return
		}
	}
}

// call runs f on the namespace's thread. f must not wait for anything: all sockets are made there.
func (n *Namespace) call(f func() error) error {
	done := make(chan error, 1)
	select {
	case n.jobs <- func() { done <- f() }:
		return <-done
	case <-n.closed:
		return fmt.Errorf("network namespace %s is removed already", n.Name)
	}
}

// Do runs f on a thread of its own inside the namespace; f may wait. Sockets that f opens stay there for good,
// programs that it starts too.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go n.do(f, done)
	return <-done
}

func (n *Namespace) do(f func() error, done chan<- error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		handed := make(chan error)
		go n.do(f, handed)
		err := <-handed
		runtime.UnlockOSThread()
		done <- err
		return
	}
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		done <- fmt.Errorf("enter network namespace %s: %w", n.Name, err)
		return
	}
	done <- f()
}

// Run runs a command inside the namespace and returns its standard output; the error holds the standard error.
func (n *Namespace) Run(ctx context.Context, stdin string, argv ...string) (string, error) {
	return n.runWith(ctx, nil, stdin, argv...)
}

func (n *Namespace) runWith(ctx context.Context, env []string, stdin string, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := n.Do(func() error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = env
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd.Run()
	})
	if err != nil {
		return stdout.String(), fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), n.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Sysctl writes sysctls, "net.ipv4.ip_forward=1" each, all of them per namespace.
func (n *Namespace) Sysctl(settings ...string) error {
	return n.call(func() error {
		for _, s := range settings {
			name, value, _ := strings.Cut(s, "=")
			path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
				return fmt.Errorf("set sysctl %s in %s: %w", s, n.Name, err)
			}
		}
		return nil
	})
}

// IP runs lines of ip(8) inside the namespace, "route replace 10.96.0.0/16 via 172.30.0.12" each, until one fails.
func (n *Namespace) IP(ctx context.Context, lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, "ip", "-n", n.Name, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip in %s: %w: %s\n%s", n.Name, err, bytes.TrimSpace(out), strings.Join(lines, "\n"))
	}
	return nil
}

// remove takes the thread out and the name away. Programs inside must have ended: the namespace lasts as long.
func (n *Namespace) remove() error {
	n.once.Do(func() {
		close(n.closed)
		<-n.gone
		unix.Close(n.fd)
	})
	return deleteNamespace(n.Name)
}

// deleteNamespace takes a namespace's name away, if it has one.
func deleteNamespace(name string) error {
	if _, err := os.Lstat("/run/netns/" + name); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
		return fmt.Errorf("remove network namespace %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
