package explain_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
)

// TestSame changes one thing of a node.
func TestSame(t *testing.T) {
	nodes := recordedNodes(t)
	replace := func(file, before, after string) func(*testing.T, *snapshot.Snapshot) {
		return func(t *testing.T, s *snapshot.Snapshot) {
			for i := range s.Evidence {
				if e := &s.Evidence[i]; strings.HasSuffix(e.File, file) {
					changed := bytes.Replace(e.Data, []byte(before), []byte(after), 1)
					if bytes.Equal(changed, e.Data) {
						t.Fatalf("%s does not hold %q", e.File, before)
					}
					e.Data = changed
					return
				}
			}
			t.Fatalf("no %s", file)
		}
	}
	source := func(file string, change func(*snapshot.Evidence)) func(*testing.T, *snapshot.Snapshot) {
		return func(t *testing.T, s *snapshot.Snapshot) {
			for i := range s.Evidence {
				if strings.HasSuffix(s.Evidence[i].File, file) {
					change(&s.Evidence[i])
					return
				}
			}
			t.Fatalf("no %s", file)
		}
	}
	both := func(changes ...func(*testing.T, *snapshot.Snapshot)) func(*testing.T, *snapshot.Snapshot) {
		return func(t *testing.T, s *snapshot.Snapshot) {
			for _, c := range changes {
				c(t, s)
			}
		}
	}
	const (
		iptables = "kube-proxy-1.36-iptables-nft"
		ipvs     = "kube-proxy-1.36-ipvs"
		nftables = "kube-proxy-1.36-nftables"
		rules    = "iptables-nft-save.txt"
	)
	oneCounter := replace(rules, "[0:0] -A KUBE-SERVICES", "[12:720] -A KUBE-SERVICES")
	tests := []struct {
		name, node string
		change     func(*testing.T, *snapshot.Snapshot)
		want       explain.Sameness
	}{
		{"nothing", iptables, func(*testing.T, *snapshot.Snapshot) {}, explain.SameButCounters},
		{"when it was taken", iptables, func(_ *testing.T, s *snapshot.Snapshot) { s.Captured = "2026-01-05T10:00:00Z" }, explain.SameButCounters},
		{"another node", iptables, func(_ *testing.T, s *snapshot.Snapshot) { s.Node = "other" }, explain.Different},
		{"a rule's counter", iptables, oneCounter, explain.SameButCounters},
		{"a policy's counter", iptables, replace(rules, ":POSTROUTING ACCEPT [", ":POSTROUTING ACCEPT [1"), explain.SameButCounters},
		{"a date", iptables, replace(rules, "# Completed on ", "# Completed on Mon "), explain.SameButCounters},
		{"a date at the top", iptables, replace(rules, " 2026\n", " 2027\n"), explain.SameButCounters},
		{"another version of iptables", iptables, replace(rules, "iptables-nft-save v1", "iptables-nft-save v2"), explain.Different},
		{"a warning", iptables, replace(rules, "# Completed on ", "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n# Completed on "), explain.Different},
		{"a date becomes a warning", iptables, replace(rules, "# Completed on ", "# Warning: iptables-legacy tables present "), explain.Different},
		{"a rule", iptables, replace(rules, "-j KUBE-MARK-MASQ", "-j KUBE-MARK-DROP"), explain.Different},
		{"a rule and a counter", iptables, both(oneCounter, replace(rules, "-j DNAT --to-destination 10.", "-j DNAT --to-destination 11.")), explain.Different},
		{"a rule without its counter", iptables, replace(rules, "[0:0] -A KUBE-SERVICES", "-A KUBE-SERVICES"), explain.Different},
		{"a policy", iptables, replace(rules, ":POSTROUTING ACCEPT", ":POSTROUTING DROP"), explain.Different},
		{"a chain more", iptables, replace(rules, "*nat\n", "*nat\n:MINE - [0:0]\n"), explain.Different},
		{"a rule more at the end", iptables, func(_ *testing.T, s *snapshot.Snapshot) {
			i := slices.IndexFunc(s.Evidence, func(e snapshot.Evidence) bool { return strings.HasSuffix(e.File, rules) })
			s.Evidence[i].Data = append(slices.Clone(s.Evidence[i].Data), "[0:0] -A INPUT -j DROP\n"...)
		}, explain.Different},
		{"the last line break", iptables, func(_ *testing.T, s *snapshot.Snapshot) {
			i := slices.IndexFunc(s.Evidence, func(e snapshot.Evidence) bool { return strings.HasSuffix(e.File, rules) })
			s.Evidence[i].Data = bytes.TrimRight(s.Evidence[i].Data, "\n")
		}, explain.Different},
		{"a connection", iptables, replace("conntrack.txt", " 9 CLOSE ", " 8 CLOSE "), explain.SameRules},
		{"a connection and a counter", iptables, both(oneCounter, replace("conntrack.txt", " 9 CLOSE ", " 8 CLOSE ")), explain.SameRules},
		{"a connection and a rule", iptables, both(replace("conntrack.txt", " 9 CLOSE ", " 8 CLOSE "), replace(rules, "-j KUBE-MARK-MASQ", "-j X")), explain.Different},
		{"a line of the log", iptables, replace("kube-proxy.log", "\n", "\nI0105 one more\n"), explain.SameRules},
		{"a metric", iptables, replace("metrics.txt", "\n", "\n# one more\n"), explain.SameRules},
		{"a sysctl", iptables, replace("sysctl.txt", " = 0", " = 1"), explain.SameRules},
		{"an object", iptables, replace("services.json", `"clusterIP":"10.96.`, `"clusterIP":"10.97.`), explain.Different},
		{"an endpoint", iptables, replace("endpointslices.json", `"ready":true`, `"ready":false`), explain.Different},
		{"a route", iptables, replace("ip-route.txt", "172.30.0.", "172.30.1."), explain.Different},
		{"an address", iptables, replace("ip-addr.txt", "172.30.0.", "172.30.1."), explain.Different},
		{"a status", iptables, source("conntrack.txt", func(e *snapshot.Evidence) { e.Status = snapshot.Denied }), explain.Different},
		{"an error", iptables, source("conntrack.txt", func(e *snapshot.Evidence) { e.Error = "why" }), explain.Different},
		{"a note", iptables, source("conntrack.txt", func(e *snapshot.Evidence) { e.Note = "what" }), explain.Different},
		{"a source more", iptables, func(_ *testing.T, s *snapshot.Snapshot) {
			s.Evidence = append(s.Evidence, snapshot.Evidence{File: "z"})
		}, explain.Different},
		{"a real server's connections", ipvs, replace("ipvsadm-list.txt", "Masq    1      0          0", "Masq    1      7          19"), explain.SameRules},
		{"a real server's weight", ipvs, replace("ipvsadm-list.txt", "Masq    1      0          0", "Masq    0      0          0"), explain.Different},
		{"a real server's weight, as saved", ipvs, replace("ipvsadm-save.txt", "-w 1\n", "-w 0\n"), explain.Different},
		{"an entry of a set", ipvs, replace("ipset-save.txt", "add KUBE-CLUSTER-IP 10.96.", "add KUBE-CLUSTER-IP 10.97."), explain.Different},
		{"a connection through IPVS", ipvs, replace("ipvsadm-conn.txt", "287", "286"), explain.SameRules},
		{"a byte of a table of nftables", nftables, replace("nft.nl", "nat-prerouting", "nat-prerouting"[:13]+"h"), explain.Different},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := nodes[tt.node]
			after := *before
			after.Evidence = slices.Clone(before.Evidence)
			tt.change(t, &after)
			if got := explain.Same(before, &after); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
			if got := explain.Same(&after, before); got != tt.want {
				t.Errorf("the other way round: %d, want %d", got, tt.want)
			}
		})
	}
}

// TestSameLines compares captures of one line.
func TestSameLines(t *testing.T) {
	counter := func(kind string, values string) string {
		return "header\n\n" + kind + "\x0c\x00\x01\x00" + values[:8] + "\x0c\x00\x02\x00" + values[8:] + "and more"
	}
	expr, object := "\x0c\x00\x01\x00counter\x00\x1c\x00\x02\x80", "\x08\x00\x03\x00\x00\x00\x00\x01\x1c\x00\x04\x80"
	other := "\x0c\x00\x01\x00counted\x00\x1c\x00\x02\x80"
	tests := []struct {
		name          string
		format        snapshot.Format
		before, after string
		want          explain.Sameness
	}{
		{"counter of nft", snapshot.NFTText, "tcp dport 80 counter packets 3 bytes 180 accept\n", "tcp dport 80 counter packets 14 bytes 1800 accept\n", explain.SameButCounters},
		{"two counters", snapshot.NFTText, "elements = { 1 counter packets 3 bytes 1, 2 counter packets 0 bytes 0 }", "elements = { 1 counter packets 0 bytes 0, 2 counter packets 9 bytes 90 }", explain.SameButCounters},
		{"a port beside the counter", snapshot.NFTText, "tcp dport 80 counter packets 3 bytes 180 accept\n", "tcp dport 81 counter packets 14 bytes 1800 accept\n", explain.Different},
		{"a verdict behind the counter", snapshot.NFTText, "counter packets 3 bytes 180 accept\n", "counter packets 4 bytes 180 drop\n", explain.Different},
		{"a comment like a counter", snapshot.NFTText, `accept comment "counter packets 3 bytes 4"`, `accept comment "counter packets 5 bytes 6"`, explain.Different},
		{"no number", snapshot.NFTText, "counter packets 3 bytes 180 accept\n", "counter packets x bytes 180 accept\n", explain.Different},
		{"counter of a message", snapshot.NFTNetlink, counter(expr, "0123456701234567"), counter(expr, "9993456701234999"), explain.SameButCounters},
		{"named counter of a message", snapshot.NFTNetlink, counter(object, "0123456701234567"), counter(object, "0123456001234560"), explain.SameButCounters},
		{"what is no counter", snapshot.NFTNetlink, counter(other, "0123456701234567"), counter(other, "0123456001234560"), explain.Different},
		{"behind a counter", snapshot.NFTNetlink, counter(expr, "0123456701234567"), strings.Replace(counter(expr, "0123456001234560"), "and", "any", 1), explain.Different},
		{"before a counter", snapshot.NFTNetlink, counter(expr, "0123456701234567"), strings.Replace(counter(expr, "0123456001234560"), "header", "Header", 1), explain.Different},
		{"longer messages", snapshot.NFTNetlink, counter(expr, "0123456701234567"), counter(expr, "0123456001234560") + " ", explain.Different},
		{"counters of a real server", snapshot.IPVSList, "  -> 172.30.0.10:6443    12      344       40      23K     9000\n", "  -> 172.30.0.10:6443    13  345  41  24K   9100\n", explain.SameButCounters},
		{"counters of a virtual server", snapshot.IPVSList, "TCP  10.96.0.1:443   12 344 40 23456 9000\n", "TCP  10.96.0.1:443   4294967308 12345678 123456789 1099511627776 0\n", explain.SameButCounters},
		{"counters of a mark", snapshot.IPVSList, "FWM  7   0 0 0 0 0\n", "FWM  7   1 1 1 1 1\n", explain.SameButCounters},
		{"counters of a mark of IPv6", snapshot.IPVSList, "FWM  8 IPv6   0 0 0 0 0\n", "FWM  8 IPv6   1 1 1 1 1\n", explain.SameButCounters},
		{"another mark of IPv6", snapshot.IPVSList, "FWM  8 IPv6   0 0 0 0 0\n", "FWM  9 IPv6   0 0 0 0 0\n", explain.Different},
		{"a mark of IPv6 now", snapshot.IPVSList, "FWM  8   0 0 0 0 0\n", "FWM  8 IPv6   0 0 0 0 0\n", explain.Different},
		{"another virtual server", snapshot.IPVSList, "TCP  10.96.0.1:443   0 0 0 0 0\n", "UDP  10.96.0.1:443   0 0 0 0 0\n", explain.Different},
		{"a virtual server more", snapshot.IPVSList, "TCP  10.96.0.1:443   0 0 0 0 0\n", "TCP  10.96.0.1:443   0 0 0 0 0\nTCP  10.96.0.2:443   0 0 0 0 0\n", explain.Different},
		{"another real server", snapshot.IPVSList, "  -> 172.30.0.10:6443    12      344       40      23K     9000\n", "  -> 172.30.0.11:6443    12  344  40  23K   9000\n", explain.Different},
		{"scheduler", snapshot.IPVSList, "TCP  10.96.0.1:443 rr\n", "TCP  10.96.0.1:443 sh\n", explain.Different},
		{"rules of iptables -S", snapshot.IPTablesRules, "-A X -c 1 2 -j Y\n", "-A X -c 1 3 -j Y\n", explain.Different},
		{"what nobody recognised", snapshot.Unrecognised, "a", "b", explain.Different},
		{"cut off at the counter", snapshot.IPTablesSave, "[1:2] -A X\n", "[1:", explain.Different},
		{"nothing", snapshot.IPTablesSave, "", "[1:2] -A X\n", explain.Different},
	}
	for _, tt := range tests {
		of := func(text string) *snapshot.Snapshot {
			return &snapshot.Snapshot{Evidence: []snapshot.Evidence{{Format: tt.format, File: "f", Status: snapshot.OK, Data: []byte(text)}}}
		}
		if got := explain.Same(of(tt.before), of(tt.after)); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// BenchmarkSame compares two moments of a node on which every counter and every date is another.
func BenchmarkSame(b *testing.B) {
	before := large(b, 0)
	after := *before
	after.Evidence = slices.Clone(before.Evidence)
	for i := range after.Evidence {
		if e := &after.Evidence[i]; e.Format == snapshot.IPTablesSave {
			text := strings.ReplaceAll(strings.ReplaceAll(string(e.Data), "\n[", "\n[1"), "2026\n", "2027\n")
			e.Data = []byte(text)
		}
	}
	for b.Loop() {
		if got := explain.Same(before, &after); got != explain.SameButCounters {
			b.Fatal(got)
		}
	}
}
