package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// The names of the evidence of kube-proxy.
const (
	proxyArgsFile    = "kube-proxy-args.txt"
	proxyConfigFile  = "kube-proxy-config.yaml"
	proxyLogFile     = "kube-proxy.log"
	proxyModeFile    = "proxyMode.txt"
	proxyConfigzFile = "configz.json"
	proxyHealthzFile = "healthz.json"
	proxyMetricsFile = "metrics.txt"
)

// proxy is a kube-proxy that runs in a place: a process of its own, or inside another program.
type proxy struct {
	pid  int
	args []string
	// config is the file of --config as the process sees it, and its content.
	config     []byte
	configPath string
	configErr  error
}

// inProcess are programs that run kube-proxy inside of themselves.
var inProcess = []string{"k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite", "hyperkube"}

// findProxy looks for kube-proxy among the processes of the thread's network namespace: by its name, else one of
// the programs that are known to contain it. Nil: there is none to be seen; the error says of which it cannot be
// told whose network it serves.
func findProxy() (*proxy, error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, reasonOf(err)
	}
	var (
		within *proxy
		hidden error
	)
	for _, pid := range processes() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) == 0 {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		named := path.Base(args[0]) == "kube-proxy" || len(args) > 1 && args[1] == "kube-proxy"
		if !named && !slices.Contains(inProcess, path.Base(args[0])) {
			continue
		}
		// A pod may run a kube-proxy of its own (a cluster inside a cluster): that is not this node's.
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if errors.Is(err, fs.ErrPermission) && hidden == nil {
			hidden = fmt.Errorf("whether it is process %d (%s) cannot be seen: %w", pid, path.Base(args[0]), reasonOf(err))
		}
		if err != nil || ns != own {
			continue
		}
		p := &proxy{pid: pid, args: args}
		if named {
			p.readConfig()
			return p, nil
		}
		if within == nil {
			within = p
		}
	}
	if within != nil {
		return within, nil
	}
	return nil, hidden
}

// firstPIDNamespace is the number that the kernel gives the namespace of processes that it boots with (PROC_PID_INIT_INO).
const firstPIDNamespace = "pid:[4026531836]"

// seesAllProcesses tells whether /proc shows every process of the machine, so that one that is not there does not run:
// its first process is that of the first namespace, whichever svcnet is in itself, and root's eyes pass over a hidepid.
func seesAllProcesses() bool {
	ns, err := os.Readlink("/proc/1/ns/pid")
	return err == nil && ns == firstPIDNamespace && os.Geteuid() == 0
}

// processes are the numbers of all processes, in order.
func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// flag is the value of a flag, in either form; empty when it is not given.
func (p *proxy) flag(name string) string {
	value := ""
	for i, a := range p.args {
		a = strings.TrimPrefix(a, "-")
		switch {
		case a == "-"+name && i+1 < len(p.args):
			value = p.args[i+1]
		case strings.HasPrefix(a, "-"+name+"="):
			value = a[len(name)+2:]
		}
	}
	return value
}

// maxProxyConfig bounds a configuration file; real ones have a few kilobytes.
const maxProxyConfig = 1 << 20

// readConfig reads the file of --config through the process's own root: it may run in a container.
func (p *proxy) readConfig() {
	p.configPath = p.flag("config")
	if p.configPath == "" {
		return
	}
	file := p.inside(p.configPath)
	f, err := os.Open(file)
	if err != nil {
		p.configErr = reasonOf(err)
		return
	}
	defer f.Close()
	p.config, err = io.ReadAll(io.LimitReader(f, maxProxyConfig))
	p.configErr = reasonOf(err)
}

// inside is a path as the process sees it, seen from here.
func (p *proxy) inside(file string) string {
	if !path.IsAbs(file) {
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid)); err == nil {
			file = path.Join(cwd, file)
		}
	}
	return fmt.Sprintf("/proc/%d/root%s", p.pid, path.Clean("/"+file))
}

// reasonOf takes the path out of an error of the file system.
func reasonOf(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// setting is what the configuration file says at a dotted path, as a string; empty when it does not.
func (p *proxy) setting(keys ...string) string {
	var doc any
	if p == nil || len(p.config) == 0 || yaml.Unmarshal(p.config, &doc) != nil {
		return ""
	}
	for _, k := range keys {
		m, ok := doc.(map[string]any)
		if !ok {
			return ""
		}
		doc = m[k]
	}
	s, _ := doc.(string)
	return s
}

// settingOr is a setting, or the flag that stands for it. kube-proxy with a configuration file ignores such flags.
func (p *proxy) settingOr(flag string, keys ...string) string {
	switch {
	case p == nil:
		return ""
	case p.configPath != "":
		return p.setting(keys...)
	}
	return p.flag(flag)
}

// nodeName is the name under which this kube-proxy looks for its Node; empty when nothing overrides the host name.
func (p *proxy) nodeName() string {
	if p == nil {
		return ""
	}
	name := p.flag("hostname-override")
	if name == "" {
		name = p.setting("hostnameOverride")
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// kubeconfig is the path of the credentials that this kube-proxy uses, seen from here; empty when it has none of
// its own.
func (p *proxy) kubeconfig() string {
	if p == nil {
		return ""
	}
	file := p.settingOr("kubeconfig", "clientConnection", "kubeconfig")
	if file == "" {
		return ""
	}
	return p.inside(file)
}

// evidence is what the process and its files tell; unseen is why there may be one that was not found.
func (p *proxy) evidence(unseen error) []snapshot.Evidence {
	if p == nil && unseen != nil {
		return []snapshot.Evidence{couldNot(proxyArgsFile, snapshot.ProxyArgs, "kube-proxy's arguments", unseen)}
	}
	if p == nil && seesAllProcesses() {
		return []snapshot.Evidence{absent(proxyArgsFile, snapshot.ProxyArgs,
			"no kube-proxy, and no program that is known to contain one, among all processes of the machine")}
	}
	if p == nil {
		return []snapshot.Evidence{missed(proxyArgsFile, snapshot.ProxyArgs, snapshot.NotCollected,
			errors.New("no kube-proxy among the processes that are to be seen (in a container the node's are not, without hostPID)"))}
	}
	out := []snapshot.Evidence{evidence(proxyArgsFile, snapshot.ProxyArgs, []byte(strings.Join(p.args, " ")+"\n"))}
	switch {
	case p.configPath == "":
		out = append(out, absent(proxyConfigFile, snapshot.ProxyConfig, "kube-proxy runs without --config"))
	case p.configErr != nil:
		out = append(out, couldNot(proxyConfigFile, snapshot.ProxyConfig, "kube-proxy's configuration", p.configErr))
	default:
		out = append(out, evidence(proxyConfigFile, snapshot.ProxyConfig, p.config))
	}
	return append(out, p.log())
}

// maxProxyLog is how much of a log's end is kept: the end tells what kube-proxy did last.
const maxProxyLog = 2 << 20

// log reads the newest end of the log: where the process writes to a file, or where the kubelet keeps the logs of
// kube-proxy's pod. A log that only the journal has is not read.
func (p *proxy) log() snapshot.Evidence {
	for _, fd := range []int{2, 1} {
		file := fmt.Sprintf("/proc/%d/fd/%d", p.pid, fd)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return readLog(file)
		}
	}
	if dir := p.flag("log-dir"); dir != "" {
		return readLog(p.inside(path.Join(dir, "kube-proxy.INFO")))
	}
	// The pod's logs lie on the node, not in the container. /proc/1/root is the node where svcnet runs in a
	// container with hostPID.
	for _, root := range []string{"", "/proc/1/root"} {
		logs, err := filepath.Glob(root + "/var/log/pods/kube-system_kube-proxy-*/kube-proxy/*.log")
		if err != nil || len(logs) == 0 {
			continue
		}
		slices.SortFunc(logs, func(a, b string) int { return modified(a).Compare(modified(b)) })
		return readLog(logs[len(logs)-1])
	}
	return missed(proxyLogFile, snapshot.ProxyLog, snapshot.NotCollected,
		errors.New("kube-proxy's log was not found: it writes to no file, and /var/log/pods has none of it (journalctl may; give it with -f)"))
}

func modified(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func readLog(file string) snapshot.Evidence {
	data, cut, err := tail(file, maxProxyLog)
	if err != nil {
		return couldNot(proxyLogFile, snapshot.ProxyLog, "kube-proxy's log", reasonOf(err))
	}
	e := evidence(proxyLogFile, snapshot.ProxyLog, data)
	if cut {
		e.Note = fmt.Sprintf("the last %d MiB of a longer log", maxProxyLog>>20)
	}
	return e
}

// tail reads whole lines from the last n bytes of a file.
func tail(file string, n int64) (data []byte, cut bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(0, info.Size()-n)
	data, err = io.ReadAll(io.NewSectionReader(f, from, n))
	if from > 0 {
		if _, rest, ok := bytes.Cut(data, []byte("\n")); ok {
			data = rest
		}
	}
	return data, from > 0, err
}

// Where kube-proxy answers unless it is told otherwise.
const (
	defaultHealthzPort = "10256"
	defaultMetricsPort = "10249"
)

// readProxyHTTP asks kube-proxy's endpoints on this machine. It asks only where a socket listens: a packet to a
// port that nobody listens on would be for nothing.
func readProxyHTTP(ctx context.Context, p *place, running *proxy) []snapshot.Evidence {
	healthz := running.endpoint("healthzBindAddress", "healthz-bind-address", "healthz-port", defaultHealthzPort)
	metrics := running.endpoint("metricsBindAddress", "metrics-bind-address", "metrics-port", defaultMetricsPort)
	listening := listeningPorts(ctx)
	ask := func(file string, f snapshot.Format, at, path string) snapshot.Evidence {
		what := "kube-proxy's " + path
		port, err := netip.ParseAddrPort(at)
		switch {
		case err != nil:
			return missed(file, f, snapshot.NotCollected, fmt.Errorf("read %s: it listens on %q, which is no address", what, at))
		case !slices.Contains(listening, port.Port()):
			return absent(file, f, fmt.Sprintf("nobody listens on port %d, where kube-proxy would answer %s", port.Port(), path))
		}
		data, err := get(ctx, p.timeout, "http://"+at+path)
		if err != nil {
			return couldNot(file, f, what, err)
		}
		return evidence(file, f, data)
	}
	return []snapshot.Evidence{
		ask(proxyHealthzFile, snapshot.ProxyHealthz, healthz, "/healthz"),
		ask(proxyConfigzFile, snapshot.ProxyConfigz, metrics, "/configz"),
		ask(proxyModeFile, snapshot.ProxyMode, metrics, "/proxyMode"),
		ask(proxyMetricsFile, snapshot.ProxyMetrics, metrics, "/metrics"),
	}
}

// silentProxyHTTP says that the endpoints were left alone.
func silentProxyHTTP() []snapshot.Evidence {
	err := errors.New("not asked: a request would move packet counters (--silent)")
	return []snapshot.Evidence{
		missed(proxyHealthzFile, snapshot.ProxyHealthz, snapshot.NotCollected, err),
		missed(proxyConfigzFile, snapshot.ProxyConfigz, snapshot.NotCollected, err),
		missed(proxyModeFile, snapshot.ProxyMode, snapshot.NotCollected, err),
		missed(proxyMetricsFile, snapshot.ProxyMetrics, snapshot.NotCollected, err),
	}
}

// endpoint is the address to ask: what the configuration or the flags say, with an unspecified address taken as
// loopback.
func (p *proxy) endpoint(setting, flag, portFlag, port string) string {
	at := p.settingOr(flag, setting)
	if p != nil && p.configPath == "" {
		if n := p.flag(portFlag); n != "" {
			port = n
		}
	}
	host, n, err := net.SplitHostPort(at)
	if err != nil {
		host, n = strings.Trim(at, "[]"), port
	}
	if at == "" && p != nil && p.configPath != "" {
		// In a file, bindAddress: "::" alone moves the endpoints to ::1. That is what kubeadm writes for IPv6.
		if a, err := netip.ParseAddr(p.setting("bindAddress")); err == nil && a.Is6() && !a.Is4In6() {
			host = "::"
		}
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.Unmap().IsUnspecified() {
		host = "127.0.0.1"
		if a.Is6() && !a.Is4In6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, n)
}

// maxAnswer bounds one answer; /metrics of a busy kube-proxy has some hundred kilobytes.
const maxAnswer = 16 << 20

// get asks one endpoint over a socket of the thread's network namespace.
func get(ctx context.Context, timeout time.Duration, url string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, min(timeout, 5*time.Second))
	defer cancel()
	request, err := http.NewRequestWithContext(within, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{FallbackDelay: -1}).DialContext(within, "tcp", request.URL.Host)
	if err != nil {
		return nil, lastError(err)
	}
	// The connection is made here, on the calling thread: the transport's own goroutines may run on others.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	defer transport.CloseIdleConnections()
	request.Header.Set("User-Agent", "svcnet")
	response, err := transport.RoundTrip(request)
	if err != nil {
		_ = conn.Close()
		return nil, lastError(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, lastError(err)
	}
	// An unhealthy kube-proxy answers 503, and says in the body since when.
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	return body, nil
}

// lastError is the innermost error: addresses and verbs around it repeat what the message says already.
func lastError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return errors.New("no answer in time")
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// listeningPorts are the TCP ports on which somebody listens in the thread's network namespace.
func listeningPorts(ctx context.Context) []uint16 {
	var out []uint16
	for _, file := range []string{"tcp", "tcp6"} {
		sockets, err := readSocketFile(ctx, "/proc/thread-self/net/"+file, socketSource{file, tcpLine})
		if err != nil {
			continue
		}
		for _, s := range sockets {
			out = append(out, s.local.Port())
		}
	}
	return out
}
