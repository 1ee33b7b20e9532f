package plan

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
)

const recordedNewest = "../../test/recorded/testdata/kube-proxy-1.36-iptables-nft"

// neighbours are chains that are not kube-proxy's, or may be kubelet's, though their names begin like those of
// kube-proxy's, with rules of others around its jumps.
var neighbours = map[string]map[string][]string{
	"nat": {
		"PREROUTING":          {"ACCEPT", "-A PREROUTING -s 192.0.2.1/32 -j ACCEPT", "", "-A PREROUTING -d 192.0.2.2/32 -j KUBE-HOSTPORTS"},
		"KUBE-MARK-DROP":      {"-", "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000"},
		"KUBE-KUBELET-CANARY": {"-"},
		"KUBE-HOSTPORTS":      {"-", "-A KUBE-HOSTPORTS -p tcp -m tcp --dport 9999 -j DNAT --to-destination 10.244.1.20:9999"},
	},
	"filter": {
		"FORWARD":             {"ACCEPT", "-A FORWARD -j KUBE-ROUTER-FORWARD", ""},
		"KUBE-ROUTER-FORWARD": {"-", "-A KUBE-ROUTER-FORWARD -m set --match-set KUBE-SRC-ABC src -j KUBE-NWPLCY-ABC"},
		"KUBE-NWPLCY-ABC":     {"-", "-A KUBE-NWPLCY-ABC -j RETURN"},
		"KUBE-FIREWALL":       {"-", "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" -m mark --mark 0x8000/0x8000 -j DROP"},
		"KUBE-KUBELET-CANARY": {"-"},
	},
	"mangle": {"KUBE-IPTABLES-HINT": {"-"}, "KUBE-KUBELET-CANARY": {"-"}},
}

// leftIn puts the rules of a recorded kube-proxy into another backend, among neighbours. It returns what is there without
// kube-proxy's.
func (n *savedNode) leftIn(from, to string) (without map[string]map[string][]string) {
	without = map[string]map[string][]string{}
	left := map[string]map[string][]string{}
	for table, chains := range n.rules[savedFiles[from]] {
		left[table], without[table] = map[string][]string{}, map[string][]string{}
		for c, rules := range chains {
			left[table][c] = slices.Clone(rules)
			if rules[0] != "-" {
				without[table][c] = rules[:1]
			}
		}
		for c, rules := range neighbours[table] {
			var all, kept []string
			for _, r := range rules {
				if r == "" { // kube-proxy's jumps
					all = append(all, left[table][c][1:]...)
					continue
				}
				all, kept = append(all, r), append(kept, r)
			}
			left[table][c], without[table][c] = all, kept
		}
	}
	// kube-proxy never removes its jump to kubelet's chain, and neither does anybody else.
	for _, c := range []string{"INPUT", "OUTPUT"} {
		without["filter"][c] = append(without["filter"][c], "-A "+c+" -j KUBE-FIREWALL")
	}
	n.rules[savedFiles[to]] = left
	delete(n.files, "manifest.json") // names the files that there were
	return without
}

// A copy of kube-proxy's rules in the backend that it does not use goes, and nothing else; taken back it is there again.
func TestLeftoverBackend(t *testing.T) {
	n := savedNodeOf(t, recordedNewest)
	want := n.leftIn("iptables-nft", "iptables-legacy")
	delete(n.rules[savedFiles["iptables-legacy"]]["mangle"], canaryChain)
	delete(want["mangle"], canaryChain)
	for table, chains := range n.rules[savedFiles["iptables-nft"]] { // kubelet has moved too
		for _, c := range []string{"KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"} {
			if neighbours[table][c] != nil {
				chains[c] = []string{"-"}
			}
		}
	}
	n.mendsLeftovers(t, "iptables-legacy", want)
}

// So it does where kube-proxy runs in nftables mode now.
func TestLeftoverMode(t *testing.T) {
	n := savedNodeOf(t, "../../test/recorded/testdata/kube-proxy-1.36-nftables")
	n.rules[savedFiles["iptables-nft"]] = savedNodeOf(t, recordedNewest).rules[savedFiles["iptables-nft"]]
	want := n.leftIn("iptables-nft", "iptables-nft")
	n.mendsLeftovers(t, "iptables-nft", want)
}

func (n *savedNode) mendsLeftovers(t *testing.T, program string, want map[string]map[string][]string) {
	t.Helper()
	n.only = []string{"web", "dns"}
	before := n.clone()
	p := Make(n.read(t), Options{})
	var steps []report.RepairStep
	for _, s := range p.Steps {
		if s.Kind == kindIPTables {
			steps = append(steps, s)
			if s.Owner != ownerProxy || s.Consent != "" || !strings.HasPrefix(s.Title, "remove ") || s.Do.Command[0] != program+"-restore" {
				t.Errorf("step %+v", s)
			}
		}
	}
	if len(steps) == 0 {
		t.Fatalf("no steps; left %+v", p.Left)
	}
	if err := n.apply(p); err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, n.rules[savedFiles[program]]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, f := range n.read(t).Report.Findings {
		if f.ID == "leftover-proxy-mode-rules" || f.ID == "iptables-legacy-and-nft-both-have-kube-rules" || f.Severity == "critical" {
			t.Errorf("still found: %s %s", f.ID, f.Message)
		}
	}
	if err := n.takeBack(p); err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(before.rules, n.rules); d != "" {
		t.Errorf("taken back (-before +now):\n%s", d)
	}
}

// Where the two copies do not tell which one is kept, or tell different things, neither is touched.
func TestLeftoverUndecided(t *testing.T) {
	const nft, legacy = "evidence/iptables-nft-save.txt", "evidence/iptables-legacy-save.txt"
	for name, change := range map[string]func(rules map[string]map[string]map[string][]string){
		"the same": func(rules map[string]map[string]map[string][]string) {
			delete(rules[nft], "mangle")
			delete(rules[legacy], "mangle")
		},
		"the one that kubelet keeps is the old one": func(rules map[string]map[string]map[string][]string) {
			rules[legacy]["mangle"]["KUBE-IPTABLES-HINT"] = []string{"-"}
			delete(rules[legacy]["mangle"], canaryChain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := savedNodeOf(t, recordedNewest)
			delete(n.files, "manifest.json")
			n.rules[legacy] = n.clone().rules[nft]
			delete(n.rules, savedFiles["ip6tables-nft"])
			delete(n.files, savedFiles["ip6tables-nft"])
			change(n.rules)
			n.only = []string{"web"}
			p := Make(n.read(t), Options{})
			for _, s := range p.Steps {
				if s.Kind == kindIPTables {
					t.Errorf("step %s\n%.500s", s.Title, s.Do.Input)
				}
			}
			if !slices.ContainsFunc(p.Left, func(l report.RepairLeft) bool {
				return l.ID == "iptables-legacy-and-nft-both-have-kube-rules" && strings.Contains(l.Because, "cannot be told")
			}) {
				t.Errorf("left %+v", p.Left)
			}
		})
	}
}
