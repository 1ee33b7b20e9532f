package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An Entrance leads another process into a namespace of a lab.
type Entrance struct{ path string }

// Enter finds a namespace of the lab by its name behind the lab's, "n1", "client", "pod-web-1", and the
// environment for programs in it: KUBECONFIG of admin, and on a node PATH with the node's iptables first.
func (s *State) Enter(name string) (Entrance, []string, error) {
	full := s.Name + "-" + name
	if !slices.Contains(s.Namespaces, full) {
		var names []string
		for _, n := range s.Namespaces {
			names = append(names, strings.TrimPrefix(n, s.Name+"-"))
		}
		return Entrance{}, nil, fmt.Errorf("lab %s has no %q: %s", s.Name, name, strings.Join(names, ", "))
	}
	dir := filepath.Dir(s.path)
	return Entrance{"/run/netns/" + full}, environment(dir, filepath.Join(dir, name)), nil
}

// Exec puts a program in the place of this one, inside the namespace. It returns only when it cannot.
func (e Entrance) Exec(path string, argv, env []string) error {
	fd, err := unix.Open(e.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("enter %s: %w", e.path, err)
	}
	// The namespace is this thread's, and the program gets it from the thread.
	runtime.LockOSThread()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", e.path, err)
	}
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, argv, env))
}

// environment of programs on a node: the machine's, but for what differs there. dir is the lab's, node the node's.
func environment(dir, node string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "PATH" || name == "KUBECONFIG" || name == "XTABLES_LOCKFILE"
	})
	return append(env, "PATH="+filepath.Join(node, "bin")+":"+systemPath,
		"KUBECONFIG="+filepath.Join(dir, "admin.kubeconfig"),
		// Nodes of one machine do not wait for each other.
		"XTABLES_LOCKFILE="+filepath.Join(node, "xtables.lock"))
}
