package collectors

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/host"
)

func TestReadRecent(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		needs(t, "iptables", "ip")
		build(t, "ip link set lo up")
		const rule = "iptables -A INPUT -m recent --set --name "
		if _, err := os.Stat("/sys/module/xt_recent"); err != nil {
			t.Skip("this kernel has no xt_recent loaded")
		}
		build(t, rule+"KUBE-SEP-EMPTY\n"+rule+"KUBE-SEP-ONE\n"+rule+"'a b:c <=='\n"+rule+"'with space'\n"+rule+"' lead'\n"+rule+"\"$(printf 'x\\ny')\"")
		shell(t, `
			d=/proc/net/xt_recent
			for a in 10.244.1.7 10.244.1.8; do echo +$a > $d/KUBE-SEP-ONE; echo +$a > $d/KUBE-SEP-ONE; done
			echo +10.244.1.9 > "$d/with space"
		`)
		got := readTwice(t, p, readRecent)
		if len(got) != 1 || got[0].Status != snapshot.OK || got[0].File != "xt_recent.txt" || !strings.Contains(got[0].Note, "3 lists") {
			t.Fatalf("%+v", got)
		}
		bundled(t, got...)
		ours := parsed(t, anyFamily(host.ParseRecent), 0, string(got[0].Data), got[0].File)
		native := &host.Host{}
		for _, name := range []string{"KUBE-SEP-EMPTY", "KUBE-SEP-ONE", "with space"} {
			if _, err := host.ParseRecent(native, shell(t, "cat '/proc/net/xt_recent/"+name+"'"), name); err != nil {
				t.Fatal(err)
			}
		}
		for i := range native.Recent {
			native.Recent[i].File = got[0].File
		}
		sameHost(t, "lists", native, ours)
		if len(ours.Recent) != 3 || len(ours.Recent[1].Entries) != 2 || !ours.HasRecent {
			t.Errorf("%s", got[0].Data)
		}
	})
}

func TestReadRecentAbsent(t *testing.T) {
	inNamespace(t, func(t *testing.T, p *place) {
		got := readOne(t, p, readRecent, "xt_recent.txt")
		if _, err := os.Stat("/proc/thread-self/net/xt_recent"); err == nil {
			// The module is there, and every namespace has its folder: there are no lists.
			if got.Status != snapshot.Empty {
				t.Errorf("%+v", got)
			}
			return
		}
		if got.Status != snapshot.Absent || got.Note == "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestRecentHeadings(t *testing.T) {
	var b bytes.Buffer
	writeRecent(&b, "A", nil)
	writeRecent(&b, "B", []byte("src=10.0.0.1 ttl: 0 last_seen: 5 oldest_pkt: 1 5"))
	writeRecent(&b, "C", nil)
	h := parsed(t, anyFamily(host.ParseRecent), 0, b.String(), "xt_recent.txt")
	if len(h.Recent) != 3 || len(h.Recent[1].Entries) != 1 {
		t.Errorf("%+v", h.Recent)
	}
}
