package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Proxy is a kube-proxy of a version of its own, for Node.UseProxy.
type Proxy struct {
	Path string
	// Version of Kubernetes, "v1.29.6".
	Version string
}

// KubeProxy builds kube-proxy of an older minor version, "1.29", or finds it built, as Binaries does with those of
// the control plane's version. Each has a module of its own in the folder proxies, which the script proxies/add made.
func KubeProxy(ctx context.Context, minor string) (Proxy, error) {
	root, cache, err := places(ctx)
	if err != nil {
		return Proxy{}, err
	}
	tools := toolchest{filepath.Join("proxies", minor), "k8s.io/kubernetes", []program{
		{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	}}
	if _, err := os.Stat(filepath.Join(root, tools.folder)); errors.Is(err, fs.ErrNotExist) {
		return Proxy{}, fmt.Errorf("build kube-proxy %s: there is no module %s; test/lab/proxies/add makes it", minor, tools.folder)
	}
	// A lock of its own: who waits for the control plane does not wait for this.
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock-"+minor))
	if err != nil {
		return Proxy{}, err
	}
	defer unlock()
	folder, version, err := tools.build(ctx, root, cache)
	if err != nil {
		return Proxy{}, err
	}
	return Proxy{filepath.Join(folder, "kube-proxy"), version}, nil
}

// UseProxy makes the next StartProxy start this program.
func (n *Node) UseProxy(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.program = path
}
