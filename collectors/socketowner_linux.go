package collectors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// owner is a process that holds a socket.
type owner struct {
	name string
	pid  int
	fd   int
}

// socketOwners finds who holds the sockets, among the processes of the thread's network namespace: others hold
// them only when somebody passed them on, and a node has many pods. Hidden says why owners may be missing; empty:
// nothing is known to be hidden.
func socketOwners(ctx context.Context, sockets []listening) (owners map[uint64][]owner, hidden string) {
	wanted := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		wanted[s.inode] = s.inode != 0
	}
	owners = map[uint64][]owner{}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil || len(wanted) == 0 {
		return owners, ""
	}
	denied := false
	for _, pid := range processes() {
		if ctx.Err() != nil {
			break
		}
		switch ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); {
		case errors.Is(err, fs.ErrPermission):
			denied = true
		case err == nil && ns == own:
			denied = addOwners(owners, wanted, pid) || denied
		}
	}
	for _, list := range owners {
		slices.SortFunc(list, func(a, b owner) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.fd, b.fd)) })
	}
	switch ns, err := os.Readlink("/proc/1/ns/pid"); {
	case denied:
		return owners, "processes of other users are not shown: run as root to see whose sockets these are"
	case err == nil && ns != firstPIDNamespace:
		return owners, "only processes of svcnet's own container are shown: with hostPID it sees whose sockets these are"
	}
	return owners, ""
}

// addOwners adds the sockets that a process holds; true: it may not be looked at. A process that ends meanwhile
// holds nothing.
func addOwners(owners map[uint64][]owner, wanted map[uint64]bool, pid int) (denied bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	d, err := os.Open(dir + "fd")
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	defer d.Close()
	name := ""
	for {
		// In parts: a proxy holds a hundred thousand.
		fds, err := d.Readdirnames(1024)
		for _, fd := range fds {
			target, err := os.Readlink(dir + "fd/" + fd)
			if err != nil {
				continue
			}
			inode, ok := socketInode(target)
			if !ok || !wanted[inode] {
				continue
			}
			if name == "" {
				name = processName(dir + "comm")
			}
			n, _ := strconv.Atoi(fd)
			owners[inode] = append(owners[inode], owner{name: name, pid: pid, fd: n})
		}
		if err != nil {
			return err != io.EOF && errors.Is(err, fs.ErrPermission)
		}
	}
}

// socketInode reads "socket:[12345]".
func socketInode(target string) (uint64, bool) {
	number, ok := strings.CutPrefix(target, "socket:[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
	return n, err == nil
}

func processName(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	return plainName(strings.TrimSuffix(string(data), "\n"))
}

// plainName is a process's name with "_" for what would end the name or begin another column: processes choose
// their names themselves.
func plainName(s string) string {
	s = strings.Map(func(c rune) rune {
		if c == '"' || c == '\\' || c == unicode.ReplacementChar || !unicode.IsGraphic(c) || unicode.IsSpace(c) {
			return '_'
		}
		return c
	}, s)
	if s == "" {
		return "?"
	}
	return s
}

// usersOf writes owners as ss does: users:(("kube-proxy",pid=12,fd=9)).
func usersOf(list []owner) string {
	if len(list) == 0 {
		return ""
	}
	words := make([]string, len(list))
	for i, o := range list {
		words[i] = fmt.Sprintf(`("%s",pid=%d,fd=%d)`, o.name, o.pid, o.fd)
	}
	return " users:(" + strings.Join(words, ",") + ")"
}
