package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Paths are the programs that a lab runs, as absolute paths.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	KubeProxy     string
	// Version of Kubernetes, "v1.36.3".
	Version string
}

// a toolchest is one of the modules that only pin the programs of the lab: its folder below this package, the
// module that gives the version, and the programs with the packages that they are built from.
type toolchest struct {
	folder, module string
	programs       []program
}

type program struct{ name, pkg string }

// controlPlaneTools and etcdTools stay apart so that each keeps the versions that it was released with; kubeletTools so
// that a lab without kubelets does not wait for them.
var (
	controlPlaneTools = toolchest{"kubernetes", "k8s.io/kubernetes", []program{
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	}}
	kubeletTools = toolchest{"kubelet", "k8s.io/kubernetes", []program{
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
		{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	}}
	etcdTools = toolchest{"etcd", "go.etcd.io/etcd/server/v3", []program{
		{"etcd", "go.etcd.io/etcd/server/v3"},
	}}
)

// Binaries builds the programs, or finds them built, in the folder svcnet-lab of the user's cache. Cold that
// takes up to ten minutes on two cores, warm a moment. Two processes do not build the same program at once: the second
// waits for the first.
func Binaries(ctx context.Context) (Paths, error) {
	root, cache, err := places(ctx)
	if err != nil {
		return Paths{}, err
	}
	etcd, _, err := etcdTools.build(ctx, root, cache)
	if err != nil {
		return Paths{}, err
	}
	kubernetes, version, err := controlPlaneTools.build(ctx, root, cache)
	if err != nil {
		return Paths{}, err
	}
	return Paths{
		Etcd:          filepath.Join(etcd, "etcd"),
		KubeAPIServer: filepath.Join(kubernetes, "kube-apiserver"),
		KubeProxy:     filepath.Join(kubernetes, "kube-proxy"),
		Version:       version,
	}, nil
}

// places are the folder of this package, which has the modules to build, and the folder that built programs go to.
func places(ctx context.Context) (root, cache string, err error) {
	if root, err = sourceFolder(ctx); err != nil {
		return "", "", err
	}
	if cache, err = os.UserCacheDir(); err != nil {
		return "", "", fmt.Errorf("find a place for the lab's binaries: %w; set HOME or XDG_CACHE_HOME", err)
	}
	cache = filepath.Join(cache, "svcnet-lab")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", fmt.Errorf("make the folder of the lab's binaries: %w", err)
	}
	return root, cache, nil
}

// build returns the folder that holds the programs, and the version that they are of.
func (t toolchest) build(ctx context.Context, root, cache string) (folder, version string, err error) {
	source := filepath.Join(root, t.folder)
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", "", fmt.Errorf("read what %s is built from: %w", t.folder, err)
	}
	sum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return "", "", fmt.Errorf("read what %s is built from: %w", t.folder, err)
	}
	version, err = requiredVersion(mod, t.module)
	if err != nil {
		return "", "", fmt.Errorf("%s/go.mod: %w", t.folder, err)
	}
	hash := sha256.Sum256(bytes.Join([][]byte{mod, sum}, []byte{0}))
	folder = filepath.Join(cache, version, fmt.Sprintf("%s-%x", filepath.Base(t.folder), hash[:6]))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", "", fmt.Errorf("make the folder of the lab's binaries: %w", err)
	}
	for _, p := range t.programs {
		if err := p.find(ctx, source, version, filepath.Join(folder, p.name)); err != nil {
			return "", "", err
		}
	}
	return folder, version, nil
}

// find builds the program if it is not there. One long build holds up nobody who has all that he needs.
func (p program) find(ctx context.Context, source, version, path string) error {
	there := func() (bool, error) {
		_, err := os.Stat(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return err == nil, nil
		}
		return false, fmt.Errorf("look for %s: %w", p.name, err)
	}
	if ok, err := there(); ok || err != nil {
		return err
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have built it meanwhile.
	if ok, err := there(); ok || err != nil {
		return err
	}
	return p.build(ctx, source, version, path)
}

// build writes under another name first: what has the final name is complete.
func (p program) build(ctx context.Context, source, version, path string) error {
	part := fmt.Sprintf("%s.%d.part", path, os.Getpid())
	defer func() { _ = os.Remove(part) }() // gone already when all went well
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-mod=readonly",
		"-ldflags", "-s -w"+versionFlags(version), "-o", part, p.pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s %s: %w: %s", p.name, version, err, lastLines(out, 10))
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("build %s %s: %w", p.name, version, err)
	}
	return nil
}

// versionFlags make components report the version that they are: built as a dependency they would say
// v0.0.0-master.
func versionFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return ""
	}
	const p = " -X k8s.io/component-base/version."
	return p + "gitVersion=" + version + p + "gitMajor=" + parts[0] + p + "gitMinor=" + parts[1]
}

// requiredVersion finds "MODULE vX.Y.Z" among the lines of a go.mod.
func requiredVersion(mod []byte, module string) (string, error) {
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("no version of %s is required there", module)
}

// sourceFolder is the folder of this package, where the modules to build lie.
func sourceFolder(ctx context.Context) (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if ok && filepath.IsAbs(file) {
		return filepath.Dir(file), nil
	}
	// Built with -trimpath: ask the go command, from the working directory.
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/svcnet/svcnet").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the lab: go list -m github.com/svcnet/svcnet: %w; run it inside of the repository", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "lab"), nil
}

// lockFile waits for an exclusive lock on a file. The kernel gives it back when its holder dies.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !pause(ctx, 100*time.Millisecond) {
			f.Close()
			return nil, fmt.Errorf("lock %s: another process builds there: %w", path, ctx.Err())
		}
	}
}

// pause waits between two looks at a condition; false says that the time is over.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// lastLines is the end of a program's output, for an error.
func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
