package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// leftAfterIPVS is a node in iptables mode on which nobody cleaned up after IPVS mode: the recorded rules of both modes,
// and everything else that IPVS mode had.
func leftAfterIPVS(t *testing.T) *kernelText {
	t.Helper()
	k, now := recordedNode(t, "kube-proxy-1.33-ipvs"), recordedNode(t, "kube-proxy-1.33-iptables-nft")
	for _, file := range []string{"configz.json", "kube-proxy-config.yaml", "kube-proxy.log", "kube-proxy-args.txt", "proxyMode.txt", "metrics.txt", "healthz.json"} {
		k.files["evidence/"+file] = now.files["evidence/"+file]
	}
	for was, is := range map[string]string{recordedRules4: "evidence/iptables-nft-save.txt", recordedRules6: "evidence/ip6tables-nft-save.txt"} {
		tables := now.tables(is)
		for _, t := range tables {
			for _, old := range k.tables(was) {
				if old.name != t.name {
					continue
				}
				for _, c := range old.chains {
					name := strings.Fields(c)[0][1:]
					if t.has(name) {
						continue
					}
					t.chains = append(t.chains, c)
					for _, r := range old.rules {
						if strings.HasPrefix(r, "-A "+name+" ") {
							t.rules = append(t.rules, r)
						}
						if strings.HasSuffix(r, " -j "+name) && !strings.HasPrefix(r, "-A KUBE-") {
							t.rules = append([]string{r}, t.rules...)
						}
					}
				}
			}
		}
		// What leads to chains that are gone went with them.
		for _, t := range tables {
			t.rules = slices.DeleteFunc(t.rules, func(r string) bool { return strings.HasPrefix(jumpOf(r), "KUBE-") && !t.has(jumpOf(r)) })
		}
		k.writeTables(was, tables)
	}
	return k
}

// TestLeftOfIPVS: what IPVS mode left goes, but for what is another program's, and comes back when that is taken back.
func TestLeftOfIPVS(t *testing.T) {
	k := leftAfterIPVS(t)
	const others = "-A -t 192.0.2.99:99 -s wlc"
	k.write(recordedServers, append(k.lines(recordedServers), others))
	k.write(recordedSets, append(k.lines(recordedSets), "create somebody hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1", "add somebody 192.0.2.1"))
	broken := k.read(t)
	if p := broken.Node().Proxy; p.Mode != "iptables" || p.Backend != "legacy" {
		t.Fatalf("mode %q, backend %q", p.Mode, p.Backend)
	}
	base := map[string]bool{}
	var shown []string
	for _, l := range foundLines(broken.Report) {
		if strings.HasPrefix(l, "leftover-proxy-mode-rules ") {
			shown = append(shown, l)
			continue
		}
		base[l] = true
	}
	if len(shown) != 3 {
		t.Errorf("3 findings about what is left expected, of the rules of two families and of the device:\n%s", strings.Join(shown, "\n"))
	}
	// What the objects deserve in iptables mode, which shows when nothing of IPVS mode is in the way.
	for _, l := range foundLines(recordedNode(t, "kube-proxy-1.33-iptables-nft").read(t).Report) {
		base[l] = true
	}
	p := Make(broken, Options{})
	var titles []string
	for _, s := range p.Steps {
		titles = append(titles, s.Kind+": "+s.Title)
	}
	done := k.clone()
	made := mendRecorded(t, k, broken, p, base)
	if made[kindIPTables] == 0 || made[kindIPVS] != 1 || made[kindAddress] != 1 || made[kindIPSet] != 1 {
		t.Errorf("steps: %q", titles)
	}
	// What is there once the steps are done.
	for _, s := range p.Steps {
		if s.Kind != KindAdvice {
			if err := done.do(s.Do); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := done.lines(recordedServers); len(got) != 1 || got[0] != others {
		t.Errorf("virtual servers: %q", got)
	}
	if got := done.lines(recordedSets); len(got) != 2 || !strings.HasPrefix(got[0], "create somebody ") {
		t.Errorf("sets: %q", got)
	}
	if got := done.addresses(); len(got) != 0 || strings.Contains(done.files[recordedAddrs], "kube-ipvs0") {
		t.Errorf("addresses: %q", got)
	}
	if text := fmt.Sprint(done.tables(recordedRules4), done.tables(recordedRules6)); strings.Contains(done.files[recordedRules4]+done.files[recordedRules6], "--match-set") {
		t.Errorf("rules ask sets: %.2000s", text)
	}
}
