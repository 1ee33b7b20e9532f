package collectors

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// rewriting is a complete ruleset over two tables, many chains each, that names one number everywhere: NUMBER is
// replaced. The program that loads it replaces one table after the other.
func rewriting() string {
	var b strings.Builder
	for _, table := range []string{"filter", "nat"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for chain := range 40 {
			fmt.Fprintf(&b, ":C%d-NUMBER - [0:0]\n", chain)
		}
		for chain := range 40 {
			for rule := range 5 {
				fmt.Fprintf(&b, "-A C%d-NUMBER -s 10.0.%d.%d/32 -m comment --comment NUMBER -j RETURN\n", chain, chain, rule)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

var numbered = regexp.MustCompile(`(?m)^\[.*--comment (\d+) `)

// moment says of which ruleset each table of a save is; an error for a table that is of several or not whole.
func moment(save []byte) (map[string]int, error) {
	of := map[string]int{}
	for _, block := range bytes.SplitAfter(save, []byte("COMMIT\n")) {
		_, block, ok := bytes.Cut(block, []byte("\n*"))
		if !ok {
			continue
		}
		table, _, _ := strings.Cut(string(block), "\n")
		marks := numbered.FindAllSubmatch(block, -1)
		if len(marks) != 200 {
			return nil, fmt.Errorf("table %s has %d rules", table, len(marks))
		}
		for _, m := range marks {
			if string(m[1]) != string(marks[0][1]) {
				return nil, fmt.Errorf("table %s is of the rulesets %s and %s", table, marks[0][1], m[1])
			}
		}
		of[table], _ = strconv.Atoi(string(marks[0][1]))
	}
	return of, nil
}

// TestChangingRules: while rules are rewritten all the time, what is read is what was there at one moment, or it
// is marked as inconsistent. The rulesets are numbered and the table filter is written first: what was there at one
// moment has the same number in both tables, or one more in filter.
func TestChangingRules(t *testing.T) {
	needs(t, "bash", "iptables-nft-restore", "iptables-legacy-restore")
	reads := 100
	if testing.Short() {
		reads = 20
	}
	for _, r := range []rulesOf{{4, backendNFT}, {4, backendLegacy}} {
		t.Run(r.backend, func(t *testing.T) {
			inNamespace(t, func(t *testing.T, p *place) {
				file := t.TempDir() + "/rules"
				if err := os.WriteFile(file, []byte(rewriting()), 0o600); err != nil {
					t.Fatal(err)
				}
				// Registered in this order the kernel lists filter first, so that a reading that is torn has
				// the older filter.
				shell(t, "for table in nat filter; do iptables-"+r.backend+" -t $table -N X; done; sed s/NUMBER/1/g "+file+" | iptables-"+r.backend+"-restore")
				// Random pauses: sometimes a reading fits in between, sometimes it does not.
				loop := exec.Command("bash", "-c", `n=1; while :; do n=$((n+1)); sed "s/NUMBER/$n/g" `+file+` | iptables-`+r.backend+`-restore; sleep 0.0$((RANDOM % 3))$((RANDOM % 10)); done`)
				loop.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
				loop.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
				if err := loop.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() {
					_ = syscall.Kill(-loop.Process.Pid, syscall.SIGKILL)
					_ = loop.Wait()
				}()
				var marked, between int
				seen := map[int]bool{}
				for range reads {
					var e snapshot.Evidence
					if r.backend == backendNFT {
						data, err := p.readRulesNFT(t.Context(), r)
						e = p.rulesEvidence(r, data, err)
					} else {
						data, err := p.readRulesLegacy(t.Context(), r)
						e = p.rulesEvidence(r, data, err)
					}
					if e.Status == snapshot.Failed && strings.Contains(e.Error, "inconsistent") {
						marked++
						continue
					}
					if e.Status != snapshot.OK {
						t.Errorf("%q: %s", e.Status, e.Error)
						continue
					}
					of, err := moment(e.Data)
					if err != nil {
						t.Error(err)
						continue
					}
					switch of["filter"] - of["nat"] {
					case 0:
					case 1:
						between++
					default:
						t.Errorf("the tables are of different moments: %v", of)
					}
					seen[of["nat"]] = true
				}
				t.Logf("%d reads: %d marked as inconsistent, %d between the tables, %d different rulesets", reads, marked, between, len(seen))
				if len(seen) < 2 {
					t.Error("the rules did not change")
				}
			})
		})
	}
}
