package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// A launch is one run of svcnet on a node, with less than it would like to have.
type launch struct {
	node *lab.Node // n1 when nil
	// kubeconfig goes into $KUBECONFIG; empty: there is none.
	kubeconfig string
	// through starts svcnet: a command line that takes another one.
	through []string
	uid     uint32
	// stdout is where the document goes; nil: it is kept.
	stdout *os.File
	args   []string // the question when nil
}

// An ending is what a launch came to.
type ending struct {
	out, said string
	code      int
}

// nobody is the user of whom no file is.
const nobody = 65534

// without starts svcnet as a root that lacks capabilities, and cannot get them back.
func without(capabilities ...string) []string {
	list := "-" + strings.Join(capabilities, ",-")
	return []string{"setpriv", "--bounding-set", list, "--inh-caps", list}
}

// amid starts svcnet behind a script, in a mount namespace of its own: what is mounted there, nobody else sees.
func amid(script string) []string {
	return []string{"unshare", "--mount", "sh", "-ec", script, "sh"}
}

// An edge is the place where svcnet meets a cluster that is not as it should be.
type edge struct {
	*stage
	// dir is for everybody to read, and has the program and kubeconfigs.
	dir, program string
}

func newEdge(t *testing.T, s *stage) *edge {
	t.Helper()
	dir, err := os.MkdirTemp("", "svcnet-missing-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e := &edge{stage: s, dir: dir}
	text, err := os.ReadFile(svcnet(t))
	if err != nil {
		t.Fatal(err)
	}
	e.program = e.file(t, "svcnet", 0o755, text)
	for _, user := range []string{"admin", "viewer"} {
		text, err := os.ReadFile(s.Kubeconfig(user))
		if err != nil {
			t.Fatal(err)
		}
		e.file(t, user, 0o644, text)
	}
	return e
}

// file writes a file into the edge's folder.
func (e *edge) file(t *testing.T, name string, mode os.FileMode, text []byte) string {
	t.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// admin is the kubeconfig of admin with one thing replaced.
func (e *edge) admin(t *testing.T, name, old, now string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.dir, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the kubeconfig has no %q", old)
	}
	return e.file(t, name, 0o644, []byte(strings.Replace(string(text), old, now, 1)))
}

// server listens in the namespace of the control plane.
func (e *edge) server(t *testing.T) net.Listener {
	t.Helper()
	var l net.Listener
	err := e.ControlPlane.Netns().Do(func() (err error) {
		l, err = net.Listen("tcp4", e.ControlPlane.IPv4.String()+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // a server closed it before
	return l
}

// front is an API server that hands requests on to the real one, but for what spoil answers itself. The path is its
// kubeconfig.
func (e *edge) front(t *testing.T, spoil func(w http.ResponseWriter, r *http.Request, whole []byte) bool) string {
	t.Helper()
	s := &httptest.Server{Listener: e.server(t), Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole, err := e.Request(r.Context(), r.Method, r.URL.RequestURI(), "", nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if spoil(w, r, whole) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(whole) // who does not listen any more is the subject of some tests
	})}}
	s.Start()
	// Those who hang do so until their client has left, which it has.
	t.Cleanup(s.Close)
	return e.kubeconfigFor(t, s.Listener)
}

func (e *edge) kubeconfigFor(t *testing.T, l net.Listener) string {
	t.Helper()
	return e.file(t, "to-"+strings.ReplaceAll(t.Name(), "/", "-"), 0o644, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c}}]
`, l.Addr()))
}

// command is a launch that is still to be started, inside the node's namespace.
func (e *edge) command(t *testing.T, l launch, stdout, stderr io.Writer) *exec.Cmd {
	t.Helper()
	args := slices.Concat(l.through, []string{e.program}, l.args)
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Stdout, c.Stderr = stdout, stderr
	if l.stdout != nil {
		c.Stdout = l.stdout
	}
	c.Env = slices.DeleteFunc(l.node.Env(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") })
	c.Env = append(c.Env, "HOME=/nonexistent")
	if l.kubeconfig != "" {
		c.Env = append(c.Env, "KUBECONFIG="+l.kubeconfig)
	}
	if l.uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: l.uid, Gid: l.uid}}
	}
	return c
}

// question is what all of them ask.
var question = []string{"trace", "svc/many", "-n", "store"}

func (e *edge) launch(t *testing.T, l launch, args ...string) ending {
	t.Helper()
	if l.node == nil {
		l.node = e.n1
	}
	if l.args == nil {
		l.args = question
	}
	l.args = slices.Concat(l.args, args)
	var out, said bytes.Buffer
	var c *exec.Cmd
	err := l.node.Netns().Do(func() error {
		c = e.command(t, l, &out, &said)
		return c.Run()
	})
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return ending{out.String(), said.String(), c.ProcessState.ExitCode()}
}

// document decodes what stands on standard output, which must be one document and nothing else.
func document(t *testing.T, out string) report.Trace {
	t.Helper()
	var d report.Trace
	in := json.NewDecoder(strings.NewReader(out))
	if err := in.Decode(&d); err != nil {
		t.Fatalf("no document: %v: %q", err, out)
	}
	if _, err := in.Token(); err != io.EOF {
		t.Errorf("there is something behind the document: %v", err)
	}
	return d
}

// oneLine checks a message for people: one line that is not too long to be read, and says what to do next.
func oneLine(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsAny(text, "\n\r\t") || len(text) < 20 || len(text) > 400 {
		t.Errorf("not one readable line: %q", text)
	}
	if !strings.Contains(text, "(") && !strings.Contains(text, "; ") {
		t.Errorf("it does not say what to do next: %q", text)
	}
}

// oneError checks standard error: nothing but one error on one line.
func oneError(t *testing.T, said, want string) {
	t.Helper()
	line, ok := strings.CutSuffix(said, "\n")
	if !ok || !strings.HasPrefix(line, "error: ") || !strings.Contains(line, want) {
		t.Errorf("standard error is %q, want one line with %q", said, want)
	}
	oneLine(t, line)
}

// unnumbered leaves numbers out: processes come and go between two launches.
func unnumbered(text string) string { return regexp.MustCompile(`\d+`).ReplaceAllString(text, "#") }

// A gap is the source that a launch cannot read: the status, and what its line must say.
type gap struct{ status, says string }

var (
	noRules  = gap{"denied", "operation not permitted (run as root"}
	noTool   = gap{"failed", "is not installed (install it"}
	noProxy  = gap{"denied", "cannot be seen: permission denied (run as root"}
	noAnswer = gap{"failed", "within 2s (check that the API server runs"}
)

func forbidden(resource string) gap {
	return gap{"denied", fmt.Sprintf("%s is forbidden: User \"lab-viewer\" cannot list resource", resource)}
}

// What becomes of the rules when all of them lack root, and of objects when they are read to the end.
var (
	noNFT  = map[string]gap{"iptables-nft-save.txt": noRules, "ip6tables-nft-save.txt": noRules, "nft.nl": noRules, "ipset-save.txt": noRules}
	seldom = map[string]gap{"iptables-legacy-save.txt": {"denied", "ip_tables_names: permission denied (run as root: sudo"}, "ip6tables-legacy-save.txt": {"denied", "ip6_tables_names: permission denied (run as root: sudo"}}
)

func both(gaps ...map[string]gap) map[string]gap {
	out := map[string]gap{}
	for _, g := range gaps {
		for file, want := range g {
			out[file] = want
		}
	}
	return out
}

// A lack is a launch with what must come of it.
type lack struct {
	name string
	// tree: the tree is looked at too, beside the document.
	tree bool
	launch
	code int
	// gaps are the sources that are no answer, by file. All others are one.
	gaps map[string]gap
	// unknown: no path can be told, because of this. Else all paths go to the four backends, and their state is
	// known or not.
	unknown   string
	stateless bool
	// says is the error when there is no document.
	says string
}

// TestMissing takes away, one after the other, what svcnet needs to answer: what is left is shown, and for what is
// not there is one line each, a status and an exit code.
func TestMissing(t *testing.T) {
	// On n3 the rules lie behind the old interface, which asks for other rights.
	s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("m%d", os.Getpid()), NoProxy: true, NodeBackend: map[string]lab.Backend{"n3": lab.Legacy}}))
	e := newEdge(t, s)
	admin, viewer := filepath.Join(e.dir, "admin"), filepath.Join(e.dir, "viewer")
	own := e.file(t, "own", 0o600, []byte("apiVersion: v1\nkind: Config\n"))
	if err := os.Chown(own, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	noSuch := func(format string, args ...any) []string {
		return append(slices.Clone(question), fmt.Sprintf(format, args...))
	}
	hide := `mount -t tmpfs none /usr/sbin; exec "$@"`
	// A file that is there, and that nobody may run.
	block := `mount --bind "$KUBECONFIG" /usr/sbin/xtables-nft-multi; exec "$@"`
	rawOnly := gap{"denied", "Permission denied (you must be root) (run as root with all capabilities"}

	lacks := []lack{
		{name: "nothing", tree: true, launch: launch{kubeconfig: admin}},
		{name: "nothing legacy", launch: launch{node: s.n3, kubeconfig: admin}},

		// Rights.
		{name: "root", tree: true, launch: launch{kubeconfig: admin, uid: nobody}, code: 4, unknown: "permission denied (run as root: sudo",
			gaps: both(noNFT, seldom, map[string]gap{"kube-proxy-args.txt": noProxy, "conntrack.txt": {"denied", "permission denied (run as root: sudo"}})},
		{name: "root and kubeconfig", launch: launch{uid: nobody}, code: 1, says: "its rules are for root alone to read; run this as root"},
		{name: "root and the API", launch: launch{uid: nobody, args: noSuch("--no-api")}, code: 1, says: "its rules are for root alone to read; run this as root"},
		{name: "CAP_NET_ADMIN", tree: true, launch: launch{kubeconfig: admin, through: without("net_admin")}, code: 4, gaps: noNFT, unknown: "operation not permitted"},
		{name: "CAP_NET_ADMIN legacy", launch: launch{node: s.n3, kubeconfig: admin, through: without("net_admin")}, code: 4, unknown: "operation not permitted",
			gaps: both(noNFT, map[string]gap{"iptables-legacy-save.txt": noRules, "ip6tables-legacy-save.txt": noRules})},
		{name: "CAP_NET_RAW", launch: launch{kubeconfig: admin, through: without("net_raw")}},
		{name: "CAP_NET_RAW legacy", launch: launch{node: s.n3, kubeconfig: admin, through: without("net_raw")}, code: 4, unknown: "must be root",
			gaps: map[string]gap{"iptables-legacy-save.txt": rawOnly, "ip6tables-legacy-save.txt": rawOnly}},
		{name: "CAP_SYS_PTRACE", tree: true, launch: launch{kubeconfig: admin, through: without("sys_ptrace")}, gaps: map[string]gap{"kube-proxy-args.txt": noProxy}},
		{name: "CAP_SYS_PTRACE and kubeconfig", launch: launch{through: without("sys_ptrace")}, code: 4, stateless: true,
			gaps: map[string]gap{"kube-proxy-args.txt": noProxy, "api": {"not-collected", "no kubeconfig"}}},
		{name: "CAP_DAC_OVERRIDE", launch: launch{kubeconfig: admin, through: without("dac_override", "dac_read_search")}},
		{name: "CAP_DAC_OVERRIDE legacy", launch: launch{node: s.n3, kubeconfig: admin, through: without("dac_override", "dac_read_search")}},
		{name: "CAP_DAC_OVERRIDE, kubeconfig of another user", launch: launch{kubeconfig: own, through: without("dac_override", "dac_read_search")}, code: 1, says: "permission denied (name another"},
		{name: "CAP_SYS_ADMIN", launch: launch{kubeconfig: admin, through: without("sys_admin")}},
		{name: "CAP_SYS_ADMIN with a pod", launch: launch{kubeconfig: admin, through: without("sys_admin"), args: noSuch("--pod=store/client-1")},
			gaps: map[string]gap{"pods/store/client-1/iptables-nft-save.txt": {"denied", "namespaces of other processes: permission denied (run as root"}}},
		{name: "all capabilities", launch: launch{kubeconfig: admin, through: without("all")}, code: 4, unknown: "operation not permitted",
			gaps: both(noNFT, map[string]gap{"kube-proxy-args.txt": noProxy})},

		// Tools.
		{name: "iptables", tree: true, launch: launch{kubeconfig: admin, through: amid(hide)}, code: 4, unknown: "is not installed",
			gaps: map[string]gap{"iptables-nft-save.txt": noTool, "ip6tables-nft-save.txt": noTool}},
		{name: "iptables legacy", launch: launch{node: s.n3, kubeconfig: admin, through: amid(hide)}, code: 4, unknown: "is not installed",
			gaps: map[string]gap{"iptables-legacy-save.txt": noTool, "ip6tables-legacy-save.txt": noTool}},
		{name: "iptables that may be run", launch: launch{kubeconfig: admin, through: amid(block)}, code: 4, unknown: "is not installed",
			gaps: map[string]gap{"iptables-nft-save.txt": noTool, "ip6tables-nft-save.txt": noTool}},

		// The API.
		{name: "API server", tree: true, launch: launch{kubeconfig: e.admin(t, "down", ":6443", ":1")}, code: 4, stateless: true,
			gaps: map[string]gap{"api": {"failed", "connect: connection refused (check that the API server runs"}}},
		{name: "route to the API", launch: launch{kubeconfig: e.admin(t, "away", "172.30.0.10", "203.0.113.9")}, code: 4, stateless: true,
			gaps: map[string]gap{"api": {"failed", "network is unreachable (check that"}}},
		{name: "name of the API", launch: launch{kubeconfig: e.admin(t, "nowhere", "172.30.0.10", "api.invalid"), args: noSuch("--request-timeout=2s")}, code: 4, stateless: true,
			gaps: map[string]gap{"api": {"failed", "read the API with the kubeconfig: "}}},
		{name: "trust", launch: launch{kubeconfig: e.admin(t, "stranger", "172.30.0.10", "[fd00:30::10]")}, code: 4, stateless: true,
			gaps: map[string]gap{"api": {"failed", "x509: "}}},
		{name: "right to list", tree: true, launch: launch{kubeconfig: viewer}, code: 4, stateless: true,
			gaps: map[string]gap{"nodes.json": forbidden("nodes"), "pods.json": forbidden("pods"), "services.json": forbidden("services"), "endpointslices.json": forbidden("endpointslices.discovery.k8s.io")}},
		{name: "right to impersonate", launch: launch{kubeconfig: viewer, args: noSuch("--as=lab-admin")}, code: 4, stateless: true,
			gaps: map[string]gap{"nodes.json": {"denied", "cannot impersonate"}, "pods.json": {"denied", "cannot impersonate"}, "services.json": {"denied", "cannot impersonate"}, "endpointslices.json": {"denied", "cannot impersonate"}}},
		{name: "valid token", tree: true, launch: launch{kubeconfig: e.admin(t, "expired", "token: ", "token: not-")}, code: 4, stateless: true,
			gaps: map[string]gap{"api": {"denied", "does not accept the credentials, which may have expired (log in again"}}},
		{name: "kubeconfig that is named", tree: true, launch: launch{args: noSuch("--kubeconfig=/nope")}, code: 1, says: "/nope: no such file or directory (name another"},
		{name: "kubeconfig of the environment", launch: launch{kubeconfig: "/nope"}, code: 1, says: "no such file as $KUBECONFIG names: /nope (name another"},
		{name: "kubeconfig that is YAML", launch: launch{kubeconfig: e.file(t, "broken", 0o644, []byte("clusters: [\n  {name\n"))}, code: 1, says: "broken\": "},
		{name: "kubeconfig with a cluster", launch: launch{kubeconfig: e.file(t, "empty", 0o644, nil)}, code: 1, says: "it names no cluster (name another"},
		{name: "context", launch: launch{kubeconfig: admin, args: noSuch("--context=nope")}, code: 1, says: `"nope" does not exist (name another`},
		// kube-proxy may read all that the question needs, and a node always has its credentials.
		{name: "kubeconfig", tree: true, gaps: map[string]gap{"pods.json": {"denied", `User "system:kube-proxy" cannot list resource "pods"`}}},
		{name: "kubeconfig legacy", launch: launch{node: s.n3}, gaps: map[string]gap{"pods.json": {"denied", `User "system:kube-proxy" cannot list resource "pods"`}}},
		// Nobody asked for objects: none are missing.
		{name: "API that is not asked", launch: launch{kubeconfig: admin, args: noSuch("--no-api")}, stateless: true},
		{name: "kube-proxy and kubeconfig", launch: launch{node: s.n2}, code: 1, says: "this machine is no Kubernetes node"},
	}
	// Side by side: each only looks.
	t.Run("without", func(t *testing.T) {
		for _, c := range lacks {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				e.try(t, c)
			})
		}
	})
	t.Run("nft", e.withoutNFT)
	t.Run("API", e.brokenAPI)
	t.Run("interrupt", e.interrupt)
	t.Run("collect", e.collect)
	t.Run("standard output", e.fullOutput)
}

// try launches svcnet and holds what it prints against what must come of it.
func (e *edge) try(t *testing.T, want lack) {
	t.Helper()
	formats := []string{"json"}
	if want.tree {
		formats = append(formats, "tree")
	}
	out := map[string]string{}
	for _, format := range formats {
		got := e.launch(t, want.launch, "-o", format)
		out[format] = got.out
		if got.code != want.code {
			t.Errorf("-o %s: exit %d, want %d", format, got.code, want.code)
		}
		switch {
		case want.says != "" && got.out != "":
			t.Errorf("-o %s: standard output is %q, want nothing", format, got.out)
		case want.says != "":
			oneError(t, got.said, want.says)
		case got.said != "":
			t.Errorf("-o %s: standard error is %q, want nothing", format, got.said)
		}
	}
	if want.says != "" {
		return
	}
	d := document(t, out["json"])
	found := map[string]bool{}
	for _, src := range d.Sources {
		g, expected := want.gaps[src.File]
		switch answers := snapshot.Status(src.Status).Answers(); {
		case expected && (src.Status != g.status || !strings.Contains(src.Error, g.says)):
			t.Errorf("%s is %s: %q, want %s with %q", src.File, src.Status, src.Error, g.status, g.says)
		case !expected && (!answers || src.Error != ""):
			t.Errorf("%s is %s: %q, want an answer", src.File, src.Status, src.Error)
		}
		found[src.File] = true
		if src.Error != "" {
			oneLine(t, src.Error)
			if want.tree && !strings.Contains(unnumbered(out["tree"]), unnumbered(src.Error)) {
				t.Errorf("the tree does not say: %s", src.Error)
			}
		}
	}
	for file := range want.gaps {
		if !found[file] {
			t.Errorf("no source %s", file)
		}
	}
	if len(d.Findings) > 0 {
		t.Errorf("found %s: %s", d.Findings[0].ID, d.Findings[0].Message)
	}
	e.paths(t, want, d)
}

// paths checks that every path is there, and says no more than can be known.
func (e *edge) paths(t *testing.T, want lack, d report.Trace) {
	t.Helper()
	state := "ok"
	if want.stateless {
		state = "unknown"
	}
	families := map[string]bool{}
	for _, p := range d.Paths {
		families[p.Frontend.Address] = true
		at := p.Frontend.Address + " from " + p.SourceClass
		if want.unknown != "" {
			if p.Result != report.ResultUnknown || !strings.Contains(p.Because, want.unknown) || len(p.Backends) > 0 {
				t.Errorf("%s: %s to %d backends because %q, want unknown because of %q", at, p.Result, len(p.Backends), p.Because, want.unknown)
			}
			continue
		}
		if p.Result != report.ResultDNAT || len(p.Backends) != 4 || len(p.Uncertain) > 0 {
			t.Errorf("%s: %s to %d backends, %d conditions, want dnat to 4", at, p.Result, len(p.Backends), len(p.Uncertain))
		}
		for _, b := range p.Backends {
			if b.State != state {
				t.Errorf("%s: backend %s is %s, want %s", at, b.Address, b.State, state)
			}
		}
	}
	if len(families) != 2 || len(d.Paths) < 8 {
		t.Errorf("%d paths over %v, want both addresses of the Service for every kind of client", len(d.Paths), families)
	}
	node := e.n1
	if want.node != nil {
		node = want.node
	}
	// kube-proxy's configuration says it, where no object does.
	if _, hidden := want.gaps["kube-proxy-args.txt"]; d.Node != node.Name && !(hidden && want.stateless) {
		t.Errorf("the node is %q, want %s", d.Node, node.Name)
	}
}

// withoutNFT: there is a table that iptables cannot print, and no nft. Tables are read by netlink: nft is not missed.
func (e *edge) withoutNFT(t *testing.T) {
	nft := func(args ...string) {
		t.Helper()
		if _, err := e.n1.Netns().Run(t.Context(), "", append([]string{"nft"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	nft("add", "table", "inet", "other")
	defer nft("delete", "table", "inet", "other")
	nft("add", "chain", "inet", "other", "input", "{ type filter hook input priority 10; }")
	want := lack{
		tree:   true,
		launch: launch{kubeconfig: filepath.Join(e.dir, "admin"), through: amid(`mount --bind "$KUBECONFIG" /usr/sbin/nft; exec "$@"`)},
	}
	e.try(t, want)
}

// brokenAPI meets servers that begin well.
func (e *edge) brokenAPI(t *testing.T) {
	briefly := append(slices.Clone(question), "--request-timeout=2s")
	const slices, services, pods = "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/services", "/api/v1/pods"
	hang := func(r *http.Request) { <-r.Context().Done() }
	cut := func(w http.ResponseWriter, whole []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = w.Write(whole[:len(whole)/2])
		panic(http.ErrAbortHandler)
	}
	broke := gap{"failed", "broke off (check that the API server runs"}
	for _, c := range []struct {
		name  string
		spoil func(w http.ResponseWriter, r *http.Request, whole []byte) bool
		want  lack
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request, _ []byte) bool { hang(r); return true },
			lack{code: 4, stateless: true, gaps: map[string]gap{"api": noAnswer}}},
		{"hangs after the nodes", func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Path == slices {
				hang(r)
			}
			return r.URL.Path == slices
		}, lack{code: 4, stateless: true, gaps: map[string]gap{"endpointslices.json": noAnswer, "services.json": noAnswer, "pods.json": noAnswer}}},
		{"hangs in the middle of a list", func(w http.ResponseWriter, r *http.Request, whole []byte) bool {
			if r.URL.Path == services {
				_, _ = w.Write(whole[:len(whole)/2])
				_ = http.NewResponseController(w).Flush()
				hang(r)
			}
			return r.URL.Path == services
		}, lack{code: 4, stateless: true, gaps: map[string]gap{"services.json": noAnswer, "pods.json": noAnswer}}},
		// The question does not need them.
		{"hangs at the pods", func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Path == pods {
				hang(r)
			}
			return r.URL.Path == pods
		}, lack{gaps: map[string]gap{"pods.json": noAnswer}}},
		{"cuts a list", func(w http.ResponseWriter, r *http.Request, whole []byte) bool {
			if r.URL.Path == slices {
				cut(w, whole)
			}
			return false
		}, lack{code: 4, stateless: true, gaps: map[string]gap{"endpointslices.json": broke}}},
		{"cuts the Services", func(w http.ResponseWriter, r *http.Request, whole []byte) bool {
			if r.URL.Path == services {
				cut(w, whole)
			}
			return false
		}, lack{code: 4, stateless: true, gaps: map[string]gap{"services.json": broke}}},
		{"is busy", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, lack{code: 4, stateless: true, gaps: map[string]gap{"api": noAnswer}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.launch = launch{kubeconfig: e.front(t, c.spoil), args: briefly}
			begun := time.Now()
			e.try(t, c.want)
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// interrupt is Ctrl-C while the API server does not answer.
func (e *edge) interrupt(t *testing.T) {
	l := e.server(t)
	var out, said bytes.Buffer
	var c *exec.Cmd
	err := e.n1.Netns().Do(func() error {
		c = e.command(t, launch{node: e.n1, kubeconfig: e.kubeconfigFor(t, l), args: question}, &out, &said)
		return c.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()                   // its other end is gone by then
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the request is there
		t.Fatal(err)
	}
	begun := time.Now()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its exit code is looked at
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v to end", took)
	}
	if c.ProcessState.ExitCode() != 130 || out.Len() > 0 || said.Len() > 0 {
		t.Errorf("exit %d, standard output %q, standard error %q", c.ProcessState.ExitCode(), &out, &said)
	}
}

// collect writes bundles to where none can be, and of a node of which not all can be read.
func (e *edge) collect(t *testing.T) {
	admin := filepath.Join(e.dir, "admin")
	place := filepath.Join(e.dir, "place")
	if err := os.Mkdir(place, 0o755); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(place, "n1.tar.gz")
	// What is left in the folder shows on standard error.
	in := func(options string) []string {
		return amid(fmt.Sprintf(`mount -t tmpfs -o %s none %s; "$@" || code=$?; ls -A %[2]s >&2; exit ${code:-0}`, options, place))
	}
	for _, c := range []struct {
		name, to, says string
		through        []string
	}{
		{"into a folder that is not there", "/no/such/n1.tar.gz", "write /no/such/n1.tar.gz: no such file or directory (name another", nil},
		{"onto a folder", place, ": is a directory (name another", nil},
		{"onto a full device", "/dev/full", "write /dev/full: no space left on device (name another", nil},
		{"into a read-only folder", bundle, "n1.tar.gz: read-only file system (name another", in("ro")},
		{"onto a full disk", bundle, "n1.tar.gz: no space left on device (name another", in("size=16k")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := e.launch(t, launch{kubeconfig: admin, through: c.through, args: []string{"collect", "-o", c.to}})
			if got.code != 1 || got.out != "" {
				t.Errorf("exit %d, standard output %q", got.code, got.out)
			}
			oneError(t, got.said, c.says)
			if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
				t.Errorf("left in the folder: %v, %v", left, err)
			}
		})
	}
	t.Run("by nobody", func(t *testing.T) {
		if err := os.Chown(place, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		got := e.launch(t, launch{kubeconfig: admin, uid: nobody, args: []string{"collect", "-o", bundle}})
		if got.code != 4 || got.out != "" {
			t.Errorf("exit %d, standard output %q", got.code, got.out)
		}
		e.bundle(t, got, bundle, "denied")
	})
	t.Run("without API server", func(t *testing.T) {
		got := e.launch(t, launch{kubeconfig: filepath.Join(e.dir, "down"), args: []string{"collect", "-o", bundle}})
		if got.code != 4 || got.out != "" {
			t.Errorf("exit %d, standard output %q", got.code, got.out)
		}
		e.bundle(t, got, bundle, "failed")
	})
}

// bundle checks that a bundle is whole, that standard error lists what it lacks, and that it says the same offline.
func (e *edge) bundle(t *testing.T, got ending, file, status string) {
	t.Helper()
	s, err := snapshot.Load([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, ev := range s.Evidence {
		if ev.Status.Answers() {
			continue
		}
		n++
		if string(ev.Status) != status || !strings.Contains(got.said, fmt.Sprintf("  %s: %s: %s\n", ev.Status, ev.File, ev.Error)) {
			t.Errorf("%s is %s (%s), which standard error does not say: %s", ev.File, ev.Status, ev.Error, got.said)
		}
	}
	if lines := strings.Count(got.said, "\n"); n == 0 || lines != n+1 {
		t.Errorf("%d sources are missing, and standard error has %d lines: %s", n, lines, got.said)
	}
	if offline := e.launch(t, launch{}, "-f", file, "-o", "json"); offline.code != 4 || document(t, offline.out).Node != "n1" {
		t.Errorf("a trace of the bundle: exit %d: %s", offline.code, offline.said)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// fullOutput prints to where nothing goes.
func (e *edge) fullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{append(slices.Clone(question), "-o", "tree"), append(slices.Clone(question), "-o", "json"), {"collect", "-o", "-"}} {
		got := e.launch(t, launch{kubeconfig: filepath.Join(e.dir, "admin"), stdout: full, args: args})
		if got.code != 1 || strings.Count(got.said, "\n") != 1 || !strings.HasPrefix(got.said, "error: write ") || !strings.Contains(got.said, "no space left on device") {
			t.Errorf("%s: exit %d: %s", strings.Join(args, " "), got.code, got.said)
		}
	}
}
