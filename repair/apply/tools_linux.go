package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/report"
)

// native does steps with the programs of this machine, and what is a matter of one write or message with the kernel
// itself: nodes have no sysctl, conntrack or ipvsadm as often as not.
type native struct{}

// builtin are the programs that are done without, by how their commands begin, each with what checks a command and what
// does as it would.
var builtin = []struct {
	command string
	parse   func(c report.RepairCommand) (func() error, error)
}{
	{"conntrack", forgetFlows},
	{"ip -batch", setAddresses},
	{"ipvsadm", setServers},
	{"sysctl", setSysctls},
}

// begins tells whether a command begins with these words.
func begins(c report.RepairCommand, words string) bool {
	return strings.HasPrefix(strings.Join(c.Command, " ")+" ", words+" ")
}

// systemPath is where programs of the system are, also for those whose PATH lacks it.
var systemPath = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// toolTimeout is how long one program may take. A transaction of 50,000 Services takes less than a minute.
const toolTimeout = 10 * time.Minute

func (native) check(kind string, c report.RepairCommand) error {
	if os.Geteuid() != 0 {
		return errors.New("permission denied (run as root)")
	}
	if len(c.Command) == 0 {
		return errors.New("it has no command")
	}
	for _, b := range builtin {
		if begins(c, b.command) {
			_, err := b.parse(c)
			return err
		}
	}
	_, err := find(c.Command[0])
	return err
}

func (native) run(ctx context.Context, kind string, c report.RepairCommand, held *lock) error {
	for _, b := range builtin {
		if begins(c, b.command) {
			do, err := b.parse(c)
			if err != nil {
				return err
			}
			return do()
		}
	}
	argv, err := find(c.Command[0])
	if err != nil {
		return err
	}
	return execute(ctx, append(argv, c.Command[1:]...), c.Input, held)
}

// find finds a program. Those of iptables go by several names.
func find(program string) ([]string, error) {
	if path := look(program); path != "" {
		return []string{path}, nil
	}
	family, rest, ok := strings.Cut(program, "tables-")
	backend, verb, also := strings.Cut(rest, "-")
	if ok && also && (family == "ip" || family == "ip6") && (backend == "nft" || backend == "legacy") {
		name := family + "tables-" + verb
		if path := look("xtables-" + backend + "-multi"); path != "" {
			return []string{path, name}, nil
		}
		// Where there is one backend alone, its programs have no other name.
		if path := look(name); path != "" && backendOf(path) == backend {
			return []string{path}, nil
		}
	}
	return nil, fmt.Errorf("find %s: no such program in PATH (install it, or do by hand what the plan says)", program)
}

func look(program string) string {
	if path, err := exec.LookPath(program); err == nil && filepath.IsAbs(path) {
		return path
	}
	for _, dir := range systemPath {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	return ""
}

// backendOf asks a program of iptables where it keeps rules. Those before 1.8 know one place and say none.
func backendOf(path string) string {
	out, err := exec.Command(path, "--version").Output()
	switch {
	case err != nil:
		return ""
	case bytes.Contains(out, []byte("nf_tables")):
		return "nft"
	}
	return "legacy"
}

// execute runs a program to its end. It reads its input from a file, writes to one, is in a process group of its own and
// holds the lock: should svcnet be killed, it still does the whole of its step, and nobody else begins before it ends.
func execute(ctx context.Context, argv []string, input string, held *lock) error {
	in, err := file("input", input)
	if err != nil {
		return fmt.Errorf("hand the input to %s: %w", argv[0], err)
	}
	defer in.Close()
	out, err := file("output", "")
	if err != nil {
		return fmt.Errorf("hand a place for output to %s: %w", argv[0], err)
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if held != nil {
		cmd.ExtraFiles = []*os.File{held.file}
	}
	if err := cmd.Run(); err != nil {
		said, _ := io.ReadAll(io.NewSectionReader(out, 0, 4096))
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(said))
	}
	return nil
}

// file is one in memory with a content.
func file(name, content string) (*os.File, error) {
	fd, err := unix.MemfdCreate("svcnet-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = io.WriteString(f, content); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setSysctls does as `sysctl -w NAME=VALUE …`.
func setSysctls(c report.RepairCommand) (func() error, error) {
	var paths, values []string
	if len(c.Command) < 3 || c.Command[1] != "-w" {
		return nil, fmt.Errorf("set sysctls: %q is not sysctl -w NAME=VALUE", strings.Join(c.Command, " "))
	}
	for _, word := range c.Command[2:] {
		name, value, ok := strings.Cut(word, "=")
		if !ok || !strings.HasPrefix(name, "net.") || strings.Contains(name, "..") {
			return nil, fmt.Errorf("set sysctls: %q is not NAME=VALUE of a sysctl of the network", word)
		}
		// A dot for a slash, and in the names of interfaces a slash for a dot.
		path := strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
		if slices.Contains(strings.Split(path, "/"), "..") {
			return nil, fmt.Errorf("set sysctls: %q is no name of a sysctl", name)
		}
		paths, values = append(paths, "/proc/sys/"+path), append(values, value)
	}
	return func() error {
		for i, path := range paths {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			if err == nil {
				_, err = f.WriteString(values[i] + "\n")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return fmt.Errorf("set sysctl: %w", err)
			}
		}
		return nil
	}, nil
}

// machine names the kernel since it started, and the network namespace of the thread.
func (native) machine() (Machine, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Machine{}, fmt.Errorf("find out when the machine started: %w", err)
	}
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return Machine{}, fmt.Errorf("find out the network namespace: %w", err)
	}
	return Machine{Boot: strings.TrimSpace(string(boot)), Namespace: ns}, nil
}
