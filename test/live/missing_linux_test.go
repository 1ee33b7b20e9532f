package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcnet/svcnet/test/lab"
)

type launch struct {
	node    *lab.Node
	api     string
	through []string
	uid     uint32
	args    []string
}

type ending struct {
	out, said string
	code      int
	took      time.Duration
}

func (l launch) run(t *testing.T, bin string) ending {
	t.Helper()
	var out, said strings.Builder
	var e ending
	argv := append(append([]string{}, l.through...), bin)
	argv = append(argv, l.args...)
	begun := time.Now()
	err := l.node.Netns().Do(func() error {
		c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		c.Stdout, c.Stderr = &out, &said
		for _, v := range l.node.Env() {
			if !strings.HasPrefix(v, "KUBECONFIG=") {
				c.Env = append(c.Env, v)
			}
		}
		c.Env = append(c.Env, "HOME=/nonexistent")
		if l.api != "" {
			c.Env = append(c.Env, "KUBECONFIG="+l.api)
		}
		if l.uid != 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: l.uid, Gid: l.uid}}
		}
		err := c.Run()
		if c.ProcessState != nil {
			e.code = c.ProcessState.ExitCode()
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e.took = time.Since(begun)
	e.out, e.said = out.String(), said.String()
	return e
}

func TestMissing(t *testing.T) {
	s := set(t, bring(t, lab.Options{Name: fmt.Sprintf("m%d", os.Getpid()), NoProxy: true, NodeBackend: map[string]lab.Backend{"n3": lab.Legacy}}))
	dir, _ := os.MkdirTemp("", "svcnet-missing")
	os.Chmod(dir, 0o755)
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, _ := os.ReadFile(svcnet(t))
	bin := filepath.Join(dir, "svcnet")
	os.WriteFile(bin, data, 0o755)
	for _, u := range []string{"admin", "viewer"} {
		d, _ := os.ReadFile(s.Kubeconfig(u))
		os.WriteFile(filepath.Join(dir, u), d, 0o644)
	}
	admin := filepath.Join(dir, "admin")
	put := func(name, text string) string {
		os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		return filepath.Join(dir, name)
	}
	ad, _ := os.ReadFile(admin)
	q := []string{"trace", "svc/many", "-n", "store"}
	without := func(c string) []string { return []string{"setpriv", "--bounding-set", c, "--inh-caps", c} }
	for _, c := range []struct {
		name string
		l    launch
	}{
		{"all", launch{api: admin}},
		{"legacy all", launch{api: admin, node: s.n3}},
		{"nobody", launch{api: admin, uid: 65534}},
		{"nobody legacy", launch{api: admin, uid: 65534, node: s.n3}},
		{"netadmin", launch{api: admin, through: without("-net_admin")}},
		{"netadmin legacy", launch{api: admin, through: without("-net_admin"), node: s.n3}},
		{"netraw", launch{api: admin, through: without("-net_raw")}},
		{"netraw legacy", launch{api: admin, through: without("-net_raw"), node: s.n3}},
		{"ptrace", launch{api: admin, through: without("-sys_ptrace")}},
		{"dac", launch{api: admin, through: without("-dac_override,-dac_read_search")}},
		{"dac legacy", launch{api: admin, through: without("-dac_override,-dac_read_search"), node: s.n3}},
		{"sysadmin", launch{api: admin, through: without("-sys_admin"), args: append(q, "--pod", "store/client-1")}},
		{"none", launch{api: admin, through: without("-all")}},
		{"noiptables", launch{api: admin, through: []string{"unshare", "-m", "sh", "-ec", `mount -t tmpfs none /usr/sbin; exec "$@"`, "sh"}}},
		{"down", launch{api: put("down", strings.Replace(string(ad), ":6443", ":1", 1))}},
		{"unreach", launch{api: put("unr", strings.Replace(string(ad), "172.30.0.10:6443", "203.0.113.9:6443", 1)), args: append(q, "--request-timeout", "1s")}},
		{"viewer", launch{api: filepath.Join(dir, "viewer")}},
		{"badtoken", launch{api: put("bad", strings.Replace(string(ad), "token: ", "token: x", 1))}},
		{"nofile", launch{args: append(q, "--kubeconfig", "/nope")}},
		{"nofile env", launch{api: "/nope"}},
		{"broken", launch{api: put("broken", "a: [\n")}},
		{"empty", launch{api: put("empty", "")}},
		{"nocontext", launch{api: admin, args: append(q, "--context", "nope")}},
		{"none", launch{}},
		{"none legacy", launch{node: s.n3}},
		{"none n2", launch{node: s.n2}},
		{"none, no sys_ptrace", launch{through: without("-sys_ptrace")}},
		{"none, nobody", launch{uid: 65534}},
		{"noapi", launch{args: append(q, "--no-api")}},
	} {
		l := c.l
		if l.node == nil {
			l.node = s.n1
		}
		if l.args == nil {
			l.args = q
		}
		for _, f := range []string{"json", "tree"} {
			l := l
			l.args = append(append([]string{}, l.args...), "-o", f)
			e := l.run(t, bin)
			os.WriteFile("/tmp/mx/"+strings.ReplaceAll(c.name, " ", "_")+"."+f, []byte(fmt.Sprintf("%s\n---- exit %d took %v\n%s", e.out, e.code, e.took, e.said)), 0o644)
		}
	}
}
