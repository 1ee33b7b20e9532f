package uml

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	// What is built and run in the guest: named here so that a result of before a change is not taken again.
	_ "github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
)

// reading is a script with the readers in it: `observe NAME` prints what the machine has loaded and registered,
// `read_node NAME` lets svcnet's readers read it. Sections of the output begin with "== NAME".
const reading = `
observe() {
	echo "== $1"
	cut -d' ' -f1 /proc/modules | sort
	for f in ip_tables_names ip6_tables_names; do echo "$f: $(cat /proc/net/$f 2>&1)"; done
	echo "== after $1"
}
read_node() {
	SVCNET_GUEST_FILE=$TMPDIR/read.json READERS -test.run '^TestInGuest$' >$TMPDIR/log 2>&1 || cat $TMPDIR/log
	echo "== $1"
	cat $TMPDIR/read.json
	echo
}
`

// guest boots a script that may use observe and read_node and returns its sections.
func guest(t *testing.T, script string) map[string]string {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	readers := t.TempDir() + "/readers"
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", readers, "github.com/svcnet/svcnet/collectors")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := Boot(ctx, strings.ReplaceAll(reading, "READERS", readers)+script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sections := map[string]string{}
	for _, s := range strings.Split("\n"+out, "\n== ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		sections[name] = text
	}
	return sections
}

// evidenceOf is what was read in a section, by file.
func evidenceOf(t *testing.T, section string) map[string]snapshot.Evidence {
	t.Helper()
	var list []snapshot.Evidence
	if err := json.Unmarshal([]byte(section), &list); err != nil {
		t.Fatalf("%v: %q", err, section)
	}
	out := map[string]snapshot.Evidence{}
	for _, e := range list {
		out[e.File] = e
	}
	return out
}

// TestReadingLoadsNothing: on a kernel whose netfilter is all modules, reading loads none of them, neither where
// nothing is there, nor where some modules are loaded and hold nothing, nor where there are rules behind the old interface, IP sets and tables of nft.
func TestReadingLoadsNothing(t *testing.T) {
	got := guest(t, `
observe untouched
read_node nothing
observe after-nothing
modprobe nfnetlink
modprobe iptable_filter
modprobe nf_conntrack
observe modules
read_node modules-read
observe after-modules
iptables-legacy -t nat -A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1
iptables-legacy -A INPUT -m comment --comment hello -j ACCEPT
ipset create s hash:ip
ipset add s 10.0.0.1
nft add table netdev web || nft add table bridge web || nft add table arp web
modprobe ip_vs
observe rules
read_node rules-read
observe after-rules
`)
	if loaded := got["untouched"]; strings.Contains(loaded, "nf") || strings.Contains(loaded, "ip_set") || strings.Contains(loaded, "x_tables") {
		t.Errorf("the guest is not untouched:\n%s", loaded)
	}
	if got["untouched"] != got["after-nothing"] {
		t.Errorf("reading changed an untouched machine: before\n%s\nafter\n%s", got["untouched"], got["after-nothing"])
	}
	if got["rules"] != got["after-rules"] {
		t.Errorf("reading changed a machine with rules: before\n%s\nafter\n%s", got["rules"], got["after-rules"])
	}
	if got["modules"] != got["after-modules"] {
		t.Errorf("reading changed a machine with modules: before\n%s\nafter\n%s", got["modules"], got["after-modules"])
	}
	for _, section := range []string{"nothing", "modules-read"} {
		read := evidenceOf(t, got[section])
		for _, file := range []string{"iptables-nft-save.txt", "ip6tables-nft-save.txt", "iptables-legacy-save.txt", "ip6tables-legacy-save.txt", "nft.nl", "ipset-save.txt", "ipvsadm-save.txt", "ipvsadm-list.txt", "ipvsadm-stats.txt", "ipvsadm-conn.txt"} {
			if e := read[file]; e.Status != snapshot.Absent || e.Note == "" {
				t.Errorf("%s: %s: %q %s %s", section, file, e.Status, e.Note, e.Error)
			}
		}
	}
	rules := evidenceOf(t, got["rules-read"])
	for file, want := range map[string]struct {
		status snapshot.Status
		text   string
	}{
		"iptables-nft-save.txt":     {snapshot.Absent, ""},
		"iptables-legacy-save.txt":  {snapshot.OK, "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\n"},
		"ip6tables-legacy-save.txt": {snapshot.Absent, ""},
		"nft.nl":                    {snapshot.OK, "web\x00"},
		"ipset-save.txt":            {snapshot.OK, "add s 10.0.0.1\n"},
		"ipvsadm-save.txt":          {snapshot.Empty, ""},
		"ipvsadm-list.txt":          {snapshot.Empty, ""},
		"ipvsadm-stats.txt":         {snapshot.Empty, ""},
		"ipvsadm-conn.txt":          {snapshot.Empty, ""},
	} {
		if e := rules[file]; e.Status != want.status || !strings.Contains(string(e.Data), want.text) {
			t.Errorf("a machine with rules: %s: %q %s %s\n%s", file, e.Status, e.Note, e.Error, e.Data)
		}
	}
	if text := string(rules["iptables-legacy-save.txt"].Data); !strings.Contains(text, "*filter\n") || !strings.Contains(text, "*nat\n") || strings.Contains(text, "*mangle\n") {
		t.Errorf("not the tables that are registered:\n%s", text)
	}
}
