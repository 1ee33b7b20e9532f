package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// rewritten is what becomes of evidence of a format, read twice as a snapshot is.
func rewritten(t *testing.T, f snapshot.Format, data string) string {
	t.Helper()
	out, err := Redact(&snapshot.Snapshot{Evidence: []snapshot.Evidence{{File: "x", Format: f, Status: snapshot.OK, Data: []byte(data)}}}, testKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(out.Evidence[0].Data)
}

// TestNamesMadeOfWords: names that are spelled as words of a format are ("node-1", "home.lab") are renamed where the
// form of a line says that a name stands there.
func TestNamesMadeOfWords(t *testing.T) {
	for _, tt := range []struct {
		what   string
		format snapshot.Format
		in     string
		gone   []string
		stays  []string
	}{
		{"a prompt", snapshot.IPTablesSave, "root@node-1:~# iptables-save\n*nat\nCOMMIT\n", []string{"node-1"}, []string{"iptables-save", "*nat", "COMMIT"}},
		{"a prompt with brackets", snapshot.IPRoute, "[home@master.test ~]# ip route\ndefault via 10.0.0.1 dev eth0\n", []string{"master", "test"}, []string{"ip route", "default via"}},
		{"a flag with its value behind a blank", snapshot.ProxyArgs, "kube-proxy --hostname-override node-1 --proxy-mode ipvs --masquerade-all\n", []string{"node-1"}, []string{"--proxy-mode ipvs --masquerade-all"}},
		{"a flag for each line", snapshot.ProxyArgs, "--hostname-override\nnode-1\n--proxy-mode\nipvs\n", []string{"node-1"}, []string{"--proxy-mode\nipvs"}},
		{"a flag with zeros between", snapshot.ProxyArgs, "kube-proxy\x00--hostname-override\x00node-1\x00--proxy-mode=ipvs\x00", []string{"node-1"}, []string{"--proxy-mode=ipvs"}},
		{"a flag in quotes", snapshot.ProxyArgs, `["kube-proxy","--hostname-override=node-1","--proxy-mode=ipvs"]` + "\n", []string{"node-1"}, []string{"--proxy-mode=ipvs"}},
		{"an inner flag", snapshot.ProxyArgs, "k3s agent --node-name worker-1 --kube-proxy-arg=hostname-override=node-1 --kube-proxy-arg=proxy-mode=ipvs\n", []string{"node-1", "worker-1"}, []string{"--kube-proxy-arg=proxy-mode=ipvs"}},
		{"a secret flag", snapshot.APIServerFlags, "kube-apiserver --oidc-client-secret=12345678 --token 87654321 --service-cluster-ip-range=10.96.0.0/12\n", []string{"12345678", "87654321"}, []string{"--service-cluster-ip-range="}},
		{"a server in a flag", snapshot.APIServerFlags, "kube-apiserver --etcd-servers=https://master.home.lab:2379,https://node-1:2379\n", []string{"master", "home", "lab", "node-1"}, []string{":2379"}},
		{"arguments of a container", snapshot.Objects, `{"kind":"Pod","spec":{"containers":[{"args":["--hostname-override","node-1","--proxy-mode","ipvs"]}]}}`, []string{"node-1"}, []string{`"--proxy-mode","ipvs"`}},
		{"arguments of a container in YAML", snapshot.Objects, "kind: Pod\nspec:\n  containers:\n  - args:\n    - --hostname-override\n    - node-1\n    - --proxy-mode\n    - ipvs\n", []string{"node-1"}, []string{"- --proxy-mode\n    - ipvs"}},
		{"a flag in a log", snapshot.ProxyLog, `I1127 22:46:49.288841   20868 flags.go:64] FLAG: --hostname-override="worker"` + "\n", []string{"worker"}, []string{"FLAG: --hostname-override="}},
		{"the kernel's own name", snapshot.Sysctl, "kernel.hostname = node-1\nkernel.domainname = home.lab\nnet.ipv4.ip_forward = 1\n", []string{"node-1", "home.lab"}, []string{"kernel.hostname = ", "net.ipv4.ip_forward = 1"}},
		{"a log of systemd", snapshot.ProxyLog, "Nov 29 12:00:00 worker kube-proxy[12]: I1129 12:00:00.000000       1 proxier.go:1] \"Syncing iptables rules\"\n", []string{"worker"}, []string{"kube-proxy[12]: I1129 12:00:00.000000       1 proxier.go:1] \"Syncing iptables rules\""}},
		{"a log of systemd with its own time", snapshot.Dmesg, "2026-11-29T12:00:00+00:00 worker kernel: nf_conntrack: table full, dropping packet\n", []string{"worker"}, []string{"kernel: nf_conntrack: table full, dropping packet"}},
		{"a port without a name in a log", snapshot.ProxyLog, `I1129 12:00:00.000000       1 service.go:1] "Adding new service port" portName="test/home" servicePort="10.96.0.7:80/TCP"` + "\n", []string{"test", "home"}, []string{"Adding new service port"}},
		{"an old message", snapshot.ProxyLog, `I1129 12:00:00.000000       1 service.go:1] Adding new service port "test/home" at 10.96.0.7:80/TCP` + "\n", []string{"test", "home"}, []string{"Adding new service port"}},
		{"a pod in a log", snapshot.ProxyLog, `I1129 12:00:00.000000       1 x.go:1] "Failed to sync" podName="test" containerName="home" hostName="lab"` + "\n", []string{"test", "home", "lab"}, []string{"Failed to sync"}},
		{"a server in metrics", snapshot.ProxyMetrics, `rest_client_requests_total{code="200",host="master.home.lab:6443",method="GET"} 7` + "\n", []string{"master", "home", "lab"}, []string{`code="200"`, `method="GET"} 7`}},
		{"managed fields", snapshot.Objects, `{"metadata":{"managedFields":[{"fieldsV1":{"f:metadata":{"f:labels":{"f:home":{}}},"f:spec":{"f:ports":{"k:{\"name\":\"test\"}":{"f:name":{}}}}}}]}}`, []string{"home", "test"}, []string{"f:metadata", "f:spec"}},
		{"another name of a device", snapshot.IPLink, "2: eth0: <UP> mtu 1500\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n    alias home test\n", []string{"home", "test"}, []string{"alias ", "mtu 1500"}},
		{"another name of a device in JSON", snapshot.IPLink, `[{"ifname":"eth0","ifalias":"home test"}]`, []string{"home", "test"}, []string{`"ifname":"eth0"`}},
		{"names for addresses", snapshot.IPTablesList, "Chain INPUT (policy ACCEPT)\ntarget     prot opt source               destination\nACCEPT     tcp  --  node-1.home.lab      anywhere             tcp dpt:http\nACCEPT     all  --  !master              localhost\n", []string{"node-1", "home", "lab", "master"}, []string{"anywhere             tcp dpt:http", "localhost"}},
		{"names for addresses with counters", snapshot.IPTablesList, "Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination\n   12   3K ACCEPT     tcp  --  eth0   any     node-1               worker-2     tcp dpt:http\n", []string{"node-1", "worker-2"}, []string{"eth0   any", "tcp dpt:http"}},
		{"a secret in lines", snapshot.Kubeconfig, "users:\n- user:\n    password: \"12345678\n      87654321\"\n    token: |\n      user: 11223344\n", []string{"12345678", "87654321", "11223344"}, []string{"password:", "token:"}},
		{"a secret number", snapshot.Kubeconfig, `{"users":[{"user":{"password":12345678}}]}`, []string{"12345678"}, nil},
		{"a secret of any name", snapshot.Objects, `{"kind":"Secret","stringData":{"pin":"12345678"}}`, []string{"12345678"}, nil},
	} {
		got := rewritten(t, tt.format, tt.in)
		goneAndKept(t, tt.what, got, tt.gone, tt.stays)
		if a, b := strings.Count(tt.in, "\n"), strings.Count(got, "\n"); a != b {
			t.Errorf("%s: %d lines become %d", tt.what, a, b)
		}
	}
}

// TestAddressesInOtherForms: addresses are renamed in each form in which the tools write them.
func TestAddressesInOtherForms(t *testing.T) {
	for _, tt := range []struct {
		what   string
		format snapshot.Format
		in     string
		gone   []string
		stays  []string
	}{
		{"the header of a packet in the kernel's log", snapshot.Dmesg, "[1.0] IN=eth0 OUT= MAC=42:01:0a:80:00:02:42:01:0a:80:00:01:08:00 SRC=10.128.0.1 DST=10.128.0.2\n", []string{"42:01", "0a:80", "80:00:0"}, []string{":08:00 SRC="}},
		{"a long hardware address", snapshot.IPLink, "    link/infiniband 80:00:02:08:fe:80:00:00:00:00:00:00:00:11:22:33:44:55:66:77 brd 00:ff:ff:ff:ff:12:40:1b\n", []string{"80:00:02:08", "11:22:33"}, []string{"link/infiniband "}},
		{"an old IPv4 address in IPv6", snapshot.IPAddr, "    inet6 ::10.1.2.3/96 scope global\n", []string{"10.1.2.3"}, []string{"inet6 ::", "/96 scope global"}},
		{"IPv4 in IPv6", snapshot.SocketList, "tcp ESTAB 0 0 [::ffff:10.1.2.3]:443 [::ffff:10.1.2.4]:5000\n", []string{".1.2.3", ".1.2.4"}, []string{"[::ffff:10.", "]:443"}},
		{"bytes of a packet in nft", snapshot.NFTText, "table ip x {\n\tchain y {\n\t\t@nh,128,32 0x0a010203 meta mark 0x0a010203 accept\n\t\t@nh,96,32 & 0xffffff00 == 0xa010200 drop\n\t}\n}\n", []string{"@nh,128,32 0x0a010203", "0xa010200"}, []string{"meta mark 0x0a010203 accept", "@nh,96,32 "}},
		{"bytes of a packet in nft's JSON", snapshot.NFTJSON, `{"nftables":[{"rule":{"expr":[{"match":{"op":"==","left":{"payload":{"base":"nh","offset":128,"len":32}},"right":167838211}},{"match":{"op":"==","left":{"meta":{"key":"mark"}},"right":167838211}}]}}]}`, []string{`"len":32}},"right":167838211`}, []string{`"key":"mark"}},"right":167838211`, `"offset":128`}},
		{"u32 in a list", snapshot.IPTablesList, "Chain INPUT (policy ACCEPT)\nDROP  all  --  0.0.0.0/0  0.0.0.0/0  u32 \"0xc=0xa010203\"\n", []string{"a010203"}, []string{"u32 "}},
		{"bytecode in a list", snapshot.IPTablesList, "Chain INPUT (policy ACCEPT)\nDROP  all  --  0.0.0.0/0  0.0.0.0/0  match bpf 32 0 0 12,21 0 1 167838211,6 0 0 1 mark match 0x4000\n", []string{"167838211"}, []string{"match bpf ", "mark match 0x4000"}},
		{"a name for an address backwards", snapshot.CNILog, "time=x level=info msg=y subsys=z 7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.4.4.2.0.0.1.0.0.0.0.d.f.ip6.arpa\n", []string{"4.4.2", "d.f"}, []string{"ip6.arpa"}},
	} {
		got := rewritten(t, tt.format, tt.in)
		goneAndKept(t, tt.what, got, tt.gone, tt.stays)
	}
	r := newRenaming(testKey)
	if a, b := r.text("42:01:0a:80:00:02", grammar), r.text("MAC=42:01:0a:80:00:02:42:01:0a:80:00:01:08:00", grammar); !strings.Contains(b, a) {
		t.Errorf("a hardware address becomes %s alone, and %s in a header", a, b)
	}
	if got := r.text("cali-tw-cali1234567890a", grammar); !strings.HasSuffix(got, r.text("cali1234567890a", grammar)) {
		t.Errorf("a device becomes %s alone, and %s in the name of a chain", r.text("cali1234567890a", grammar), got)
	}
}

// TestAppliedBefore: what kubectl keeps of an object is an object, and its fields are no names.
func TestAppliedBefore(t *testing.T) {
	applied := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"test","namespace":"home"},"spec":{"ports":[{"port":80,"protocol":"TCP"}]}}`
	text, err := json.Marshal(map[string]any{"kind": "Service", "metadata": map[string]any{"annotations": map[string]string{"kubectl.kubernetes.io/last-applied-configuration": applied}}})
	if err != nil {
		t.Fatal(err)
	}
	message := "I1129 12:00:00.000000       1 proxier.go:1] \"Syncing service port protocol and metadata\"\n"
	out, err := Redact(&snapshot.Snapshot{Evidence: []snapshot.Evidence{
		{File: "a.json", Format: snapshot.Objects, Status: snapshot.OK, Data: text},
		{File: "kube-proxy.log", Format: snapshot.ProxyLog, Status: snapshot.OK, Data: []byte(message)},
	}}, testKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out.Evidence[1].Data); got != message {
		t.Errorf("the log becomes %s", got)
	}
	if got := string(out.Evidence[0].Data); strings.Contains(got, "home") || strings.Contains(got, "test") || !strings.Contains(got, `\"spec\"`) {
		t.Errorf("the object becomes %s", got)
	}
}

// TestNamesInFileNames: a name is renamed in the name of a file as it is elsewhere.
func TestNamesInFileNames(t *testing.T) {
	r := newRenaming(testKey)
	n := r.text("node-1", name)
	for in, want := range map[string]string{
		"node-1/iptables-save": n + "/iptables-save", "node-1.log": n + ".log", "nodes/iptables-save-node-1.txt": "nodes/iptables-save-" + n + ".txt",
		"kube-proxy.log": "kube-proxy.log", "ip-route.txt": "ip-route.txt",
	} {
		if got := r.file(in); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

// TestHeadOfCapture: a line that nobody knows in the head of a netlink capture does not stay.
func TestHeadOfCapture(t *testing.T) {
	s := load(t, "../test/recorded/testdata/kube-proxy-1.36-nftables")
	captures := s.Of(snapshot.NFTNetlink)
	if len(captures) == 0 {
		t.Fatal("no capture: the test does not look")
	}
	was := string(captures[0].Data)
	data := strings.Replace(was, "\ninterface ", "\ntaken on acme-payroll\ninterface ", 1)
	if data == was {
		t.Fatalf("no head: the test does not look: %.200q", was)
	}
	if got, err := newRenaming(testKey).netlink(data); err == nil && strings.Contains(got, "acme") {
		t.Error("a line of the head stays")
	}
}

// TestTimeOfHostileInput: no line takes time that grows with the square of its length. The limit is far above what each
// takes, because machines of tests are busy.
func TestTimeOfHostileInput(t *testing.T) {
	for what, tt := range map[string]struct {
		format snapshot.Format
		unit   string
	}{
		"colons": {snapshot.Sysctl, ":"}, "groups": {snapshot.Sysctl, "abcd:"}, "octets": {snapshot.Sysctl, "ab:"}, "colons and digits": {snapshot.Sysctl, "::1"},
		"comments without end": {snapshot.IPTablesList, "/* "}, "ports in a log": {snapshot.ProxyLog, "a/b:c "}, "names in a log": {snapshot.ProxyLog, "name=b "},
		"maps in a line": {snapshot.Objects, "{a: "}, "lists in a line": {snapshot.Objects, "[a, "}, "maps in JSON": {snapshot.Objects, `{"a":`},
		"dashes": {snapshot.Objects, "- "}, "hyphens": {snapshot.Sysctl, "a-"}, "quotes": {snapshot.NFTText, `"a`}, "foreign": {snapshot.Sysctl, "é-"},
		"half words": {snapshot.Sysctl, "a--"}, "backslashes": {snapshot.ProxyLog, `name="\`}, "arpa": {snapshot.ProxyLog, "a."}, "hosts": {snapshot.ProxyLog, "a@"},
		"quoted": {snapshot.Objects, "'a''"}, "raw": {snapshot.NFTText, "@nh,1,2 "}, "bpf": {snapshot.IPTablesList, "match bpf "}, "dots": {snapshot.Sysctl, "1."},
		"urls": {snapshot.ProxyArgs, "--a=b://"}, "hyphens in a chain": {snapshot.IPTablesSave, "KUBE-"},
	} {
		n := 1 << 16
		if strings.HasPrefix(tt.unit, "{") {
			n = 1 << 18 // depth costs little at first
		}
		data := strings.Repeat(tt.unit, n/len(tt.unit))
		if tt.format == snapshot.Objects && tt.unit == "- " {
			data = data + "a"
		}
		done := make(chan struct{})
		start := time.Now()
		go func() {
			defer close(done)
			r := newRenaming(testKey)
			_, _ = decisionOf(tt.format).rewrite(r, data)
		}()
		select {
		case <-done:
			t.Logf("%s: %v", what, time.Since(start))
		case <-time.After(15 * time.Second):
			t.Fatalf("%s: %d bytes take more than 15 seconds", what, n) // it still runs: what follows would be slow too
		}
	}
}

// goneAndKept looks for what may not be left in a text, and for what has to be.
func goneAndKept(t *testing.T, what, got string, gone, stays []string) {
	t.Helper()
	for _, n := range gone {
		if strings.Contains(got, n) {
			t.Errorf("%s: %s is left in %s", what, n, got)
		}
	}
	for _, n := range stays {
		if !strings.Contains(got, n) {
			t.Errorf("%s: %s is lost in %s", what, n, got)
		}
	}
}
