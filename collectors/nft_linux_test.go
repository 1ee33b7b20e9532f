package collectors

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// nftMessages is what a file of netlink messages is about.
type nftMessages struct {
	header []string
	// tables and sets by name, chains with their table.
	tables, chains, sets []string
	// rules are their numbers by chain, elements by set; notes are what rules have of nft's.
	rules, elements map[string]int
	notes           []string
}

// messagesOf reads the form of a file of netlink messages, and none of what the messages say.
func messagesOf(t *testing.T, data []byte) nftMessages {
	t.Helper()
	header, rest, ok := bytes.Cut(data, []byte("\n\n"))
	out := nftMessages{header: strings.Split(string(header), "\n"), rules: map[string]int{}, elements: map[string]int{}}
	if !ok || out.header[0] != snapshot.NetlinkMagic {
		t.Fatalf("no header: %.100q", header)
	}
	last := -1
	for len(rest) > 0 {
		size := binary.NativeEndian.Uint32(rest)
		if size < nlHeader+genHeader || int(size) > len(rest) {
			t.Fatalf("a message of %d bytes, and %d are left", size, len(rest))
		}
		kind := int(binary.NativeEndian.Uint16(rest[4:]))
		if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || !bytes.Equal(rest[6:nlHeader], make([]byte, nlHeader-6)) {
			t.Errorf("a message of another subsystem, or with the number of who asked: % x", rest[:nlHeader])
		}
		family, attrs := nftFamilies[rest[nlHeader]], rest[nlHeader+genHeader:size]
		name := func(attr uint16) string { return family + " " + textAt(attrs, attr) }
		last = kind & 0xff
		switch last {
		case unix.NFT_MSG_NEWTABLE:
			out.tables = append(out.tables, name(unix.NFTA_TABLE_NAME))
		case unix.NFT_MSG_NEWCHAIN:
			out.chains = append(out.chains, name(unix.NFTA_CHAIN_TABLE)+" "+textAt(attrs, unix.NFTA_CHAIN_NAME))
		case unix.NFT_MSG_NEWRULE:
			out.rules[name(unix.NFTA_RULE_TABLE)+" "+textAt(attrs, unix.NFTA_RULE_CHAIN)]++
			attributes(attrs, func(kind uint16, value []byte) {
				if kind == unix.NFTA_RULE_USERDATA {
					out.notes = append(out.notes, string(value))
				}
			})
		case unix.NFT_MSG_NEWSET:
			out.sets = append(out.sets, name(unix.NFTA_SET_TABLE)+" "+textAt(attrs, unix.NFTA_SET_NAME))
		case unix.NFT_MSG_NEWSETELEM:
			attributes(attrs, func(kind uint16, value []byte) {
				if kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					attributes(value, func(uint16, []byte) {
						out.elements[name(unix.NFTA_SET_ELEM_LIST_TABLE)+" "+textAt(attrs, unix.NFTA_SET_ELEM_LIST_SET)]++
					})
				}
			})
		}
		rest = rest[min(int(size+3)&^3, len(rest)):]
	}
	if last != unix.NFT_MSG_NEWGEN {
		t.Errorf("the last message is of the type %d", last)
	}
	return out
}

// sameAsListed compares what messages are about with what `nft -j list ruleset` lists. What they say is compared where
// they are read (explain/nft).
func sameAsListed(t *testing.T, data []byte, native string) {
	t.Helper()
	got := messagesOf(t, data)
	objects, err := objectsOf([]byte(native))
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]int{}
	for _, o := range objects {
		var x struct {
			Rule  *struct{ Family, Table, Chain string }
			Table *struct{ Family, Name string }
		}
		if err := json.Unmarshal(o, &x); err != nil {
			t.Fatal(err)
		}
		switch {
		// Rules of iptables-nft, which nft lists too, are in another file.
		case x.Rule != nil && x.Rule.Family != "ip" && x.Rule.Family != "ip6":
			rules[x.Rule.Family+" "+x.Rule.Table+" "+x.Rule.Chain]++
		case x.Table != nil && x.Table.Family != "ip" && x.Table.Family != "ip6":
			if table := x.Table.Family + " " + x.Table.Name; !strings.Contains(strings.Join(got.tables, "\n"), table) {
				t.Errorf("no table %s among %q", table, got.tables)
			}
		}
	}
	if fmt.Sprint(got.rules) != fmt.Sprint(rules) {
		t.Errorf("rules %v, want %v", got.rules, rules)
	}
}

// TestNFTMessages: everything that a table has is there, and nothing of tables that iptables-nft keeps.
func TestNFTMessages(t *testing.T) {
	needs(t, "nft", "iptables-nft", "ip")
	inNamespace(t, func(t *testing.T, p *place) {
		shell(t, `iptables-nft -A INPUT -p tcp --dport 80 -j ACCEPT
ip link add eth0 type veth peer name eth1
nft -f - <<END
table inet web {
	counter c {
	}
	set s {
		type ipv4_addr
		elements = { 10.0.0.1, 10.0.0.2 }
	}
	map m {
		type inet_service : verdict
		elements = { 80 : accept }
	}
	chain in {
		type filter hook input priority 0
		tcp dport { 22, 80, 443 } accept
		iif "eth0" tcp dport vmap @m
	}
	chain out {
		drop comment "the end"
	}
}
table ip filter2 {
}
END`)
		e := readRulesAll(p)[nftFile]
		if e.Status != snapshot.OK || e.Format != snapshot.NFTNetlink {
			t.Fatalf("%q: %s", e.Status, e.Error)
		}
		got := messagesOf(t, e.Data)
		for what, x := range map[string][2]any{
			"tables":   {got.tables, []string{"inet web", "ip filter2"}},
			"chains":   {got.chains, []string{"inet web in", "inet web out"}},
			"sets":     {got.sets, []string{"inet web s", "inet web m", "inet web __set0"}},
			"rules":    {got.rules, map[string]int{"inet web in": 2, "inet web out": 1}},
			"elements": {got.elements, map[string]int{"inet web s": 2, "inet web m": 1, "inet web __set0": 3}},
		} {
			if fmt.Sprint(x[0]) != fmt.Sprint(x[1]) {
				t.Errorf("%s: %q, want %q", what, x[0], x[1])
			}
		}
		header := strings.Join(got.header, "\n")
		for _, line := range []string{"byte-order ", "generation ", " lo", " eth0", " eth1"} {
			if !strings.Contains(header, line) {
				t.Errorf("no %q in the header:\n%s", line, header)
			}
		}
		if !strings.Contains(string(e.Data), "the end") {
			t.Error("the comment of a rule is not there")
		}
	})
}

// TestNFTFallback: where the messages cannot be had nft is asked, unless it is known that it has no answer either.
func TestNFTFallback(t *testing.T) {
	needs(t, "nft")
	inNamespace(t, func(t *testing.T, p *place) {
		shell(t, somewhere[nftFile].write)
		for name, tt := range map[string]struct {
			err    error
			file   string
			status snapshot.Status
		}{
			"refused":   {unix.EINVAL, nftJSONFile, snapshot.OK},
			"no answer": {errors.New("the kernel does not answer for 10 s"), nftJSONFile, snapshot.OK},
			"denied":    {fmt.Errorf("list the sets: %w", fs.ErrPermission), nftFile, snapshot.Denied},
			"ended":     {context.Canceled, nftFile, snapshot.NotCollected},
		} {
			// On this thread, which is of the namespace.
			got := p.nftEvidence(t.Context(), func(context.Context, *nfnetlink, []nftTable, uint32) ([]byte, error) { return nil, tt.err })
			if len(got) != 1 || got[0].File != tt.file || got[0].Status != tt.status {
				t.Errorf("%s: %+v", name, got)
				continue
			}
			if e := got[0]; tt.file == nftJSONFile && (!strings.Contains(string(e.Data), `"web"`) || !strings.Contains(e.Note, tt.err.Error())) {
				t.Errorf("%s: note %q: %s", name, e.Note, e.Data)
			}
		}
	})
}

// TestChangingNFT: while tables are replaced all the time, what is read is what was there at one moment, or it is
// marked as inconsistent.
func TestChangingNFT(t *testing.T) {
	needs(t, "bash", "nft")
	reads := 300
	if testing.Short() {
		reads = 50
	}
	inNamespace(t, func(t *testing.T, p *place) {
		var b strings.Builder
		b.WriteString("table inet a\ntable inet b\ndelete table inet a\ndelete table inet b\n")
		for _, table := range []string{"a", "b"} {
			fmt.Fprintf(&b, "table inet %s {\n", table)
			for chain := range 5 {
				fmt.Fprintf(&b, "\tchain c%d {\n", chain)
				for rule := range 10 {
					fmt.Fprintf(&b, "\t\ttcp dport { %d, 5000 } accept comment \"NUMBER\"\n", rule)
				}
				b.WriteString("\t}\n")
			}
			b.WriteString("}\n")
		}
		file := t.TempDir() + "/rules"
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		shell(t, "sed s/NUMBER/1/g "+file+" | nft -f -")
		loop := exec.Command("bash", "-c", `n=1; while :; do n=$((n+1)); sed "s/NUMBER/$n/g" `+file+` | nft -f -; sleep 0.0$((RANDOM % 2))$((RANDOM % 10)); done`)
		loop.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		loop.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = syscall.Kill(-loop.Process.Pid, syscall.SIGKILL)
			_ = loop.Wait()
		}()
		whole, seen := 0, map[string]bool{}
		for range reads {
			e := readNFT(t.Context(), p)[0]
			if e.Status == snapshot.Failed && strings.Contains(e.Error, "inconsistent") {
				continue
			}
			if e.Status != snapshot.OK || e.File != nftFile {
				t.Errorf("%s %q: %s%s", e.File, e.Status, e.Error, e.Note)
				continue
			}
			got := messagesOf(t, e.Data)
			if len(got.notes) != 100 || len(got.sets) != 100 {
				t.Errorf("%d rules and %d sets", len(got.notes), len(got.sets))
				continue
			}
			for _, n := range got.notes {
				if n != got.notes[0] {
					t.Errorf("rules of two moments: %q and %q", n, got.notes[0])
					break
				}
			}
			for _, s := range got.sets {
				if got.elements[s] != 2 {
					t.Errorf("%d elements of %s", got.elements[s], s)
				}
			}
			whole++
			seen[got.notes[0]] = true
		}
		t.Logf("%d of %d reads were of one moment, of %d rulesets", whole, reads, len(seen))
		if whole == 0 {
			t.Error("no read was of one moment")
		}
	})
}
