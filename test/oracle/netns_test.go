//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A namespace is a network namespace of our own, named so that a leftover can be told whose it was.
type namespace struct {
	name string
	fd   int
}

// addNamespace makes a network namespace. Its owner calls remove.
func addNamespace(name string) (*namespace, error) {
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("add namespace %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	return &namespace{name: name, fd: fd}, nil
}

func (n *namespace) remove() error {
	unix.Close(n.fd)
	if out, err := exec.Command("ip", "netns", "del", n.name).CombinedOutput(); err != nil {
		return fmt.Errorf("remove namespace %s: %w: %s", n.name, err, bytes.TrimSpace(out))
	}
	return nil
}

// do runs f inside the namespace. Sockets that f opens stay there for good, children that it starts too. The
// thread is given up afterwards: it never goes back among the threads of the program.
func (n *namespace) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// run runs a command inside the namespace with stdin and returns its standard output.
func (n *namespace) run(stdin string, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := n.do(func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return stdout.String(), fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), n.name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// setSysctls writes sysctls, "net.ipv4.ip_forward=1" each.
func (n *namespace) setSysctls(settings ...string) error {
	return n.do(func() error {
		for _, s := range settings {
			name, value, _ := strings.Cut(s, "=")
			path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
				return fmt.Errorf("set sysctl %s: %w", s, err)
			}
		}
		return nil
	})
}
