package collectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

func TestProxyFlag(t *testing.T) {
	for _, c := range []struct {
		name string
		args string // separated by a bar
		want string
	}{
		{"with =", "kube-proxy|--config=/var/lib/c.yaml|--v=2", "/var/lib/c.yaml"},
		{"with a space", "kube-proxy|--config|/var/lib/c.yaml", "/var/lib/c.yaml"},
		{"with = in the value", "kube-proxy|--config=/a=b", "/a=b"},
		{"empty", "kube-proxy|--config=", ""},
		{"the last counts", "kube-proxy|--config=/a|--config|/b", "/b"},
		{"no value", "kube-proxy|--config", ""},
		{"not given", "kube-proxy|--config-sync-period=15m", ""},
		{"a longer name", "kube-proxy|--configs=/a|--config-x|/b", ""},
		{"a shorter name", "kube-proxy|--conf=/a", ""},
		{"one dash", "kube-proxy|-config=/a", ""},
		{"no dash", "kube-proxy|config=/a", ""},
		{"in the value of another", "kube-proxy|--cleanup=--config=/a", ""},
		{"behind a subcommand", "/hyperkube|kube-proxy|--config=/a", "/a"},
		{"nothing at all", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &proxy{args: strings.Split(c.args, "|")}
			if got := p.flag("config"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// kubeadmConfig is what kubeadm writes, shortened.
const kubeadmConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
clientConnection:
  acceptContentTypes: ""
  burst: 0
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  masqueradeAll: false
  minSyncPeriod: 1s
kind: KubeProxyConfiguration
metricsBindAddress: ""
mode: ""
nodePortAddresses: null
`

func TestProxySetting(t *testing.T) {
	for _, c := range []struct {
		name, config string
		keys         []string
		want         string
	}{
		{"nested", kubeadmConfig, []string{"clientConnection", "kubeconfig"}, "/var/lib/kube-proxy/kubeconfig.conf"},
		{"plain", kubeadmConfig, []string{"bindAddress"}, "0.0.0.0"},
		{"empty", kubeadmConfig, []string{"mode"}, ""},
		{"null", kubeadmConfig, []string{"nodePortAddresses"}, ""},
		{"number", kubeadmConfig, []string{"clientConnection", "burst"}, ""},
		{"section", kubeadmConfig, []string{"iptables"}, ""},
		{"below a value", kubeadmConfig, []string{"bindAddress", "x"}, ""},
		{"not there", kubeadmConfig, []string{"clientConnection", "nope", "x"}, ""},
		{"JSON", `{"mode":"nftables"}`, []string{"mode"}, "nftables"},
		{"broken", "mode: [nftables", []string{"mode"}, ""},
		{"a list", "- mode: nftables", []string{"mode"}, ""},
		{"no file", "", []string{"mode"}, ""},
		{"bytes", "\xff\xfe\x00", []string{"mode"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &proxy{config: []byte(c.config), configPath: "/c.yaml"}
			if got := p.setting(c.keys...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := (*proxy)(nil).setting("mode"); got != "" {
		t.Errorf("no kube-proxy has the mode %q", got)
	}
}

func TestProxyNodeName(t *testing.T) {
	for _, c := range []struct {
		name string
		p    *proxy
		want string
	}{
		{"none", nil, ""},
		{"nothing said", &proxy{args: []string{"kube-proxy"}}, ""},
		{"flag", &proxy{args: []string{"kube-proxy", "--hostname-override=n1"}}, "n1"},
		{"setting", &proxy{config: []byte("hostnameOverride: n1\n"), configPath: "/c"}, "n1"},
		// The one flag that counts beside a configuration file.
		{"both", &proxy{args: []string{"kube-proxy", "--config=/c", "--hostname-override", "n2"}, config: []byte("hostnameOverride: n1\n"), configPath: "/c"}, "n2"},
		{"upper case", &proxy{args: []string{"kube-proxy", "--hostname-override= Node-1.Example.COM "}}, "node-1.example.com"},
		{"upper case in the file", &proxy{config: []byte("hostnameOverride: Node-1\n"), configPath: "/c"}, "node-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.p.nodeName(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestNodeNameAmong: which Node this machine is.
func TestNodeNameAmong(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, addrs ...string) string {
		var list []string
		for _, a := range addrs {
			list = append(list, fmt.Sprintf(`{"type":"InternalIP","address":%q}`, a))
		}
		return fmt.Sprintf(`{"metadata":{"name":%q},"status":{"addresses":[%s]}}`, name, strings.Join(list, ","))
	}
	list := func(nodes ...string) []byte {
		return []byte(`{"kind":"NodeList","items":[` + strings.Join(nodes, ",") + `]}`)
	}
	told := &proxy{args: []string{"kube-proxy", "--hostname-override=N1"}}
	inNamespace(t, func(t *testing.T, _ *place) {
		shell(t, "ip link set lo up; ip link add d0 type veth peer name d1; ip link set d1 up; ip addr add 192.0.2.7/24 dev d0; ip -6 addr add 2001:db8::7/64 dev d0 nodad; ip link set d0 up")
		for _, c := range []struct {
			name  string
			nodes []byte
			p     *proxy
			want  string
		}{
			{"as kube-proxy is told", list(node("n1"), node("n2", "192.0.2.7")), told, "n1"},
			{"kube-proxy is told something else", list(node("n2", "192.0.2.7")), told, "n2"},
			{"by the host's name", list(node("n1", "192.0.2.7"), node(strings.ToLower(host))), nil, strings.ToLower(host)},
			{"by an address", list(node("n1", "192.0.2.6"), node("n2", "192.0.2.7")), nil, "n2"},
			{"by an IPv6 address", list(node("n1"), node("n2", "2001:db8:0::7")), nil, "n2"},
			{"loopback says nothing", list(node("n1", "127.0.0.1", "::1")), nil, ""},
			{"two of them", list(node("n1", "192.0.2.7"), node("n2", "2001:db8::7")), nil, ""},
			{"none of them", list(node("n1", "192.0.2.1")), nil, ""},
			{"no nodes", list(), nil, ""},
			{"not read", nil, told, "n1"},
			{"not read, nobody told", nil, nil, ""},
			{"broken", []byte("{"), told, "n1"},
		} {
			if got := nodeNameAmong(c.nodes, c.p); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		}
	})
}

func TestProxyEndpoint(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   string // separated by spaces
		config string // with --config when it is not empty
		want   string
	}{
		{"not said", "", "", "127.0.0.1:10249"},
		{"flag", "--metrics-bind-address=192.0.2.1:9999", "", "192.0.2.1:9999"},
		{"flag with a space", "--metrics-bind-address 192.0.2.1:9999", "", "192.0.2.1:9999"},
		{"everywhere", "--metrics-bind-address=0.0.0.0:9999", "", "127.0.0.1:9999"},
		{"everywhere, without a port", "--metrics-bind-address=0.0.0.0", "", "127.0.0.1:10249"},
		{"a port alone", "--metrics-bind-address=:9999", "", "127.0.0.1:9999"},
		{"port flag", "--metrics-port=9999", "", "127.0.0.1:9999"},
		{"port flag and address", "--metrics-port=9999 --metrics-bind-address=192.0.2.1", "", "192.0.2.1:9999"},
		{"port flag and address with a port", "--metrics-port=9999 --metrics-bind-address=192.0.2.1:1", "", "192.0.2.1:1"},
		{"IPv6", "--metrics-bind-address=[2001:db8::1]:9999", "", "[2001:db8::1]:9999"},
		{"IPv6 without a port", "--metrics-bind-address=2001:db8::1", "", "[2001:db8::1]:10249"},
		{"IPv6 in brackets without a port", "--metrics-bind-address=[::1]", "", "[::1]:10249"},
		{"IPv6 everywhere", "--metrics-bind-address=[::]:9999", "", "[::1]:9999"},
		{"IPv6 everywhere without a port", "--metrics-bind-address=::", "", "[::1]:10249"},
		{"IPv4 within IPv6 everywhere", "--metrics-bind-address=[::ffff:0.0.0.0]:9999", "", "127.0.0.1:9999"},
		// A flag does not change where the endpoints are, a setting does.
		{"bind address", "--bind-address=::", "", "127.0.0.1:10249"},
		{"file", "", "metricsBindAddress: 0.0.0.0:9999", "127.0.0.1:9999"},
		{"file of kubeadm", "", kubeadmConfig, "127.0.0.1:10249"},
		{"file of kubeadm, IPv6", "", strings.Replace(kubeadmConfig, "0.0.0.0", "'::'", 1), "[::1]:10249"},
		{"file with an IPv6 bind address", "", "bindAddress: 2001:db8::7", "[::1]:10249"},
		{"file with both", "", "bindAddress: '::'\nmetricsBindAddress: 127.0.0.1:10249", "127.0.0.1:10249"},
		{"file beside flags, which do not count", "--metrics-bind-address=192.0.2.1:1 --metrics-port=2", "mode: iptables", "127.0.0.1:10249"},
		{"broken file", "", "metricsBindAddress: [", "127.0.0.1:10249"},
		{"a name", "--metrics-bind-address=localhost:10249", "", "localhost:10249"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &proxy{args: append([]string{"kube-proxy"}, strings.Fields(c.args)...)}
			if c.config != "" {
				p.config, p.configPath = []byte(c.config), "/c.yaml"
			}
			if got := p.endpoint("metricsBindAddress", "metrics-bind-address", "metrics-port", defaultMetricsPort); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if got := (*proxy)(nil).endpoint("healthzBindAddress", "healthz-bind-address", "healthz-port", defaultHealthzPort); got != "127.0.0.1:10256" {
		t.Errorf("without a kube-proxy: %s", got)
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct {
		name, text string
		n          int64
		want       string
		cut        bool
	}{
		{"empty", "", 10, "", false},
		{"shorter", "a\nb\n", 10, "a\nb\n", false},
		{"as long", "aaaa\nbbbb\n", 10, "aaaa\nbbbb\n", false},
		{"longer", "aaaa\nbbbb\ncccc\n", 11, "bbbb\ncccc\n", true},
		{"within a line", "aaaa\nbbbb\ncccc\n", 8, "cccc\n", true},
		{"no newline at the end", "aaaa\nbbbb\ncc", 9, "bbbb\ncc", true},
		{"one character", "ä\nö\n", 4, "ö\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			data, cut, err := tail(file, c.n)
			if err != nil || string(data) != c.want || cut != c.cut {
				t.Errorf("got %q, cut %v, %v; want %q, cut %v", data, cut, err, c.want, c.cut)
			}
		})
	}
	if _, _, err := tail(filepath.Join(t.TempDir(), "none"), 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
	if e := readLog(filepath.Join(t.TempDir(), "none")); e.Status != snapshot.Failed || e.Error != "read kube-proxy's log: no such file or directory" {
		t.Errorf("%s: %s", e.Status, e.Error)
	}
}

// TestLongLog: of a long log the end is kept, and the evidence says so.
func TestLongLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var b strings.Builder
	for n := 0; b.Len() < maxProxyLog+10_000; n++ {
		fmt.Fprintf(&b, "I0102 03:04:05.000000       1 proxier.go:%d] line\n", n)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e := readLog(file)
	if e.Status != snapshot.OK || e.Note != "the last 2 MiB of a longer log" || len(e.Data) > maxProxyLog ||
		!strings.HasSuffix(b.String(), string(e.Data)) || !strings.HasPrefix(string(e.Data), "I0102") {
		t.Errorf("%s, %q, %d bytes, begins %.20q", e.Status, e.Note, len(e.Data), e.Data)
	}
}

func TestGet(t *testing.T) {
	const patience = 300 * time.Millisecond
	answer := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
		says    string // of the error
	}{
		{"ok", answer(200, "iptables"), "iptables", ""},
		{"empty", answer(200, ""), "", ""},
		// An unhealthy kube-proxy says since when.
		{"unhealthy", answer(503, `{"lastUpdated":"then"}`), `{"lastUpdated":"then"}`, ""},
		{"not found", answer(404, "404 page not found\n"), "", "it answers 404 Not Found"},
		{"forbidden", answer(403, "no\n"), "", "it answers 403 Forbidden"},
		{"failed", answer(500, "no\n"), "", "it answers 500 Internal Server Error"},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "", "it answers 302 Found"},
		{"hangs", hang, "", "no answer in time"},
		{"hangs in the middle", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			hang(w, r)
		}, "", "no answer in time"},
		{"closes", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", "EOF"},
		{"closes in the middle", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "", "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			begun := time.Now()
			data, err := get(t.Context(), patience, s.URL+"/healthz")
			if took := time.Since(begun); took > 10*patience {
				t.Errorf("it took %v", took)
			}
			if c.says == "" && (err != nil || string(data) != c.want) {
				t.Errorf("got %q, %v, want %q", data, err, c.want)
			}
			if c.says != "" && (err == nil || err.Error() != c.says || data != nil) {
				t.Errorf("got %q, %v, want the error %q", data, err, c.says)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := get(t.Context(), patience, "http://"+l.Addr().String()+"/healthz"); err == nil || err.Error() != "connection refused" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no HTTP", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // it has served
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
				_ = c.Close() // what it says is enough
			}
		}()
		_, err = get(t.Context(), patience, "http://"+l.Addr().String()+"/healthz")
		if err == nil || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("got %q", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cancel(); hang(w, r) }))
		defer s.Close()
		_, err := get(ctx, patience, s.URL)
		if e := couldNot(proxyHealthzFile, snapshot.ProxyHealthz, "kube-proxy's /healthz", err); e.Status != snapshot.NotCollected || e.Error != "read kube-proxy's /healthz: interrupted" {
			t.Errorf("%s: %s", e.Status, e.Error)
		}
	})
}

// TestProxyHTTP asks endpoints inside a namespace, and nobody where nobody listens.
func TestProxyHTTP(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		shell(t, "ip link set lo up")
		for _, e := range readProxyHTTP(t.Context(), p, nil) {
			if e.Status != snapshot.Absent || !strings.Contains(e.Note, "nobody listens on port 102") {
				t.Errorf("%s is %s: %s%s", e.File, e.Status, e.Error, e.Note)
			}
		}
		for addr, handler := range map[string]http.HandlerFunc{
			"0.0.0.0:10256": func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"lastUpdated":"then"}`)
			},
			"[::1]:10249": func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/configz" {
					http.NotFound(w, r)
					return
				}
				_, _ = io.WriteString(w, "iptables")
			},
		} {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
			s.Start()
			defer s.Close()
		}
		want := map[string]struct {
			status snapshot.Status
			text   string
		}{
			proxyHealthzFile: {snapshot.OK, `{"lastUpdated":"then"}`}, proxyModeFile: {snapshot.OK, "iptables"},
			proxyConfigzFile: {snapshot.Failed, "read kube-proxy's /configz: it answers 404 Not Found"},
		}
		six := &proxy{configPath: "/c", config: []byte("bindAddress: '::'\nhealthzBindAddress: 0.0.0.0:10256\n")}
		for _, e := range readProxyHTTP(t.Context(), p, six) {
			if w, ok := want[e.File]; ok && (e.Status != w.status || string(e.Data)+e.Error != w.text) {
				t.Errorf("%s is %s: %q%s", e.File, e.Status, e.Data, e.Error)
			}
		}
		// Somebody listens there, and not at this address.
		for _, e := range readProxyHTTP(t.Context(), p, nil) {
			if e.File == proxyModeFile && (e.Status != snapshot.Failed || e.Error != "read kube-proxy's /proxyMode: connection refused") {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
		}
		named := &proxy{args: []string{"kube-proxy", "--metrics-bind-address=localhost:10249"}}
		for _, e := range readProxyHTTP(t.Context(), p, named) {
			if e.File == proxyModeFile && (e.Status != snapshot.NotCollected || !strings.Contains(e.Error, `"localhost:10249", which is no address`)) {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
		}
	})
}

// idle starts a process that does nothing, under any arguments, in the thread's network namespace. Stop ends it.
func idle(t *testing.T, dir string, args ...string) (pid int, stop func()) {
	t.Helper()
	c := exec.Command("/bin/sh")
	// The shell reads its script from standard input, which stays open, and does not look at what follows -s.
	c.Args = slices.Concat(args[:1], []string{"-s", "--"}, args[1:])
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		t.Fatalf("arguments of a shell begin with a dash: %q", args[1])
	}
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid, func() {
		in.Close()
		_ = c.Wait() // the shell ends with its input
	}
}

// TestFindProxy: the kube-proxy of the namespace is found, and none of another one.
func TestFindProxy(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	dir := t.TempDir()
	config := "hostnameOverride: Node-7\nclientConnection: {kubeconfig: own.conf}\n"
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Outside: another cluster's, as a pod may run it.
	_, stop := idle(t, dir, "kube-proxy", "--hostname-override=other")
	defer stop()
	inNamespace(t, func(t *testing.T, _ *place) {
		if p, err := findProxy(); p != nil || err != nil {
			t.Errorf("found in an empty namespace: %+v, %v", p, err)
		}
		// That there is none is an answer only where all processes are to be seen.
		e := (*proxy)(nil).evidence(nil)
		switch {
		case len(e) != 1:
			t.Errorf("%+v", e)
		case seesAllProcesses() && (e[0].Status != snapshot.Absent || e[0].Note == ""):
			t.Errorf("%+v", e)
		case !seesAllProcesses() && (e[0].Status != snapshot.NotCollected || !strings.Contains(e[0].Error, "hostPID")):
			t.Errorf("%+v", e)
		}
		// A name that only begins or ends like it.
		for _, name := range []string{"kube-proxy-exporter", "my-kube-proxy", "/kube-proxy/agent"} {
			_, stop := idle(t, dir, name)
			defer stop()
		}
		if p, err := findProxy(); p != nil || err != nil {
			t.Errorf("found under another name: %+v, %v", p, err)
		}
		server, stop := idle(t, dir, "/usr/local/bin/k3s", "--kube-proxy-arg=proxy-mode=nftables")
		defer stop()
		if p, err := findProxy(); err != nil || p == nil || p.pid != server {
			t.Errorf("k3s is not found: %+v, %v", p, err)
		}
		pid, stop := idle(t, dir, "/usr/local/bin/kube-proxy", "--config", "c.yaml", "--v=2")
		defer stop()
		p, err := findProxy()
		if err != nil || p == nil || p.pid != pid {
			t.Errorf("kube-proxy is not found: %+v, %v", p, err)
			return
		}
		// A relative path is from the process's working directory, and all paths are below its root.
		if p.configPath != "c.yaml" || string(p.config) != config || p.configErr != nil || p.nodeName() != "node-7" {
			t.Errorf("configuration %q, %v: %q", p.configPath, p.configErr, p.config)
		}
		if want := fmt.Sprintf("/proc/%d/root%s/own.conf", pid, dir); p.kubeconfig() != want {
			t.Errorf("kubeconfig is %s, want %s", p.kubeconfig(), want)
		}
		if e := p.evidence(nil); e[0].File != proxyArgsFile || e[0].Status != snapshot.OK || !strings.HasSuffix(string(e[0].Data), "--config c.yaml --v=2\n") ||
			e[1].File != proxyConfigFile || e[1].Status != snapshot.OK {
			t.Errorf("%+v", e)
		}
	})
}

// TestProxyConfigGone: the file of --config is not there any more, or never was.
func TestProxyConfigGone(t *testing.T) {
	for _, c := range []struct {
		name string
		p    proxy
		want snapshot.Status
		says string
	}{
		{"no flag", proxy{pid: os.Getpid(), args: []string{"kube-proxy"}}, snapshot.Absent, "kube-proxy runs without --config"},
		{"gone", proxy{pid: os.Getpid(), args: []string{"kube-proxy", "--config=/nope/c.yaml"}}, snapshot.Failed, "read kube-proxy's configuration: no such file or directory"},
		{"a folder", proxy{pid: os.Getpid(), args: []string{"kube-proxy", "--config=/"}}, snapshot.Failed, "read kube-proxy's configuration: is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.readConfig()
			if e := c.p.evidence(nil)[1]; e.File != proxyConfigFile || e.Status != c.want || e.Error+e.Note != c.says {
				t.Errorf("%s is %s: %s%s", e.File, e.Status, e.Error, e.Note)
			}
		})
	}
}

// TestHiddenProxy: without the right to look at other processes it is not said that there is none.
func TestHiddenProxy(t *testing.T) {
	inNamespace(t, func(t *testing.T, _ *place) {
		runtime.LockOSThread()
		_, stop := idle(t, "/", "kube-proxy", "--hostname-override=n1")
		defer stop()
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, e := unix.RawSyscall(call, 65534, 65534, 65534); e != 0 {
				t.Errorf("become another user: %v", e)
				return
			}
		}
		p, err := findProxy()
		if p != nil || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("found %+v, %v", p, err)
			return
		}
		e := p.evidence(err)
		if len(e) != 1 || e[0].Status != snapshot.Denied || !strings.Contains(e[0].Error, "(kube-proxy) cannot be seen: permission denied (run as root") || strings.Contains(e[0].Error, "\n") {
			t.Errorf("%+v", e)
		}
	})
}
