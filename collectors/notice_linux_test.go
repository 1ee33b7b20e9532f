package collectors

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// TestNotices holds what the kernel tells of changes of rules, and what is found by looking.
func TestNotices(t *testing.T) {
	needs(t, "nft", "xtables-nft-multi", "xtables-legacy-multi")
	inNamespace(t, func(t *testing.T, p *place) {
		var got []Notice
		f := &ruleFollower{place: p, fd: -1, each: func(n Notice) { got = append(got, n) }}
		if err := f.subscribe(); err != nil {
			t.Skipf("nf_tables does not tell: %v", err)
		}
		f.look(time.Now(), true)
		expect := func(name string, n int, process string) {
			t.Helper()
			f.receive()
			f.look(time.Now(), false)
			if len(got) != n {
				t.Fatalf("%s: %d notices, want %d: %+v", name, len(got), n, got)
			}
			for _, g := range got {
				if g.Process != process || (process != "") != (g.PID > 0) || time.Since(g.At).Abs() > time.Minute {
					t.Errorf("%s: %+v, want process %q", name, g, process)
				}
			}
			got = nil
		}
		expect("nothing", 0, "")
		shell(t, "nft add table ip a")
		expect("nft", 1, "nft")
		// More messages than a socket holds are still one change.
		var rules strings.Builder
		rules.WriteString("add table ip b\nadd chain ip b c\n")
		for range 5000 {
			rules.WriteString("add rule ip b c ip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp dport 80 counter drop\n")
		}
		file := filepath.Join(t.TempDir(), "rules")
		if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		shell(t, "nft -f "+file)
		expect("a large change", 1, "nft")
		shell(t, "xtables-nft-multi iptables -w -A FORWARD -j ACCEPT")
		expect("iptables-nft", 1, "xtables-nft-mul") // as the kernel calls it: 15 letters of the program
		shell(t, "xtables-legacy-multi iptables -w -t mangle -A FORWARD -j ACCEPT")
		expect("iptables-legacy, registering the table", 1, "")
		shell(t, "xtables-legacy-multi iptables -w -t mangle -R FORWARD 1 -j DROP")
		expect("iptables-legacy, a table of the same size", 1, "")
		shell(t, "nft list ruleset >/dev/null; xtables-legacy-multi iptables-save >/dev/null; xtables-nft-multi iptables-save >/dev/null")
		f.receive()
		if len(got) != 0 {
			t.Errorf("reading rules is a change of nf_tables: %+v", got)
		}
	})
}

// TestFollowRules holds that the goroutine tells, and ends.
func TestFollowRules(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the rules of this machine are for root to see")
	}
	ctx, cancel := context.WithCancel(t.Context())
	how, err := FollowRules(ctx, 50*time.Millisecond, func(Notice) {})
	cancel()
	if err != nil || how.NFT != "netlink" && how.NFT != "poll" && how.NFT != "" || how.Poll != 50*time.Millisecond {
		t.Errorf("%+v, %v", how, err)
	}
}

// TestKept holds that rules are taken from the reading before exactly as long as nobody changes them.
func TestKept(t *testing.T) {
	needs(t, "nft", "xtables-nft-multi", "iptables-nft-save")
	inNamespace(t, func(t *testing.T, p *place) {
		p.kept = &Kept{}
		src := nodeSources[slices.IndexFunc(nodeSources, func(s source) bool { return s.name == "iptables" })]
		reads := 0
		counted := src
		counted.read = func(ctx context.Context, p *place) []snapshot.Evidence { reads++; return src.read(ctx, p) }
		expect := func(name string, n int, text string) {
			t.Helper()
			var all strings.Builder
			for _, e := range p.readOrKeep(t.Context(), counted) {
				if !e.Status.Answers() {
					t.Errorf("%s: %s is %s: %s", name, e.File, e.Status, e.Error)
				}
				all.Write(e.Data)
			}
			if reads != n || !strings.Contains(all.String(), text) {
				t.Errorf("%s: %d readings, want %d, with %q in:\n%s", name, reads, n, text, all.String())
			}
		}
		shell(t, "xtables-nft-multi iptables -w -A FORWARD -s 10.0.0.1 -j ACCEPT")
		expect("first", 1, "10.0.0.1")
		expect("nothing changed", 1, "10.0.0.1")
		shell(t, "xtables-nft-multi iptables -w -A FORWARD -s 10.0.0.2 -j ACCEPT")
		expect("a rule more", 2, "10.0.0.2")
		expect("nothing changed", 2, "10.0.0.2")
		p.kept.Forget()
		expect("forgotten", 3, "10.0.0.2")
		p.kept = nil
		expect("nothing kept", 4, "10.0.0.2")
		expect("nothing kept", 5, "10.0.0.2")
	})
}

// TestKeptAnswers holds that a source that could not be read is read again.
func TestKeptAnswers(t *testing.T) {
	p := &place{kept: &Kept{}}
	status := snapshot.Failed
	reads := 0
	src := source{
		name: "x", mark: func(*place) (string, error) { return "same", nil },
		read: func(context.Context, *place) []snapshot.Evidence {
			reads++
			return []snapshot.Evidence{{Status: status}}
		},
	}
	p.readOrKeep(t.Context(), src)
	status = snapshot.OK
	for range 3 {
		if e := p.readOrKeep(t.Context(), src); e[0].Status != snapshot.OK {
			t.Errorf("status %s", e[0].Status)
		}
	}
	if reads != 2 {
		t.Errorf("%d readings, want 2", reads)
	}
}
