package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/cmd"
)

const folder = "../../deploy"

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// has fails unless the program has the command that args begin with, and takes the flags in them.
func has(t *testing.T, where string, args []string) {
	t.Helper()
	c, rest, err := cmd.Tree().Find(args)
	if err != nil || !c.HasParent() {
		t.Errorf("%s: no command for %q: %v", where, args, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%s: %s: %v", where, strings.Join(args, " "), err)
	}
}

// TestTroubleshoot: what its pods run, and what they may.
func TestTroubleshoot(t *testing.T) {
	var spec struct {
		Spec struct {
			Collectors []struct {
				RunDaemonSet struct {
					Namespace string
					PodSpec   corev1.PodSpec
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text(t, "troubleshoot.yaml")), &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Spec.Collectors) != 1 {
		t.Fatalf("%d collectors", len(spec.Spec.Collectors))
	}
	set := spec.Spec.Collectors[0].RunDaemonSet
	if len(set.PodSpec.Containers) != 1 {
		t.Fatalf("%d containers", len(set.PodSpec.Containers))
	}
	c := set.PodSpec.Containers[0]
	has(t, "troubleshoot.yaml", c.Args)
	if !slices.Contains(c.Args, "-o=json") || !set.PodSpec.HostNetwork || !strings.HasPrefix(c.Image, "ghcr.io/svcnet/svcnet:") {
		t.Errorf("%s %v, host network %v", c.Image, c.Args, set.PodSpec.HostNetwork)
	}
	// It reads a node as the pods of the daemonset do, and may no more and no less.
	pod := readDaemonset(t).set.Spec.Template.Spec
	if diff := cmp.Diff(pod.Containers[0].SecurityContext, c.SecurityContext); diff != "" {
		t.Errorf("security context (-daemonset +troubleshoot):\n%s", diff)
	}
	if diff := cmp.Diff(pod.Volumes, set.PodSpec.Volumes) + cmp.Diff(pod.Containers[0].VolumeMounts, c.VolumeMounts); diff != "" {
		t.Errorf("volumes (-daemonset +troubleshoot):\n%s", diff)
	}
	for _, arg := range []string{"--node=$(NODE_NAME)", "--root=" + c.VolumeMounts[0].MountPath} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("no %s in %v", arg, c.Args)
		}
	}
	// Its account is the one that may read.
	var account corev1.ServiceAccount
	var role rbacv1.ClusterRole
	for _, doc := range strings.Split(text(t, "rbac.yaml"), "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.Kind {
		case "Namespace":
			into = &corev1.Namespace{}
		case "ServiceAccount":
			into = &account
		case "ClusterRole":
			into = &role
		case "ClusterRoleBinding":
			into = &rbacv1.ClusterRoleBinding{}
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Errorf("rbac.yaml, %s: %v", kind.Kind, err)
		}
	}
	if account.Name != set.PodSpec.ServiceAccountName || account.Namespace != set.Namespace {
		t.Errorf("the pods' account is %s/%s, rbac.yaml has %s/%s", set.Namespace, set.PodSpec.ServiceAccountName, account.Namespace, account.Name)
	}
	for _, r := range role.Rules {
		if !slices.Equal(r.Verbs, []string{"list"}) {
			t.Errorf("%v may be %v", r.Resources, r.Verbs)
		}
	}
}

// TestK9s holds the plugins against the fields that k9s knows.
func TestK9s(t *testing.T) {
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command                            string
			Override, Confirm, Dangerous, Background, OverwriteOutput bool
			Scopes, Args                                              []string
		}
	}
	if err := yaml.UnmarshalStrict([]byte(text(t, "k9s/plugins.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Plugins) == 0 {
		t.Fatal("no plugins")
	}
	taken := map[string]string{}
	for name, p := range file.Plugins {
		if p.ShortCut == "" || p.Description == "" || len(p.Scopes) == 0 || p.Command != "sh" || len(p.Args) < 3 || p.Args[0] != "-c" {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		for _, scope := range p.Scopes {
			key := scope + " " + p.ShortCut
			if other := taken[key]; other != "" {
				t.Errorf("%s and %s share %s", name, other, key)
			}
			taken[key] = name
		}
		// The script gets what k9s fills in as its arguments, and never as its text: names are somebody else's.
		if strings.Contains(p.Args[1], "$NAME") || strings.Contains(p.Args[1], "$CONTEXT") {
			t.Errorf("%s: k9s writes a name into the script: %s", name, p.Args[1])
		}
		for i, arg := range p.Args[2:] {
			if !regexp.MustCompile(`^\$[A-Z]+$`).MatchString(arg) || !strings.Contains(p.Args[1], "$"+string(rune('0'+i))) {
				t.Errorf("%s: argument %d: %s", name, i, arg)
			}
		}
		line, _, _ := strings.Cut(p.Args[1], " 2>&1")
		words := strings.Fields(strings.NewReplacer(`"`, "", "$", "x").Replace(line))
		has(t, name, words[2:])
	}
}

// sosStub stands in for sos: its Plugin class notes what is asked for.
const sosStub = `
import importlib.util, json, sys, types

asked = []

class Plugin:
    def add_cmd_output(self, cmds, suggest_filename=None, timeout=None):
        for c in [cmds] if isinstance(cmds, str) else cmds:
            asked.append({'command': c, 'file': suggest_filename})

class IndependentPlugin:
    pass

for name in ('sos', 'sos.report', 'sos.report.plugins', 'sos.utilities'):
    sys.modules[name] = types.ModuleType(name)
sys.modules['sos.report.plugins'].Plugin = Plugin
sys.modules['sos.report.plugins'].IndependentPlugin = IndependentPlugin
sys.modules['sos.utilities'].is_executable = lambda name: name == sys.argv[2]

spec = importlib.util.spec_from_file_location('svcnet', sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
plugin = module.Svcnet()
plugin.setup()
print(json.dumps({'name': plugin.plugin_name, 'profiles': plugin.profiles, 'commands': plugin.commands, 'asked': asked}))
`

func TestSos(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed (Debian: python3-minimal)")
	}
	for _, there := range []string{"svcnet", "kubectl-svcnet"} {
		c := exec.Command(python, "-c", sosStub, filepath.Join(folder, "sos/svcnet.py"), there)
		c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		var said strings.Builder
		c.Stderr = &said
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		var got struct {
			Name               string
			Profiles, Commands []string
			Asked              []struct{ Command, File string }
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if got.Name != "svcnet" || !slices.Contains(got.Profiles, "network") || !slices.Contains(got.Commands, there) || len(got.Asked) != 4 {
			t.Errorf("%+v", got)
		}
		for _, a := range got.Asked {
			words := strings.Fields(a.Command)
			if words[0] != there || a.File == "" || !slices.Contains(words, "--silent") {
				t.Errorf("%+v", a)
			}
			has(t, "sos/svcnet.py", words[1:])
		}
	}
}

// program stands in for kubectl-svcnet: it notes how it was called, and answers or fails as SVCNET_FAIL says.
const program = `#!/bin/sh
echo "$@" >>"$CALLS"
case " $SVCNET_FAIL " in
*" $1 "*) echo "error: $1 did not work" >&2; exit 1 ;;
*" all-nodes "*) case "$*" in *--all-nodes*) echo "error: no pods can be made" >&2; exit 1 ;; esac ;;
esac
case "$*" in collect*--all-nodes*)
	for folder; do :; done
	echo bundle >"$folder/svcnet-node-1.tar.gz"
	echo "error: 1 of 2 nodes was not read" >&2
	exit 4 ;;
esac
echo "answer of $1"
case $1 in audit) exit 3 ;; esac
`

func TestMustGather(t *testing.T) {
	for _, tt := range []struct {
		name, fail string
		code       int
		files      []string
	}{
		{"nodes are read", "", 0, []string{"nodes", "nodes.txt.stderr", "report.json", "report.txt", "status.json", "status.txt", "version"}},
		{"no pods", "all-nodes", 0, []string{"bundle.tar.gz", "nodes.txt.stderr", "report.json", "report.txt", "status.json", "status.txt", "version"}},
		{"a part fails", "status", 0, []string{"nodes", "nodes.txt.stderr", "report.json", "report.txt", "status.json.stderr", "status.txt.stderr", "version"}},
		{"nothing can be read", "collect", 1, []string{"bundle.tar.gz.stderr", "nodes.txt.stderr", "version"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			bin, out, calls := filepath.Join(dir, "bin"), filepath.Join(dir, "out"), filepath.Join(dir, "calls")
			if err := os.Mkdir(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(bin, "kubectl-svcnet"), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
			c := exec.Command("sh", filepath.Join(folder, "must-gather/gather"))
			c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MUST_GATHER_DIR="+out, "CALLS="+calls, "SVCNET_FAIL="+tt.fail)
			said, err := c.CombinedOutput()
			if c.ProcessState == nil || c.ProcessState.ExitCode() != tt.code {
				t.Fatalf("exit %v, want %d: %s", err, tt.code, said)
			}
			entries, err := os.ReadDir(out)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if diff := cmp.Diff(tt.files, names); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			version, err := os.ReadFile(filepath.Join(out, "version"))
			if lines := strings.Split(string(version), "\n"); err != nil || len(lines) != 3 || lines[0] != "svcnet" || lines[1] == "" {
				t.Errorf("version: %q (%v)", version, err)
			}
			ran, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(ran)) {
				has(t, "must-gather/gather", strings.Fields(line))
			}
		})
	}
}
