package uml

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// program is the kernel, as Debian's package user-mode-linux installs it.
const program = "linux.uml"

// modulesDir holds that kernel's modules, in a folder by version.
const modulesDir = "/usr/lib/uml/modules"

// Missing says why no kernel can be booted here; empty when one can.
func Missing() string {
	if _, err := exec.LookPath(program); err != nil {
		return program + " is not installed (Debian: user-mode-linux)"
	}
	if _, err := os.Stat(modulesDir); err != nil {
		return "the modules of " + program + " are not in " + modulesDir
	}
	if _, err := modprobe(); err != nil {
		return "modprobe is not installed (Debian: kmod)"
	}
	if _, err := exec.LookPath(compiler); err != nil && wideRegisters() {
		return "this processor has AMX, and what lets " + program + " run on it is built with " + compiler + ", which is not installed (Debian: gcc)"
	}
	if os.Getuid() != 0 {
		// Files of the host are reached with the rights of the process, and the commands of a script want root.
		return "User-Mode Linux on the machine's own file system needs root"
	}
	return ""
}

func modprobe() (string, error) {
	for _, name := range []string{"modprobe", "/usr/sbin/modprobe", "/sbin/modprobe"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", fs.ErrNotExist
}

// initScript makes the guest fit for commands. The machine's files can be read and not be written, but for the
// folder of this guest and those that it was given. The kernel and everybody else find modprobe there, which knows
// where the modules are. What programs keep in memory goes to memory of the guest.
const initScript = `#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t hostfs -o @ none @
MOUNTS
export PATH=@/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin HOME=@ TMPDIR=@
echo @/bin/modprobe >/proc/sys/kernel/modprobe
ip link set lo up
hostname guest
sh @/script >@/output 2>&1 </dev/null
echo $? >@/status
sync
halt -f
`

// A Guest says what a guest has beside the kernel. The zero value is enough for a script that makes its own world.
type Guest struct {
	// Memory in MiB, 1024 when 0.
	Memory int
	// Writable are folders of this machine that the guest may write to.
	Writable []string
}

// Boot runs a script of the shell as root in a guest and returns what it printed on both streams. TMPDIR is a
// folder that it may write to; nothing else of this machine can be written, unless the guest says so. The error says
// that the guest did not come up, that ctx ended it, or with which status the script ended.
func Boot(ctx context.Context, script string) (output string, err error) {
	return Guest{}.Boot(ctx, script)
}

// Boot is the function Boot for this guest.
func (g Guest) Boot(ctx context.Context, script string) (output string, err error) {
	dir, err := os.MkdirTemp("", "svcnet-uml-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := g.prepare(dir, script); err != nil {
		return "", fmt.Errorf("prepare a guest: %w", err)
	}
	argv := []string{program, fmt.Sprintf("mem=%dM", cmp.Or(g.Memory, 1024)), "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"init=" + dir + "/init", "uml_dir=" + dir, "con=null", "con0=fd:0,fd:1"}
	if cpu, release, ok := oneCPU(); ok {
		defer release()
		argv = append([]string{"taskset", "-c", cpu}, argv...)
	}
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	if wideRegisters() {
		library, err := buildRegset(dir)
		if err != nil {
			return "", err
		}
		c.Env = append(c.Env, "LD_PRELOAD="+library)
	}
	var console bytes.Buffer
	c.Stdout, c.Stderr = &console, &console
	// A guest is several processes, which end together.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	ended := c.Run()
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	text, err := os.ReadFile(dir + "/output")
	if ctx.Err() != nil {
		return string(text), fmt.Errorf("the guest did not end in time: %w", ctx.Err())
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("the guest did not come up: %s", lastLines(console.String())), ended)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return string(text), errors.Join(fmt.Errorf("the guest ended in the middle of the script: %s", lastLines(console.String())), ended)
	}
	if s := strings.TrimSpace(string(status)); s != "0" {
		return string(text), fmt.Errorf("the script ended with status %s", s)
	}
	return string(text), nil
}

// prepare writes the guest's folder.
func (g Guest) prepare(dir, script string) error {
	found, err := modprobe()
	if err != nil {
		return err
	}
	versions, err := filepath.Glob(modulesDir + "/*")
	if err != nil {
		return err
	}
	for _, d := range []string{"/bin", "/lib/modules"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			return err
		}
	}
	for _, v := range versions {
		if err := os.Symlink(v, dir+"/lib/modules/"+filepath.Base(v)); err != nil {
			return err
		}
	}
	mounts := ""
	for _, folder := range g.Writable {
		mounts += fmt.Sprintf("mount -t hostfs -o %[1]s none %[1]s\n", folder)
	}
	for name, text := range map[string]string{
		"/init":         strings.ReplaceAll(strings.Replace(initScript, "MOUNTS\n", mounts, 1), "@", dir),
		"/bin/modprobe": "#!/bin/sh\nexec " + found + " -d " + dir + " \"$@\"\n",
		"/script":       script,
	} {
		if err := os.WriteFile(dir+name, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// lastLines are the last lines on the console, without the stack that a kernel prints when its init dies.
func lastLines(console string) string {
	console, _, _ = strings.Cut(console, "Stack:")
	lines := strings.Split(strings.TrimSpace(console), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " / ")
}
