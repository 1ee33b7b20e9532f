package netfilter

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestTargets(t *testing.T) {
	one := func(kind TranslateKind, a string, port uint16) *Translate {
		t := &Translate{Kind: kind, MinPort: port, MaxPort: port}
		if a != "" {
			t.Min, t.Max = addr(a), addr(a)
		}
		return t
	}
	for save, want := range map[string]Target{
		"-j ACCEPT": Accept{}, "-j DROP": Drop{}, "-j RETURN": Return{}, "-j QUEUE": Queue{}, "": nil,
		"-j KUBE-SVC-X": Jump{Chain: "KUBE-SVC-X"}, "-g USER": Jump{Chain: "USER", Goto: true}, "-j c": Jump{Chain: "c"},
		"-j REJECT --reject-with tcp-reset":          Reject{With: "tcp-reset"},
		"-j REJECT":                                  Reject{With: "icmp-port-unreachable"},
		"-s fd00::1/128 -j REJECT":                   Reject{With: "icmp6-port-unreachable"},
		"-j NFQUEUE --queue-num 3 --queue-bypass":    Queue{Num: 3},
		"-j NFQUEUE --queue-balance 1:4":             Queue{Num: 1},
		`-j LOG --log-prefix "x -j DROP " `:          Continue{Name: "LOG"},
		"-j TCPMSS --clamp-mss-to-pmtu":              Continue{Name: "TCPMSS"},
		"-j DSCP --set-dscp 0x0a":                    Rewrite{Name: "DSCP", Value: 0x28, Mask: 0xfc},
		"-j TOS --set-tos 0x10/0x3f":                 Rewrite{Name: "TOS", Value: 0x10, Mask: 0x3f},
		"-j ECN --ecn-tcp-remove":                    Rewrite{Name: "ECN"},
		"-j HL --hl-set 33":                          Rewrite{Name: "HL", Hops: true, Value: 33, Mask: 0xff},
		"-j HL --hl-inc 1":                           Rewrite{Name: "HL", Hops: true, Mask: 0xff, Open: true},
		"-j MARK --set-xmark 0x4000/0x4000":          SetMark{Value: 0x4000, Mask: 0x4000},
		"-j MARK --set-mark 0xff/0x0f":               SetMark{Value: 0xff, Mask: 0xff},
		"-j MARK --set-mark 5":                       SetMark{Value: 5, Mask: 0xffffffff},
		"-j MARK --and-mark 0xff":                    SetMark{Mask: 0xffffff00},
		"-j MARK --or-mark 0x4000":                   SetMark{Value: 0x4000, Mask: 0x4000},
		"-j MARK --xor-mark 0x4000":                  SetMark{Value: 0x4000},
		"-j MARK -m comment --comment x --or-mark 1": SetMark{Value: 1, Mask: 1},
		"-j MARK":                          Unreadable{Name: "MARK", Why: "no mark is shown"},
		"-j CONNMARK --set-xmark 0xff/0xf": ConnMark{Op: ConnMarkSet, Value: 0xff, Mask: 0xf, NFMask: 0xffffffff, CTMask: 0xffffffff},
		"-j CONNMARK --save-mark":          ConnMark{Op: ConnMarkSave, NFMask: 0xffffffff, CTMask: 0xffffffff},
		"-j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x81": ConnMark{Op: ConnMarkRestore, NFMask: 0x80, CTMask: 0x81},
		"-j CT --notrack":             CT{NoTrack: true},
		"-j NOTRACK":                  CT{NoTrack: true},
		"-j CT --zone 5 --helper ftp": CT{Zone: "5"},
		"-p tcp -j TPROXY --on-port 15001 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1": &TProxy{Port: 15001, Value: 1, Mask: 1},
		"-p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1":                     &TProxy{Port: 15001, Addr: addr("127.0.0.1")},
		"-j SET --add-set A src,dst --exist --timeout 60":                        &SetAdd{Set: "A", Dirs: []Dir{DirSrc, DirDst}},
		"-j SET --del-set A dst":                                                 &SetAdd{Set: "A", Dirs: []Dir{DirDst}, Delete: true},
		"-j DNAT --to-destination 10.0.0.1:80":                                   one(DNAT, "10.0.0.1", 80),
		"-j DNAT --to-destination 10.0.0.1":                                      one(DNAT, "10.0.0.1", 0),
		"-j DNAT --to-destination :8080":                                         one(DNAT, "", 8080),
		"-j DNAT --to-destination [fd00::1]:80":                                  one(DNAT, "fd00::1", 80),
		"-j DNAT --to-destination fd00::1":                                       one(DNAT, "fd00::1", 0),
		"-j DNAT --to-destination ::1":                                           one(DNAT, "::1", 0),
		"-j DNAT --to-destination 10.0.0.1-10.0.0.5:80-90/3 --random --persistent": &Translate{
			Min: addr("10.0.0.1"), Max: addr("10.0.0.5"), MinPort: 80, MaxPort: 90, BasePort: 3, Random: true, Persistent: true,
		},
		"-j SNAT --to-source 1.2.3.4 --random-fully": &Translate{Kind: SNAT, Min: addr("1.2.3.4"), Max: addr("1.2.3.4"), RandomFully: true},
		"-j REDIRECT --to-ports 8080-8090":           &Translate{Kind: Redirect, MinPort: 8080, MaxPort: 8090},
		"-j REDIRECT":                                &Translate{Kind: Redirect},
		"-j MASQUERADE --random-fully":               &Translate{Kind: Masquerade, RandomFully: true},
		"-j MASQUERADE --to-ports 1024-2048":         &Translate{Kind: Masquerade, MinPort: 1024, MaxPort: 2048},
		"-j NETMAP --to 10.1.0.0/16":                 &Translate{Kind: NetMap, Prefix: netip.MustParsePrefix("10.1.0.0/16")},
		"-j HMARK --hmark-mod 10":                    Unreadable{Name: "HMARK", Why: "the mark comes from a hash that is not computed"},
		"-j DNAT --to-destination nowhere":           Unreadable{Name: "DNAT", Why: `--to-destination: "nowhere" is not an address or port to translate to`},
		"-j DNAT":                                    Unreadable{Name: "DNAT", Why: "no address or port to translate to is shown"},
		"-j DNAT --to-destination :0 --persistent":   Unreadable{Name: "DNAT", Why: "no address or port to translate to is shown"},
		"-j DNAT --to-destination 0.0.0.0:0":         Unreadable{Name: "DNAT", Why: "no address or port to translate to is shown"},
		"-j SNAT [unsupported revision]":             Unreadable{Name: "SNAT", Why: "printed as [unsupported revision]: the kernel's rule is newer than the iptables that printed it"},
	} {
		sets, err := ParseRules("-P INPUT ACCEPT\n-A INPUT "+save, "test", Hint{Family: IPv4, Table: "filter"})
		if err != nil {
			t.Fatal(err)
		}
		r := sets[0].Tables[0].Chain("INPUT").Rules[0]
		if diff := cmp.Diff(want, r.Target, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", save, diff)
		}
		if _, broken := want.(Unreadable); broken != (len(sets[0].Problems) > 0) && save != "-j HMARK --hmark-mod 10" {
			t.Errorf("%s: problems %v", save, sets[0].Problems)
		}
	}
}

func TestTranslateString(t *testing.T) {
	for _, s := range []string{
		"10.0.0.1:80", "10.0.0.1", ":8080", "[fd00::1]:80", "fd00::1", "10.0.0.1-10.0.0.5:80-90/3", "[fd00::1-fd00::5]:80",
	} {
		var d Translate
		if !d.to(s) || d.String() != s {
			t.Errorf("%s becomes %s", s, d.String())
		}
	}
}
