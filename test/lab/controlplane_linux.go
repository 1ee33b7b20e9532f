package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// apiURL is where the API server answers, from every namespace of the lab.
const apiURL = "https://" + controlPlaneIPv4 + ":6443"

// A user of the API server, known by a token.
type user struct{ name, login, groups string }

// users of every lab. The bootstrap role system:node-proxier is bound to the login of proxy.
var users = []user{
	{"admin", "lab-admin", "system:masters"},
	{"proxy", "system:kube-proxy", ""},
	{"viewer", "lab-viewer", ""}, // may do nothing: for what svcnet says when it is denied
}

// Kubeconfig is the path of the kubeconfig of "admin", "proxy" or "viewer". It works inside the lab's namespaces.
func (l *Lab) Kubeconfig(user string) string { return filepath.Join(l.Dir, user+".kubeconfig") }

// startControlPlane starts etcd and kube-apiserver and does not wait: the API server tries until etcd is there.
func (l *Lab) startControlPlane() error {
	if err := l.writeCredentials(); err != nil {
		return err
	}
	data, err := l.memoryFolder("etcd")
	if err != nil {
		return err
	}
	env := []string{"PATH=" + systemPath, "HOME=" + l.Dir}
	err = l.keep(l.start(l.ControlPlane.ns, "etcd", filepath.Join(l.Dir, "etcd.log"), env, l.Paths.Etcd,
		"--name=lab", "--data-dir="+data,
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=lab=http://127.0.0.1:2380",
		"--unsafe-no-fsync", "--log-level=warn"))
	if err != nil {
		return err
	}
	return l.startAPIServer()
}

// startAPIServer starts kube-apiserver, the first time and every other.
func (l *Lab) startAPIServer() error {
	env := []string{"PATH=" + systemPath, "HOME=" + l.Dir}
	key := filepath.Join(l.Dir, "service-account.key")
	p, err := l.start(l.ControlPlane.ns, "kube-apiserver", l.apiLog(), env, l.Paths.KubeAPIServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address="+controlPlaneIPv4, "--secure-port=6443", "--cert-dir="+filepath.Join(l.Dir, "pki"),
		"--token-auth-file="+filepath.Join(l.Dir, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-account-issuer=https://kubernetes.default.svc",
		// No controller makes ServiceAccounts.
		"--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range="+ServiceCIDRs,
		// exec and logs go to the kubelets of real nodes, which have no name that could be resolved.
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true", "--profiling=false")
	if err == nil {
		l.apiServer = p
	}
	return l.keep(p, err)
}

// RestartAPIServer ends kube-apiserver, as an upgrade does, waits, starts it again and returns when it answers.
func (l *Lab) RestartAPIServer(ctx context.Context, gone time.Duration) error {
	old := l.apiServer
	if err := old.stop(); err != nil {
		return err
	}
	l.mu.Lock()
	l.processes = slices.DeleteFunc(l.processes, func(p *process) bool { return p == old })
	l.mu.Unlock()
	if !pause(ctx, gone) {
		return ctx.Err()
	}
	if err := l.startAPIServer(); err != nil {
		return err
	}
	return l.waitControlPlane(ctx)
}

func (l *Lab) apiLog() string { return filepath.Join(l.Dir, "kube-apiserver.log") }

// keep adds a started program to those that Down ends.
func (l *Lab) keep(p *process, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes = append(l.processes, p)
	return nil
}

// memoryFolder makes a folder in memory, if the machine has such: etcd writes small and often.
func (l *Lab) memoryFolder(name string) (string, error) {
	const shm = "/dev/shm"
	path := filepath.Join(l.Dir, name)
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		path, err = os.MkdirTemp(shm, "svcnet-lab-"+l.Name+"-"+name+"-")
		if err != nil {
			return "", fmt.Errorf("make a folder for %s: %w", name, err)
		}
		return path, l.state.addFolder(path)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for %s: %w", name, err)
	}
	return path, nil
}

// writeCredentials makes the tokens and the key that signs ServiceAccount tokens.
func (l *Lab) writeCredentials() error {
	l.tokens = map[string]string{}
	var lines strings.Builder
	for _, u := range users {
		l.tokens[u.name] = rand.Text()
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", l.tokens[u.name], u.login, u.name, u.groups)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key for service accounts: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("make a key for service accounts: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(l.Dir, "tokens.csv"), []byte(lines.String()), 0o600),
		os.WriteFile(filepath.Join(l.Dir, "service-account.key"),
			pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
}

// waitControlPlane waits until the API server takes objects, and writes the kubeconfigs with its certificate.
func (l *Lab) waitControlPlane(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	var last error
	for {
		for _, p := range l.processes {
			if !p.running() {
				return p.failure()
			}
		}
		lacks := l.tryControlPlane(ctx)
		if lacks == nil {
			return l.writeKubeconfigs()
		}
		if ctx.Err() == nil { // else it says that it was interrupted
			last = lacks
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("start kube-apiserver: not ready after %s (last: %w); its log %s ends: %s", ready, last, l.apiLog(), logTail(l.apiLog()))
		}
	}
}

func (l *Lab) tryControlPlane(ctx context.Context) error {
	if l.api == nil {
		// The API server makes its own certificate, which then is its own authority.
		cert, err := os.ReadFile(l.certificate())
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(cert) {
			return fmt.Errorf("no certificate in %s", l.certificate())
		}
		l.api = newAPIClient(l.ControlPlane.ns, pool)
	}
	if _, err := l.Request(ctx, http.MethodGet, "/readyz", "", nil); err != nil {
		return err
	}
	// Made by a hook that /readyz does not wait for.
	_, err := l.Request(ctx, http.MethodGet, "/api/v1/namespaces/default", "", nil)
	return err
}

func (l *Lab) certificate() string { return filepath.Join(l.Dir, "pki", "apiserver.crt") }

func (l *Lab) writeKubeconfigs() error {
	cert, err := os.ReadFile(l.certificate())
	if err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	var errs []error
	for _, u := range users {
		text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s@%[2]s
clusters:
- name: %[2]s
  cluster: {server: %[3]q, certificate-authority-data: %[4]s}
users:
- name: %[1]s
  user: {token: %[5]s}
contexts:
- name: %[1]s@%[2]s
  context: {cluster: %[2]s, user: %[1]s}
`, u.name, l.Name, apiURL, base64.StdEncoding.EncodeToString(cert), l.tokens[u.name])
		errs = append(errs, os.WriteFile(l.Kubeconfig(u.name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}
