package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// A kernelText is what was read of a node, as files, and the least that a kernel has to do so that steps can be done to
// it: the commands of the native tools change the text that the same tools would print afterwards. It knows nothing of
// what a mender meant.
type kernelText struct {
	files map[string]string
}

const (
	recordedServers = "evidence/ipvsadm-save.txt"
	recordedList    = "evidence/ipvsadm-list.txt"
	recordedSets    = "evidence/ipset-save.txt"
	recordedAddrs   = "evidence/ip-addr.txt"
	recordedRoutes4 = "evidence/ip-route.txt"
	recordedRoutes6 = "evidence/ip6-route.txt"
	recordedRules4  = "evidence/iptables-legacy-save.txt"
	recordedRules6  = "evidence/ip6tables-legacy-save.txt"
)

// recordedNode is a node as a recording has it.
func recordedNode(t *testing.T, folder string) *kernelText {
	t.Helper()
	k := &kernelText{files: map[string]string{}}
	dir := os.DirFS("../../test/recorded/testdata/" + folder)
	err := fs.WalkDir(dir, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dir, path)
		k.files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Connections come and go, and the text of one moment says them of servers that are changed here.
	delete(k.files, recordedList)
	return k
}

func (k *kernelText) clone() *kernelText { return &kernelText{maps.Clone(k.files)} }

// read audits the node.
func (k *kernelText) read(t *testing.T) *explain.Reading {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range k.files {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := snapshot.LoadFS(files, "node")
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do does what a command says.
func (k *kernelText) do(c report.RepairCommand) error {
	switch strings.Join(c.Command, " ") {
	case "ipvsadm -R":
		return k.each(c.Input, k.ipvsadm)
	case "ipset restore -exist":
		return k.each(c.Input, k.ipset)
	case "ip -batch -":
		return k.each(c.Input, k.ip)
	}
	if len(c.Command) == 2 && c.Command[1] == "--noflush" {
		return k.restore(c)
	}
	return fmt.Errorf("no model of %q", c.Command)
}

func (k *kernelText) each(input string, do func(words []string) error) error {
	for line := range strings.Lines(input) {
		if err := do(strings.Fields(line)); err != nil {
			return fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return nil
}

// lines are those of a file, without their ends.
func (k *kernelText) lines(file string) []string {
	var out []string
	for s := bufio.NewScanner(strings.NewReader(k.files[file])); s.Scan(); {
		out = append(out, s.Text())
	}
	return out
}

func (k *kernelText) write(file string, lines []string) {
	k.files[file] = strings.Join(lines, "\n") + "\n"
	if len(lines) == 0 {
		k.files[file] = ""
	}
}

// ipvsadm does one command: the text is that of ipvsadm -Sn, where a virtual server is named by two words.
func (k *kernelText) ipvsadm(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("too short")
	}
	named := strings.Join(words[1:3], " ")
	rest := words[3:]
	if len(rest) > 0 && rest[0] == "-6" {
		named, rest = named+" -6", rest[1:]
	}
	all := k.lines(recordedServers)
	is := func(line, verb string) bool { return strings.HasPrefix(line+" ", verb+" "+named+" ") }
	at := slices.IndexFunc(all, func(l string) bool { return is(l, "-A") })
	if (at < 0) != (words[0] == "-A") {
		return fmt.Errorf("virtual server %s: there %t", named, at >= 0)
	}
	real := -1
	if len(rest) > 1 && rest[0] == "-r" {
		real = slices.IndexFunc(all, func(l string) bool { return strings.HasPrefix(l+" ", "-a "+named+" -r "+rest[1]+" ") })
		if (real < 0) != (words[0] == "-a") {
			return fmt.Errorf("real server %s: there %t", rest[1], real >= 0)
		}
	}
	line := strings.Join(words[1:], " ")
	switch words[0] {
	case "-A":
		all = append(all, "-A "+line)
	case "-E":
		all[at] = "-A " + line
	case "-D":
		all = slices.DeleteFunc(all, func(l string) bool { return is(l, "-A") || is(l, "-a") })
	case "-a":
		all = slices.Insert(all, at+1, "-a "+line) // the newest first
	case "-e":
		all[real] = "-a " + line
	case "-d":
		all = slices.Delete(all, real, real+1)
	default:
		return fmt.Errorf("no such command")
	}
	k.write(recordedServers, all)
	return nil
}

// ipset does one line of ipset restore -exist.
func (k *kernelText) ipset(words []string) error {
	all := k.lines(recordedSets)
	create := func(name string) int {
		return slices.IndexFunc(all, func(l string) bool { return strings.HasPrefix(l, "create "+name+" ") })
	}
	if len(words) < 2 || words[0] != "create" && create(words[1]) < 0 {
		return fmt.Errorf("no such set")
	}
	line := strings.Join(words, " ")
	entry := "add " + strings.Join(words[1:], " ")
	switch words[0] {
	case "create":
		if at := create(words[1]); at >= 0 {
			if !strings.HasPrefix(all[at], line) {
				return fmt.Errorf("it is there and made otherwise: %s", all[at])
			}
			return nil
		}
		if strings.HasPrefix(words[2], "hash:") {
			line += " bucketsize 12 initval 0x00000001"
		}
		all = append(all, line)
	case "add":
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	case "del":
		all = slices.DeleteFunc(all, func(l string) bool { return l == entry })
	case "flush":
		all = slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "add "+words[1]+" ") })
	case "destroy":
		for _, rules := range []string{recordedRules4, recordedRules6} {
			if strings.Contains(k.files[rules], "--match-set "+words[1]+" ") {
				return fmt.Errorf("a rule asks it")
			}
		}
		all = slices.DeleteFunc(all, func(l string) bool {
			return strings.HasPrefix(l, "create "+words[1]+" ") || strings.HasPrefix(l, "add "+words[1]+" ")
		})
	case "swap":
		a, b := create(words[1]), create(words[2])
		if b < 0 || features[strings.Fields(all[a])[2]] != features[strings.Fields(all[b])[2]] {
			return fmt.Errorf("not alike")
		}
		other := map[string]string{words[1]: words[2], words[2]: words[1]}
		for i, l := range all {
			w := strings.SplitN(l, " ", 3)
			if to := other[w[1]]; to != "" {
				all[i] = w[0] + " " + to + " " + w[2]
			}
		}
	default:
		return fmt.Errorf("no such command")
	}
	k.write(recordedSets, all)
	return nil
}

// ip does one line of ip -batch.
func (k *kernelText) ip(words []string) error {
	all := k.lines(recordedAddrs)
	device := slices.IndexFunc(all, func(l string) bool { return strings.Contains(l, ": kube-ipvs0: ") })
	switch line := strings.Join(words, " "); {
	case line == "link add kube-ipvs0 type dummy":
		if device >= 0 {
			return fmt.Errorf("it is there")
		}
		all = append(all, "99: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default", "    link/ether 46:e2:2e:ac:6e:2c brd ff:ff:ff:ff:ff:ff", "    dummy")
		k.write(recordedAddrs, all)
		return nil
	case line == "link del kube-ipvs0":
		if device < 0 {
			return fmt.Errorf("it is not there")
		}
		for _, a := range k.addresses() {
			if err := k.ip([]string{"addr", "del", a, "dev", "kube-ipvs0"}); err != nil {
				return err
			}
		}
		all = k.lines(recordedAddrs)
		k.write(recordedAddrs, slices.Delete(all, device, device+3))
		return nil
	case len(words) != 5 || words[0] != "addr" || words[4] != "kube-ipvs0" || device < 0:
		return fmt.Errorf("cannot find device")
	}
	p, err := netip.ParsePrefix(words[2])
	if err != nil {
		return err
	}
	family, routes := "inet", recordedRoutes4
	route := fmt.Sprintf("local %s dev kube-ipvs0 table local proto kernel scope host src %[1]s", p.Addr())
	if p.Addr().Is6() {
		family, routes = "inet6", recordedRoutes6
		route = fmt.Sprintf("local %s dev kube-ipvs0 table local proto kernel scope global pref medium", p.Addr())
	}
	line := fmt.Sprintf("    %s %s scope global", family, p)
	at := slices.IndexFunc(all, func(l string) bool {
		return strings.HasPrefix(l, line+" kube-ipvs0") || strings.TrimSpace(l) == strings.TrimSpace(line)
	})
	table := k.lines(routes)
	switch {
	case words[1] == "add" && at < 0:
		if family == "inet" {
			line += " kube-ipvs0"
		}
		all, table = slices.Insert(all, device+3, line), append(table, route)
	case words[1] == "del" && at >= 0:
		all = slices.Delete(all, at, at+1)
		was := len(table)
		table = slices.DeleteFunc(table, func(l string) bool {
			return strings.HasPrefix(l, fmt.Sprintf("local %s dev kube-ipvs0 ", p.Addr()))
		})
		if len(table) != was-1 {
			return fmt.Errorf("%d local routes", was-len(table))
		}
	default:
		return fmt.Errorf("there %t", at >= 0)
	}
	k.write(recordedAddrs, all)
	k.write(routes, table)
	return nil
}

// addresses are those of kube-ipvs0.
func (k *kernelText) addresses() []string {
	var out []string
	on := false
	for _, l := range k.lines(recordedAddrs) {
		if !strings.HasPrefix(l, " ") {
			on = strings.Contains(l, ": kube-ipvs0: ")
		}
		if w := strings.Fields(l); on && strings.HasPrefix(w[0], "inet") && !strings.HasPrefix(w[1], "fe80:") {
			out = append(out, w[1])
		}
	}
	return out
}

// restore does what iptables-restore --noflush does.
func (k *kernelText) restore(c report.RepairCommand) error {
	return fmt.Errorf("no model of %q yet", c.Command)
}

// state is the node in a form to compare: every file, without the order of lines where the kernel has none.
func (k *kernelText) state() map[string]string {
	out := maps.Clone(k.files)
	for _, file := range []string{recordedServers, recordedSets, recordedAddrs, recordedRoutes4, recordedRoutes6} {
		all := k.lines(file)
		for i, l := range all {
			if file == recordedSets {
				l = without(l, "initval", "bucketsize", "hashsize")
			}
			all[i] = strings.TrimSpace(l)
		}
		slices.SortFunc(all, cmp.Compare)
		out[file] = strings.Join(all, "\n")
	}
	return out
}
