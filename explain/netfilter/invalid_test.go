package netfilter

import "testing"

func TestAlwaysInvalid(t *testing.T) {
	for rule, want := range map[string]bool{
		"-m conntrack --ctstate INVALID -j DROP": true,
		"-m state --state INVALID -j DROP":       true,
		"-m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP": true,
		`-m comment --comment "drop what fits no connection" -m conntrack --ctstate INVALID -j DROP`:    true,
		"-s 10.0.0.0/8 -m conntrack --ctstate INVALID -j DROP":                                          false,
		"-p tcp -m conntrack --ctstate INVALID -j DROP":                                                 false,
		"-m conntrack ! --ctstate INVALID -j DROP":                                                      false,
		"-m conntrack --ctstate INVALID,NEW -j DROP":                                                    false,
		"-m mark --mark 0x1 -m conntrack --ctstate INVALID -j DROP":                                     false,
		"-j DROP": false,
	} {
		sets, err := ParseSave("*filter\n:KUBE-FORWARD - [0:0]\n-A KUBE-FORWARD "+rule+"\nCOMMIT\n", "f", Hint{Family: IPv4})
		if err != nil {
			t.Fatal(err)
		}
		if got := sets[0].Table("filter").Chain("KUBE-FORWARD").Rules[0].AlwaysInvalid(); got != want {
			t.Errorf("%s: %t", rule, got)
		}
	}
}
