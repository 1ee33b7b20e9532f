package redact

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// TestCountersOfServers: addresses of virtual servers are others in the list of counters, the same ones as where they are
// saved, and what they have counted stays.
func TestCountersOfServers(t *testing.T) {
	const (
		saved = "-A -t 10.96.31.7:443 -s rr\n-a -t 10.96.31.7:443 -r 172.30.12.10:6443 -m -w 1\n-A -u [2a01:4f8:96::a]:53 -s rr\n-A -f 7 -6 -s rr\n"
		stats = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.31.7:443              123456789012 1234567890123456 20240105 18446744073709 8080
  -> 172.30.12.10:6443                  12      344       40 4294967296123     9000
UDP  [2a01:4f8:96::a]:53                 0        0        0        0        0
FWM  7 IPv6                              5        6        7        8        9
`
	)
	s := &snapshot.Snapshot{Evidence: []snapshot.Evidence{
		{File: "ipvsadm-save.txt", Format: snapshot.IPVSSave, Status: snapshot.OK, Data: []byte(saved)},
		{File: "ipvsadm-stats.txt", Format: snapshot.IPVSList, Status: snapshot.OK, Data: []byte(stats)},
	}}
	out, err := Redact(s, testKey)
	if err != nil {
		t.Fatal(err)
	}
	got := string(out.Evidence[1].Data)
	if out.Evidence[1].File != "ipvsadm-stats.txt" || out.Evidence[1].Status != snapshot.OK {
		t.Errorf("%+v", out.Evidence[1])
	}
	for _, gone := range []string{"10.96.31", "172.30.12", "2a01:4f8"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is left in %s", gone, got)
		}
	}
	named := regexp.MustCompile(`\[[0-9a-f:]+\]|\d+\.\d+\.\d+\.\d+`)
	if diff := cmp.Diff(named.ReplaceAllString(stats, "ADDRESS"), named.ReplaceAllString(got, "ADDRESS")); diff != "" {
		t.Errorf("more than addresses is another: %s", diff)
	}
	before, after := explain.CountersOf(s), explain.CountersOf(out)
	for line := 1; line <= 4; line++ {
		at := report.Evidence{File: "ipvsadm-save.txt", Line: line}
		n, ok := before.At(at)
		if m, also := after.At(at); !ok || !also || n != m {
			t.Errorf("line %d counts %v, %t, and redacted %v, %t", line, n, ok, m, also)
		}
	}
}
