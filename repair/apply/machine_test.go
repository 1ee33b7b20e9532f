package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/repair/plan"
)

// A machine is a recorded node whose sysctls and rules can be written: what tools do to a real one, as text.
type machine struct {
	files   fstest.MapFS
	sysctls map[string]string
	boot    string
	// ran are the commands in their order.
	ran []string
	// meddle is called after each command, with its number from 1; an error is what the command says. before is called before.
	before, meddle func(n int) error
	// lies has commands succeed and do nothing.
	lies bool
	// lacks are programs that are not there.
	lacks string
}

// counted are the counters in front of rules.
var counted = regexp.MustCompile(`(?m)^\[\d+:\d+\] `)

// newMachine is the node of --demo with sysctls: it forwards nothing.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{files: fstest.MapFS{}, boot: "first", sysctls: map[string]string{
		"net.ipv4.ip_forward": "0", "net.ipv4.conf.all.route_localnet": "1", "net.ipv4.conf.eth0.forwarding": "0", "net.ipv4.conf.all.accept_redirects": "1",
	}}
	const folder = "../../cmd/demo/node-1"
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(folder + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		m.files[e.Name()] = &fstest.MapFile{Data: counted.ReplaceAll(text, nil)}
	}
	return m
}

func (m *machine) read(context.Context) (*explain.Reading, error) {
	var b strings.Builder
	for name, value := range m.sysctls {
		fmt.Fprintf(&b, "%s = %s\n", name, value)
	}
	m.files["sysctl.txt"] = &fstest.MapFile{Data: []byte(b.String())}
	s, err := snapshot.LoadFS(m.files, "node-1")
	if err != nil {
		return nil, err
	}
	return explain.Read(s, explain.AuditOptions{})
}

// plan is what would mend the machine.
func (m *machine) plan(t *testing.T) *report.RepairPlan {
	t.Helper()
	r, err := m.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return plan.Make(r, plan.Options{})
}

func (m *machine) check(kind string, c report.RepairCommand) error {
	if m.lacks != "" && c.Command[0] == m.lacks {
		return fmt.Errorf("find %s: no such program", m.lacks)
	}
	return nil
}

func (m *machine) run(_ context.Context, _ string, c report.RepairCommand, _ *lock) error {
	m.ran = append(m.ran, strings.Join(c.Command, " "))
	n := len(m.ran)
	if m.before != nil {
		if err := m.before(n); err != nil {
			return err
		}
	}
	if !m.lies {
		if err := m.do(c); err != nil {
			return err
		}
	}
	if m.meddle != nil {
		return m.meddle(n)
	}
	return nil
}

func (m *machine) do(c report.RepairCommand) error {
	switch {
	case c.Command[0] == "sysctl":
		for _, word := range c.Command[2:] {
			name, value, _ := strings.Cut(word, "=")
			m.sysctls[name] = value
			if name == "net.ipv4.ip_forward" {
				m.sysctls["net.ipv4.conf.eth0.forwarding"] = value
				m.sysctls["net.ipv4.conf.all.accept_redirects"] = map[string]string{"0": "1", "1": "0"}[value]
			}
		}
		return nil
	case strings.HasSuffix(c.Command[0], "iptables-nft-restore"):
		return m.restore(c.Input)
	}
	return errors.New("the machine has no " + c.Command[0])
}

// restore does what iptables-restore --noflush does with chains that it declares, those it deletes and rules that it adds.
func (m *machine) restore(input string) error {
	const file = "iptables-save.txt"
	table := ""
	lines := strings.Split(string(m.files[file].Data), "\n")
	in := func(i int) bool { // whether line i is of the table
		now := ""
		for _, l := range lines[:i] {
			if strings.HasPrefix(l, "*") {
				now = l[1:]
			}
		}
		return now == table
	}
	without := func(goes func(l string) bool) {
		var kept []string
		for i, l := range lines {
			if !in(i) || !goes(l) {
				kept = append(kept, l)
			}
		}
		lines = kept
	}
	insert := func(text string, before func(l string) bool) {
		for i, l := range lines {
			if in(i) && before(l) {
				lines = append(lines[:i:i], append([]string{text}, lines[i:]...)...)
				return
			}
		}
	}
	for l := range strings.SplitSeq(strings.TrimSpace(input), "\n") {
		switch {
		case strings.HasPrefix(l, "*"):
			table = l[1:]
		case strings.HasPrefix(l, ":"):
			chain, _, _ := strings.Cut(l[1:], " ")
			without(func(x string) bool {
				return strings.HasPrefix(x, ":"+chain+" ") || strings.HasPrefix(x, "-A "+chain+" ")
			})
			insert(l, func(x string) bool { return strings.HasPrefix(x, "-A ") || x == "COMMIT" })
		case strings.HasPrefix(l, "-A "):
			insert(l, func(x string) bool { return x == "COMMIT" })
		case strings.HasPrefix(l, "-X "):
			without(func(x string) bool { return strings.HasPrefix(x, ":"+l[3:]+" ") })
		case l == "COMMIT":
		default:
			return fmt.Errorf("the machine does not know %q", l)
		}
	}
	m.files[file].Data = []byte(strings.Join(lines, "\n"))
	return nil
}

func (m *machine) machine() (Machine, error) { return Machine{Boot: m.boot, Namespace: "net:[1]"}, nil }

// state is all that can be written, in a form to compare.
func (m *machine) state() string {
	chains := map[string][]string{}
	table := ""
	for l := range strings.SplitSeq(string(m.files["iptables-save.txt"].Data), "\n") {
		switch {
		case strings.HasPrefix(l, "*"):
			table = l
		case strings.HasPrefix(l, ":"):
			chain, _, _ := strings.Cut(l[1:], " ")
			chains[table+" "+chain] = append(chains[table+" "+chain], "")
		case strings.HasPrefix(l, "-A "):
			chain, _, _ := strings.Cut(l[3:], " ")
			chains[table+" "+chain] = append(chains[table+" "+chain], l)
		}
	}
	return fmt.Sprint(m.sysctls, chains)
}

// options are those of a run on the machine.
func (m *machine) options(t *testing.T, folder string) Options {
	t.Helper()
	clock := time.Date(2027, 1, 17, 10, 15, 0, 0, time.UTC)
	return Options{
		Folder: folder, Read: m.read, Program: "a test", tools: m,
		Now: func() time.Time { clock = clock.Add(time.Second); return clock },
		Say: func(n Notice) { t.Log(n.Text) },
	}
}
