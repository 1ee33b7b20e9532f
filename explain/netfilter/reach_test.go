package netfilter

import "testing"

const reachable = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:A - [0:0]
:B - [0:0]
:C - [0:0]
:LOOP - [0:0]
-A INPUT -m comment --comment "all of it" -j A
-A INPUT -j C
-A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j DROP
-A FORWARD -m conntrack --ctstate NEW --ctproto tcp -j DROP
-A FORWARD -i eth0 -j DROP
-A FORWARD -p tcp -m tcp -j DROP
-A FORWARD -j LOOP
-A FORWARD -j LOG
-A FORWARD -j RETURN
-A A -s 10.0.0.0/8 -j ACCEPT
-A A -j DROP
-A B -j A
-A C -s 10.0.0.0/8 -j RETURN
-A C -j DROP
-A LOOP -j LOOP
COMMIT
`

func TestReach(t *testing.T) {
	rulesets, err := ParseSave(reachable, "reach", Hint{})
	if err != nil {
		t.Fatal(err)
	}
	table := rulesets[0].Table("filter")
	reached := table.Reached()
	for chain, want := range map[string]bool{"INPUT": true, "A": true, "B": false, "C": true, "LOOP": true} {
		if reached[chain] != want {
			t.Errorf("%s is reached: %t, want %t", chain, reached[chain], want)
		}
	}
	if from := table.ReachedFrom(table.Chain("B")); len(from) != 2 || !from["A"] {
		t.Errorf("reached from B: %v", from)
	}
	for _, tt := range []struct {
		chain                   string
		rule                    int
		always, alwaysNew, ends bool
	}{
		{"INPUT", 0, true, true, true},
		{"INPUT", 1, true, true, false}, // some packets return
		{"FORWARD", 0, false, true, true},
		{"FORWARD", 1, false, false, true},
		{"FORWARD", 2, false, false, true},
		{"FORWARD", 3, false, false, true},
		{"FORWARD", 4, true, true, false},
		{"FORWARD", 5, true, true, false},
		{"FORWARD", 6, true, true, true}, // the policy decides
	} {
		r := &table.Chain(tt.chain).Rules[tt.rule]
		if r.Always() != tt.always || r.AlwaysNew() != tt.alwaysNew || table.Ends(r) != tt.ends {
			t.Errorf("%s: always %t, alwaysNew %t, ends %t, want %t %t %t", r.Text, r.Always(), r.AlwaysNew(), table.Ends(r), tt.always, tt.alwaysNew, tt.ends)
		}
	}
}
