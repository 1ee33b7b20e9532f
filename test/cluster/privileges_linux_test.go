package cluster

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// needs are the sources that each capability is for: without it they are denied, and nothing else changes. The nodes of
// the lab have no tables of iptables-legacy and no process of another user that listens, so that NET_RAW and
// DAC_READ_SEARCH are not missed there.
var needs = map[corev1.Capability][]string{
	"NET_ADMIN":  {"ip6tables-nft-save.txt", "ipset-save.txt", "iptables-nft-save.txt", "nft.nl"},
	"SYS_PTRACE": {"kube-proxy-args.txt"},
	"SYS_CHROOT": {
		"conntrack.txt", "ip-addr.txt", "ip-route.txt", "ip-rule.txt", "ip6tables-nft-save.txt", "ipset-save.txt", "iptables-nft-save.txt",
		"ipvsadm-save.txt", "kube-proxy-args.txt", "nft.nl", "ss.txt", "sysctl.txt",
	},
	"DAC_READ_SEARCH": {},
	"NET_RAW":         {},
}

// privileges takes one capability after the other from the pod that --print-pod shows, and reads with it.
func (c *cluster) privileges() {
	t := c.t
	r := c.run("collect", "--node=n1", "--print-pod", "--image="+svcnet)
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(r.stdout), &pod); err != nil || r.code != 0 {
		t.Fatalf("exit %d, %v: %s", r.code, err, r.stderr)
	}
	all := pod.Spec.Containers[0].SecurityContext.Capabilities.Add
	read := func(name string, without corev1.Capability) map[string]snapshot.Evidence {
		p := pod.DeepCopy()
		p.Name, p.ResourceVersion = name, ""
		deadline := int64(600)
		p.Spec.ActiveDeadlineSeconds = &deadline
		p.Spec.Containers[0].SecurityContext.Capabilities.Add = slices.DeleteFunc(slices.Clone(all), func(x corev1.Capability) bool { return x == without })
		if err := c.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Delete(t.Context(), "Pod", p.Namespace, p.Name); err != nil {
				t.Error(err)
			}
		}()
		out := ""
		c.eventually("a bundle of "+name, func() (err error) {
			dir := t.TempDir()
			cmd := c.command(t.Context(), dir)
			cmd.Args = append(cmd.Args[:3:3], "kubectl", "exec", "-n", p.Namespace, name, "--", "/kubectl-svcnet", "collect", "-o", "-", "--root=/host", "--no-api", "--node=n1")
			data, err := cmd.Output()
			if len(data) > 0 {
				err = nil // exit code 4: a source is missing
			}
			out = string(data)
			return err
		})
		s, err := snapshot.Load([]string{"-"}, strings.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]snapshot.Evidence{}
		for _, e := range s.Evidence {
			got[filepath.Base(e.File)] = e
		}
		return got
	}
	whole := read("svcnet-all", "")
	for capability, files := range needs {
		less := read("svcnet-without-"+strings.ToLower(strings.ReplaceAll(string(capability), "_", "-")), capability)
		for file, e := range less {
			before := whole[file].Status
			missing := slices.Contains(files, file)
			switch {
			case missing && e.Status != snapshot.Denied:
				t.Errorf("without %s %s is %s: %s; want denied", capability, file, e.Status, e.Error)
			case !missing && e.Status != before && e.Status != snapshot.Denied:
				t.Errorf("without %s %s is %s: %s; it was %s", capability, file, e.Status, e.Error, before)
			case !missing && e.Status != before:
				t.Errorf("without %s %s is denied too: %s; say so in the table", capability, file, e.Error)
			}
		}
	}
	text, err := json.Marshal(pod.Spec.Containers[0].SecurityContext)
	t.Logf("%s %v", text, err)
}
